"""A trained model in Python: ``model = antiphon.load("runs/x")``."""

from pathlib import Path

import torch

from antiphon.api.generation_models import STREAMS, NeuralModel, NoisyChannelModel, RuleModel
from antiphon.api.inputs import PredictOptions, SourceLike, StreamOptions
from antiphon.api.lexicon import Lexicon
from antiphon.api.model import Model
from antiphon.api.ranking_model import RankingModel
from antiphon.api.results import Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.device import choose_device
from antiphon.report.error_report import ErrorReport, Suspect
from antiphon.runs.combination import load_combination, load_part
from antiphon.runs.kinds import RANKING_KINDS
from antiphon.runs.run_folder import RunFolder

__all__ = [
    "STREAMS",
    "Alignment",
    "Candidate",
    "ErrorReport",
    "Evaluation",
    "Lexicon",
    "Model",
    "NoisyChannelModel",
    "PredictOptions",
    "Prediction",
    "Ranked",
    "RankingModel",
    "SourceLike",
    "StreamOptions",
    "Suspect",
    "load",
    "load_planner",
]


def load(run: str | Path, *, device: str = "auto", threads: int | None = None) -> Model:
    """The trained model of a run folder, ready to predict, score and align.

    ``threads`` sets PyTorch's number of threads, for the whole process; unset, it is left alone.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    folder = RunFolder.open(Path(run))
    recipe = folder.recipe()
    if recipe.model.kind in RANKING_KINDS:
        return RankingModel(recipe, folder, choose_device(device))
    codec = folder.codec(recipe)
    if recipe.model.kind == "suffix_rule":
        return RuleModel(recipe, codec, folder.load_rules())
    if recipe.model.kind == "noisy_channel":
        combination = load_combination(folder, recipe)
        return NoisyChannelModel(recipe, codec, combination.to(choose_device(device)))
    rules = folder.load_rules() if recipe.search.rule_weight else None
    return NeuralModel(recipe, codec, load_part(folder).to(choose_device(device)), rules)


def load_planner(run: str | Path) -> Model:
    """The model of a run without its weights: it plans batches and completes predictions, but answers none."""
    folder = RunFolder.open(Path(run))
    recipe = folder.recipe()
    return load(run, device="cpu") if recipe.model.kind in RANKING_KINDS else Model(recipe, folder.codec(recipe))
