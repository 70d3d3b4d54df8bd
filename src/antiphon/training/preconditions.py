"""Checks before training starts, so that nothing needed at its end turns out to be missing there."""

from collections.abc import Iterator
from importlib.util import find_spec

from antiphon.exceptions import InputError, RecipeError, how_to_install
from antiphon.metrics.output_metrics import missing_metrics_note
from antiphon.ranking.question_files import read_questions, select_questions
from antiphon.ranking.ranking_metrics import RANKING_METRICS
from antiphon.recipe.kinds import KINDS, Kind
from antiphon.recipe.model_sections import MatcherSection, OverlapSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.section import SettingGroup
from antiphon.runs.build import reads_source, selection_metrics
from antiphon.terminal import silent
from antiphon.torch_free.readers import keep_filled
from antiphon.training.data.prepare import pairs_of


def check_recipe(recipe: Recipe) -> None:
    """Refuses a recipe that cannot be trained, or not be evaluated at the end."""
    _check_kind(recipe)
    for setting, library, extra in _libraries(recipe):
        if find_spec(library) is None:
            missing = library.replace("_", "-")
            raise RecipeError(f"{setting}: {missing} is missing, expected it installed: {how_to_install(extra)}")
    _check_test_file(recipe)


def _check_kind(recipe: Recipe) -> None:
    """Refuses a kind that is not trained, and a dev metric that does not suit the kind."""
    kind, metric = KINDS[recipe.model.kind], recipe.train.dev_metric
    if kind.made_by:
        verb = kind.made_by
        raise RecipeError(f"model.kind = {kind.name}: made of trained runs by antiphon {verb}, expected another kind")
    possible = [] if kind.task is None else ["perplexity"]
    if kind.ranks:
        possible += RANKING_METRICS
    elif kind.predicts:
        possible += selection_metrics(recipe.data)
    if metric not in possible:
        raise RecipeError(
            f"train.dev_metric = {metric}: does not apply to this {kind.name}, expected {' or '.join(possible)}"
        )
    _check_groups(recipe, kind)
    if missing := missing_metrics_note([metric]):
        raise RecipeError(f"train.dev_metric = {missing}")


def _check_groups(recipe: Recipe, kind: Kind) -> None:
    """Refuses settings of training and search that apply to other kinds only."""
    smoothing, weight = recipe.train.label_smoothing, recipe.train.listwise_weight
    if smoothing and "tokens" not in kind.uses:
        raise RecipeError(
            f"train.label_smoothing = {smoothing:g}: kind {kind.name} predicts no tokens, "
            f"expected 0 or {_trained_kinds('tokens')}"
        )
    if weight and not kind.ranks:
        raise RecipeError(
            f"train.listwise_weight = {weight:g}: kind {kind.name} ranks no candidates, "
            f"expected 0 or {_trained_kinds('questions', 'epochs')}"
        )
    if recipe.search.replace_unknown and "attention" not in kind.uses:
        raise RecipeError(
            f"search.replace_unknown = true: kind {kind.name} has no attention weights, "
            f"expected false or {_trained_kinds('attention')}"
        )


def _trained_kinds(*groups: SettingGroup) -> str:
    """The kinds that are trained and use groups of settings, as text."""
    names = [name for name, kind in KINDS.items() if kind.uses.issuperset(groups) and not kind.made_by]
    return f"one of the kinds {', '.join(names)}" if len(names) > 1 else f"kind {names[0]}"


def _libraries(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """The optional libraries that a recipe needs: which setting, its module, and the extra that brings it."""
    model = recipe.model
    if recipe.train.log == "tensorboard":
        yield "train.log = tensorboard", "tensorboard", "log"
    if KINDS[model.kind].ranks:
        yield f"model.kind = {model.kind}", "ir_measures", "qa"
    if isinstance(model, OverlapSection) and model.baseline == "bm25":
        yield "model.baseline = bm25", "bm25s", "qa"
    if isinstance(model, MatcherSection) and model.sentence == "pretrained":
        yield "model.sentence = pretrained", "transformers", "pretrained"


def _check_test_file(recipe: Recipe) -> None:
    """Reads all of ``data.test``, so that errors in it are reported before training."""
    test = recipe.data.test
    if test is None:
        return
    if not KINDS[recipe.model.kind].ranks:
        keep_filled(pairs_of(recipe, test), test, targets_only=not reads_source(recipe))
        return
    if isinstance(test, tuple):
        raise RecipeError("data.test: two files, expected one file of questions and candidates")
    if not select_questions(read_questions(test, silent, labelled=True), "mixed"):
        raise InputError(f"{test}: no question has both a right and a wrong candidate, expected at least one")
