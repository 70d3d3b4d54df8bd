"""Measures of outputs against references: a value always comes with the signature of how it was made."""

from antiphon.metrics.generation import LOWER_IS_BETTER, Outputs, Score, Shares, perplexity, score_outputs, why_left_out
from antiphon.metrics.ranking import RANKING_MEASURES, rank_measures

__all__ = [
    "LOWER_IS_BETTER",
    "RANKING_MEASURES",
    "Outputs",
    "Score",
    "Shares",
    "perplexity",
    "rank_measures",
    "score_outputs",
    "why_left_out",
]
