"""Trained runs as ONNX graphs, for ``antiphon.lite``."""
