"""Measures of outputs against references: a value always comes with the signature of how it was made."""

from antiphon.metrics.generation import LOWER_IS_BETTER, Outputs, Score, perplexity, score_outputs

__all__ = ["LOWER_IS_BETTER", "Outputs", "Score", "perplexity", "score_outputs"]
