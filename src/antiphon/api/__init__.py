"""The Python API: training, loading, and the objects that come back."""

from antiphon.api.generation_models import STREAMS, NoisyChannelModel
from antiphon.api.inputs import PredictOptions, SourceLike, StreamOptions
from antiphon.api.lexicon import Lexicon
from antiphon.api.load_model import load, load_planner
from antiphon.api.model import Model
from antiphon.api.ranking_model import RankingModel
from antiphon.api.results import Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.api.train_recipe import train
from antiphon.api.word_links import LinkOptions, WordLinks
from antiphon.data.gold_links import GoldLinks
from antiphon.report.error_report import ErrorReport, Suspect
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
]
