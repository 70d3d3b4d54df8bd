"""Loading of trained models: ``model = antiphon.load("runs/x")``."""

from pathlib import Path

import torch

from antiphon.api.generation_models import NeuralModel, NoisyChannelModel, RuleModel
from antiphon.api.inputs import as_path, check_positive
from antiphon.api.model import Model
from antiphon.api.ranking_model import RankingModel
from antiphon.device import choose_device
from antiphon.recipe.schema import Recipe
from antiphon.runs.combination import load_combination, load_part
from antiphon.runs.kinds import RANKING_KINDS
from antiphon.runs.run_folder import RunFolder


def load(run: str | Path, *, device: str = "auto", threads: int | None = None) -> Model:
    """The trained model of a run folder, to predict, score, align, rank and evaluate.

    ``device`` is "auto", "cpu" or "cuda". ``threads`` sets PyTorch's number of threads for the whole process; None
    leaves it as it is.
    """
    check_positive("threads", threads)
    folder = RunFolder.open(as_path("run", run))
    recipe = folder.recipe()
    if threads is not None:
        torch.set_num_threads(threads)
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn before the trained ones replace them
        return _build(folder, recipe, choose_device(device))


def _build(folder: RunFolder, recipe: Recipe, device: str) -> Model:
    """The model of the kind that the recipe has, with its trained weights."""
    kind = recipe.model.kind
    if kind in RANKING_KINDS:
        return RankingModel(recipe, folder, device)
    codec = folder.codec(recipe)
    if kind == "suffix_rule":
        return RuleModel(recipe, codec, folder.load_rules())
    if kind == "noisy_channel":
        return NoisyChannelModel(recipe, codec, load_combination(folder, recipe).to(device))
    rules = folder.load_rules() if recipe.search.rule_weight else None
    return NeuralModel(recipe, codec, load_part(folder).to(device), rules)


def load_planner(run: str | Path) -> Model:
    """The model of a run without its weights: it plans batches and fills in blank inputs, but predicts nothing."""
    folder = RunFolder.open(Path(run))
    recipe = folder.recipe()
    return load(run, device="cpu") if recipe.model.kind in RANKING_KINDS else Model(recipe, folder.codec(recipe))
