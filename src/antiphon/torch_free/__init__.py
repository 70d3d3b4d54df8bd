"""What works without PyTorch, for the Python API and ``antiphon.lite``: text, ids, hypotheses, results, streams."""
