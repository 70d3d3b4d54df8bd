"""Measures of outputs against references: a value always comes with the signature of how it was made."""

from antiphon.metrics.output_metrics import (
    LOWER_IS_BETTER,
    Outputs,
    Score,
    Shares,
    perplexity,
    score_outputs,
    why_left_out,
)

__all__ = [
    "LOWER_IS_BETTER",
    "Outputs",
    "Score",
    "Shares",
    "perplexity",
    "score_outputs",
    "why_left_out",
]
