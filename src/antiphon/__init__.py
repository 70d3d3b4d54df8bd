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
    from antiphon.api.model import Model, load
    from antiphon.api.ranking_model import RankingModel
    from antiphon.api.train_recipe import train
    from antiphon.api.word_links import WordLinks
    from antiphon.metrics.gold_links import GoldLinks
    from antiphon.nn.transducer_loss import transducer_loss
    from antiphon.pronunciation.pronouncer import pronounce
    from antiphon.report.error_report import ErrorReport, Suspect
    from antiphon.torch_free.results import Alignment, Candidate, Evaluation, Lexicon, Prediction, Ranked
    from antiphon.training.callback import Callback

_MODULES = {
    "api.model": ("Model", "load"),
    "api.ranking_model": ("RankingModel",),
    "api.train_recipe": ("train",),
    "api.word_links": ("WordLinks",),
    "metrics.gold_links": ("GoldLinks",),
    "nn.transducer_loss": ("transducer_loss",),
    "pronunciation.pronouncer": ("pronounce",),
    "report.error_report": ("ErrorReport", "Suspect"),
    "torch_free.results": ("Alignment", "Candidate", "Evaluation", "Lexicon", "Prediction", "Ranked"),
    "training.callback": ("Callback",),
}
"""Where public names are defined."""


def __dir__() -> list[str]:
    """Every public name, those that are not imported yet among them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    """Imports torch only when something needs it, so that ``antiphon --help`` answers at once."""
    if name not in __all__:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    if name != "pronounce":
        check_installed("torch", "torch", f"antiphon.{name}")
    if name == "lattice":
        return import_module("antiphon.lattice")
    module = next(module for module, names in _MODULES.items() if name in names)
    return getattr(import_module(f"antiphon.{module}"), name)
