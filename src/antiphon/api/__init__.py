"""The Python API: what ``antiphon`` and the commands use, each name imported when it is first used.

``model`` (what trained models do, and how they are loaded), ``ranking_model`` (models that rank), ``evaluation``
(metrics of outputs, mistakes, improbable pairs), ``word_links`` (links between words, of one or two models, and their
scores), ``train_recipe`` (training from Python), ``workers`` (prediction by several processes). What needs no PyTorch,
such as results, is in ``torch_free``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.api.model import Model as Model
    from antiphon.api.model import NoisyChannelModel as NoisyChannelModel
    from antiphon.api.model import load as load
    from antiphon.api.model import load_planner as load_planner
    from antiphon.api.ranking_model import RankingModel as RankingModel
    from antiphon.api.train_recipe import train as train
    from antiphon.api.word_links import LinkOptions as LinkOptions
    from antiphon.api.word_links import WordLinks as WordLinks
    from antiphon.metrics.gold_links import GoldLinks as GoldLinks
    from antiphon.nn.transducer_loss import transducer_loss as transducer_loss
    from antiphon.report.error_report import ErrorReport as ErrorReport
    from antiphon.report.error_report import Suspect as Suspect
    from antiphon.torch_free.inputs import PredictOptions as PredictOptions
    from antiphon.torch_free.inputs import SourceLike as SourceLike
    from antiphon.torch_free.inputs import StreamOptions as StreamOptions
    from antiphon.torch_free.results import Alignment as Alignment
    from antiphon.torch_free.results import Candidate as Candidate
    from antiphon.torch_free.results import Evaluation as Evaluation
    from antiphon.torch_free.results import Lexicon as Lexicon
    from antiphon.torch_free.results import Prediction as Prediction
    from antiphon.torch_free.results import Ranked as Ranked
    from antiphon.training.callback import Callback as Callback

_NAMES = {
    "antiphon.api.model": ["Model", "NoisyChannelModel", "load", "load_planner"],
    "antiphon.api.ranking_model": ["RankingModel"],
    "antiphon.api.train_recipe": ["train"],
    "antiphon.api.word_links": ["LinkOptions", "WordLinks"],
    "antiphon.metrics.gold_links": ["GoldLinks"],
    "antiphon.nn.transducer_loss": ["transducer_loss"],
    "antiphon.report.error_report": ["ErrorReport", "Suspect"],
    "antiphon.torch_free.inputs": ["PredictOptions", "SourceLike", "StreamOptions"],
    "antiphon.torch_free.results": ["Alignment", "Candidate", "Evaluation", "Lexicon", "Prediction", "Ranked"],
    "antiphon.training.callback": ["Callback"],
}


def __getattr__(name: str) -> Any:
    """Imports the module of a name."""
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'antiphon.api' has no attribute {name!r}")
