"""Batch prediction on an existing engine, such as Ray Data or Spark."""

from antiphon.integrations.batch.predictor import Predictor

__all__ = ["Predictor"]
