"""Predictions of exported models with numpy and onnxruntime, without PyTorch.

``antiphon export RUN --out FOLDER`` writes a folder; ``antiphon.lite.load(FOLDER).predict(["knight"])`` reads it.
"""

from antiphon.api.results import Candidate, Prediction
from antiphon.lite.lite_model import LiteModel, load

__all__ = ["Candidate", "LiteModel", "Prediction", "load"]
