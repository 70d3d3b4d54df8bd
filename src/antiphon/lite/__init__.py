"""Predictions of exported models with numpy and onnxruntime, without PyTorch.

``antiphon export RUN --out FOLDER`` writes a folder; ``antiphon.lite.load(FOLDER).predict(["knight"])`` reads it.
"""

from antiphon.lite.model import LiteModel, load, shipped_models
from antiphon.torch_free.results import Candidate, Prediction

__all__ = ["Candidate", "LiteModel", "Prediction", "load", "shipped_models"]
