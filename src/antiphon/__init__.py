"""Antiphon maps one sequence to another, with latent monotone alignments that are summed out exactly."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Alignment",
    "Candidate",
    "Evaluation",
    "Model",
    "Prediction",
    "Ranked",
    "RankingModel",
    "__version__",
    "load",
]

if TYPE_CHECKING:
    from antiphon.api import Alignment, Candidate, Evaluation, Model, Prediction, Ranked, RankingModel, load


def __getattr__(name: str) -> Any:
    """Imports torch only when something needs it, so that ``antiphon --help`` answers at once."""
    if name in __all__:
        from antiphon import api

        return getattr(api, name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
