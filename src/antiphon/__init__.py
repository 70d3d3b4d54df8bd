"""Antiphon maps one sequence to another, with latent monotone alignments that are summed out exactly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from antiphon.exceptions import AntiphonError, InputError, RecipeError, RunError, check_installed

__version__ = "0.1.0"
__all__ = [
    "Alignment",
    "AntiphonError",
    "Callback",
    "Candidate",
    "ErrorReport",
    "Evaluation",
    "GoldLinks",
    "InputError",
    "Lexicon",
    "Model",
    "Prediction",
    "Ranked",
    "RankingModel",
    "RecipeError",
    "RunError",
    "Suspect",
    "WordLinks",
    "__version__",
    "lattice",
    "load",
    "pronounce",
    "train",
    "transducer_loss",
]

if TYPE_CHECKING:
    from antiphon import lattice
    from antiphon.api import (
        Alignment,
        Callback,
        Candidate,
        ErrorReport,
        Evaluation,
        GoldLinks,
        Lexicon,
        Model,
        Prediction,
        Ranked,
        RankingModel,
        Suspect,
        WordLinks,
        load,
        train,
        transducer_loss,
    )
    from antiphon.pronunciation.pronouncer import pronounce


def __dir__() -> list[str]:
    """Every public name, those that are not imported yet among them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    """Imports torch only when something needs it, so that ``antiphon --help`` answers at once."""
    if name == "pronounce":
        return import_module("antiphon.pronunciation.pronouncer").pronounce
    if name in __all__:
        check_installed("torch", "torch", f"antiphon.{name}")
        if name == "lattice":
            return import_module("antiphon.lattice")
        from antiphon import api

        return getattr(api, name)
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
