"""Ensembles: runs whose folder holds copies of their members, which become one model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from antiphon.exceptions import RunError
from antiphon.models.ensemble_model import Ensemble, Mean, MemberIds
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import EnsembleSection
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import count_parameters, map_ids
from antiphon.runs.run_copies import copy_files, copy_part, copy_vocabs
from antiphon.runs.run_folder import RunFolder, load_any_network, locked_folder, new_run, refuse_inside
from antiphon.storage.layout import MEMBERS
from antiphon.terminal import count_of
from antiphon.torch_free.vocab import Vocab


def ensemble_runs(runs: Sequence[Path], out: Path, mean: Mean, *, force: bool) -> RunFolder:
    """Writes a run of kind ``ensemble`` that holds copies of its members."""
    folders = open_members(runs)
    recipe = _ensemble_recipe(dict(zip(map(str, runs), folders, strict=True)), mean)
    with new_ensemble(folders, recipe, out, force=force) as run:
        copy_vocabs(folders[0], run)
        copy_files(folders[0], ("rules.tsv",), run.path)
        run.save_metrics({"parameters": count_parameters(load_ensemble(run, recipe))})
    return RunFolder(out)


def load_ensemble(run: RunFolder, recipe: Recipe) -> Ensemble:
    """The members of an ensemble as one model."""
    codec = run.codec(recipe)
    members, ids = [], []
    for name, part in run.parts().items():
        own = part.recipe()
        theirs = part.codec(own)
        members.append(load_any_network(part, own))
        target = _map_same_tokens(codec.target.vocab, theirs.target.vocab, name)
        source, features = map_ids(codec.source.vocab, theirs.source.vocab), map_ids(codec.features, theirs.features)
        ids.append(MemberIds(source, target, features))
    if not members:
        raise RunError(f"{run.path}: no members in it, expected one in {run.path / 'member-1'}")
    return Ensemble(members, ids, recipe.search.ensemble)


def open_members(runs: Sequence[Path]) -> list[RunFolder]:
    """The runs that an ensemble is to be made of."""
    if not 2 <= len(runs) <= len(MEMBERS):
        raise RunError(f"ensemble: {count_of(len(runs), 'run')}, expected 2 to {len(MEMBERS)}")
    return [RunFolder.open(path) for path in runs]


@contextmanager
def new_ensemble(members: Sequence[RunFolder], recipe: Recipe, out: Path, *, force: bool) -> Iterator[RunFolder]:
    """A folder with a recipe and copies of members, which becomes the run ``out`` at the end."""
    refuse_inside(out, members)
    with locked_folder(out), new_run(out, force=force) as run:
        for name, member in zip(MEMBERS, members, strict=False):
            copy_part(member, run.path / name)
        run.save_recipe(recipe)
        yield run


def _ensemble_recipe(folders: dict[str, RunFolder], mean: Mean) -> Recipe:
    """The first member's recipe as that of an ensemble; members that do not fit together are refused by name."""
    recipes = {name: folder.recipe() for name, folder in folders.items()}
    for name, each in recipes.items():
        kind = KINDS[each.model.kind]
        if kind.made_by:
            raise RunError(f"{name}: a run of kind {kind.name}, expected a single model; name its members instead")
        if kind.search is None:
            raise RunError(f"{name}: a run of kind {kind.name}, expected one that predicts token by token")
    first, *others = folders
    recipe, vocab = recipes[first], folders[first].vocab("target")
    for name in others:
        if set(folders[name].vocab("target").tokens) != set(vocab.tokens):
            raise RunError(
                f"{name}: its target vocabulary differs from that of {first}, expected one; see data.vocab_from"
            )
        for key in _TEXT_SETTINGS:
            ours, theirs = (getattr(each.data, key) for each in (recipe, recipes[name]))
            if ours != theirs:
                raise RunError(f"{name}: data.{key} = {theirs}, expected {ours} as in {first}")
    table = recipe.model_dump()
    table["model"] = EnsembleSection()
    weights = [each.search.rule_weight or 0.0 for each in recipes.values()]
    rule_weight = sum(weights) / len(weights) if recipe.search.rule_weight else 0.0
    table["search"] |= {"ensemble": mean, "over": "outputs", "rule_weight": rule_weight}
    return Recipe.model_validate(table)


_TEXT_SETTINGS = (
    *("source_tokens", "target_tokens", "swap", "features"),
    *("nfc", "lowercase", "digits_to_hash", "split_punctuation", "split_hangul"),
)
"""What members of an ensemble must have in common."""


def _map_same_tokens(ours: Vocab, theirs: Vocab, name: str) -> Tensor:
    """The id of each of our tokens in another vocabulary, which must have the same tokens."""
    if set(ours.tokens) != set(theirs.tokens):
        raise RunError(f"{name}: its target vocabulary differs from the ensemble's, expected the same")
    return map_ids(ours, theirs)
