"""Measures of outputs against references: a value always comes with the signature of how it was made."""

from antiphon.metrics.output_metrics import (
    LOWER_IS_BETTER,
    Outputs,
    RatioStats,
    Score,
    missing_metrics_note,
    perplexity,
    score_outputs,
)

__all__ = [
    "LOWER_IS_BETTER",
    "Outputs",
    "RatioStats",
    "Score",
    "missing_metrics_note",
    "perplexity",
    "score_outputs",
]
