"""Measures of outputs against references: a value always comes with the signature of how it was made."""

from antiphon.metrics.generation import LOWER_IS_BETTER, Score, accuracy, edit_distance, perplexity, phoneme_error_rate

__all__ = ["LOWER_IS_BETTER", "Score", "accuracy", "edit_distance", "perplexity", "phoneme_error_rate"]
