"""Metrics of outputs against references; a value always comes with the signature of its settings."""

from antiphon.metrics.output_metrics import (
    BLEU_ORDER,
    LOWER_IS_BETTER,
    Outputs,
    RatioStats,
    Score,
    deletion_metrics,
    has_fourgrams,
    missing_metrics_note,
    perplexity,
    score_outputs,
)

__all__ = [
    "BLEU_ORDER",
    "LOWER_IS_BETTER",
    "Outputs",
    "RatioStats",
    "Score",
    "deletion_metrics",
    "has_fourgrams",
    "missing_metrics_note",
    "perplexity",
    "score_outputs",
]
