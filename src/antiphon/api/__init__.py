"""The Python API: training, loading, and the objects that come back.

Its names are imported when they are first used: results and checks of arguments need no PyTorch, and ``antiphon.lite``
uses them without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.api.generation_models import STREAMS, NoisyChannelModel
    from antiphon.api.load_model import load, load_planner
    from antiphon.api.model import Model
    from antiphon.api.ranking_model import RankingModel
    from antiphon.api.train_recipe import train
    from antiphon.api.word_links import LinkOptions, WordLinks
    from antiphon.metrics.gold_links import GoldLinks
    from antiphon.nn.transducer_loss import transducer_loss
    from antiphon.report.error_report import ErrorReport, Suspect
    from antiphon.torch_free.inputs import PredictOptions, SourceLike, StreamOptions
    from antiphon.torch_free.lexicon import Lexicon
    from antiphon.torch_free.results import Alignment, Candidate, Evaluation, Prediction, Ranked
    from antiphon.training.callback import Callback

__all__ = [
    "STREAMS",
    "Alignment",
    "Callback",
    "Candidate",
    "ErrorReport",
    "Evaluation",
    "GoldLinks",
    "Lexicon",
    "LinkOptions",
    "Model",
    "NoisyChannelModel",
    "PredictOptions",
    "Prediction",
    "Ranked",
    "RankingModel",
    "SourceLike",
    "StreamOptions",
    "Suspect",
    "WordLinks",
    "load",
    "load_planner",
    "train",
    "transducer_loss",
]

_MODULES = {
    "STREAMS": "antiphon.api.generation_models",
    "Alignment": "antiphon.torch_free.results",
    "Callback": "antiphon.training.callback",
    "Candidate": "antiphon.torch_free.results",
    "ErrorReport": "antiphon.report.error_report",
    "Evaluation": "antiphon.torch_free.results",
    "GoldLinks": "antiphon.metrics.gold_links",
    "Lexicon": "antiphon.torch_free.lexicon",
    "LinkOptions": "antiphon.api.word_links",
    "Model": "antiphon.api.model",
    "NoisyChannelModel": "antiphon.api.generation_models",
    "PredictOptions": "antiphon.torch_free.inputs",
    "Prediction": "antiphon.torch_free.results",
    "Ranked": "antiphon.torch_free.results",
    "RankingModel": "antiphon.api.ranking_model",
    "SourceLike": "antiphon.torch_free.inputs",
    "StreamOptions": "antiphon.torch_free.inputs",
    "Suspect": "antiphon.report.error_report",
    "WordLinks": "antiphon.api.word_links",
    "load": "antiphon.api.load_model",
    "load_planner": "antiphon.api.load_model",
    "train": "antiphon.api.train_recipe",
    "transducer_loss": "antiphon.nn.transducer_loss",
}
"""Where each name is."""


def __dir__() -> list[str]:
    """Every public name, those that are not imported yet among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Imports the module of a name."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'antiphon.api' has no attribute {name!r}")
