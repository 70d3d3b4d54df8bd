"""Runs whose folder holds copies of other runs: noisy channels and ensembles; and the digest that copies share."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from antiphon.exceptions import RunError
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.recurrent import LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.recipe.kinds import KINDS, Kind
from antiphon.recipe.model_sections import (
    EnsembleSection,
    LanguageModelSection,
    ModelSection,
    NoisyChannelSection,
    TransducerSection,
)
from antiphon.recipe.recipe_file import Settings, as_table, change_search, without_paths
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import SearchSection
from antiphon.runs.build import build_normalisation, count_parameters
from antiphon.runs.run_folder import RunFolder, load_any_network, locked_folder, new_run, refuse_inside
from antiphon.storage.files import digest_file, open_regular
from antiphon.storage.manifest import MEMBERS, PREDICTION_FILES, seal_run
from antiphon.terminal import count_of
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.vocab import SPECIALS, Vocab


@contextmanager
def combined_run(parts: Mapping[str, RunFolder], recipe: Recipe, out: Path, *, force: bool) -> Iterator[RunFolder]:
    """A folder with a recipe and copies of other runs, which becomes the run ``out`` at the end."""
    refuse_inside(out, parts.values())
    for part in parts.values():
        part.metrics()  # damaged ones are refused before anything is written
    with locked_folder(out), new_run(out, force=force) as run:
        for name, part in parts.items():
            copy_part(part, run.path / name)
        run.save_recipe(recipe)
        yield run


def combine_runs(
    direct: Path,
    channel: Path | None,
    language_model: Path | None,
    out: Path,
    search: dict[str, object],
    settings: Settings = (),
    *,
    force: bool,
) -> RunFolder:
    """Writes a run of kind ``noisy_channel`` that holds copies of its parts; ``settings`` are those of ``--set``."""
    runs = {"direct": direct, "channel": channel, "lm": language_model}
    folders = {name: RunFolder.open(path) for name, path in runs.items() if path is not None}
    recipe = _channel_recipe(_part_recipes(folders), search, settings)
    with combined_run(folders, recipe, out, force=force) as run:
        copy_vocabs(folders["direct"], run)
        copy_files(folders["direct"], ("rules.tsv",), run.path)
        run.save_metrics({"parameters": count_parameters(load_noisy_channel(run, recipe))})
    return RunFolder(out)


def load_noisy_channel(run: RunFolder, recipe: Recipe) -> NoisyChannel:
    """The models of a noisy channel; parts that do not fit together are refused by name."""
    parts = run.parts()
    if "direct" not in parts:
        raise RunError(f"{run.path}: no direct model in it, expected one in {run.path / 'direct'}")
    recipes = _part_recipes(parts)
    modules = {name: load_any_network(part, recipes[name]) for name, part in parts.items()}
    codecs = {name: part.codec(recipes[name]) for name, part in parts.items()}
    direct = codecs["direct"]
    if run.codec(recipe).vocabs != direct.vocabs:
        raise RunError(f"{run.path}: its vocabularies differ from those of its direct model, expected the same")
    # A missing part has the ids of the direct model.
    channel = codecs.get("channel", PairCodec(direct.target, direct.source, direct.features))
    language = codecs.get("lm", PairCodec(direct.source, direct.target))
    inputs, outputs = direct.source.vocab, direct.target.vocab
    return NoisyChannel(
        modules["direct"],
        cast(Transducer | None, modules.get("channel")),
        cast(LanguageModel | None, modules.get("lm")),
        output_in_channel=_map_all(outputs, channel.source.vocab, "channel", "output"),
        input_in_channel=_map_all(inputs, channel.target.vocab, "channel", "input"),
        output_in_language_model=_map_all(outputs, language.target.vocab, "language", "output"),
        features_in_channel=_map_all(direct.features, channel.features, "channel", "feature"),
        features_in_language_model=map_ids(direct.features, language.features),
        weights=Weights(*recipe.search.weights),
    )


def _part_recipes(parts: dict[str, RunFolder]) -> dict[str, Recipe]:
    """The recipe of each part; parts that do not fit together are refused by name."""
    recipes = {name: part.recipe() for name, part in parts.items()}
    _check_kinds(parts, recipes)
    _check_tokens(recipes)
    return recipes


def _channel_recipe(parts: dict[str, Recipe], search: dict[str, object], settings: Settings) -> Recipe:
    """The direct model's recipe as that of a noisy channel, which searches over outputs; missing parts get weight 0."""
    given = {name: value for name, value in search.items() if value is not None}
    table = parts["direct"].model_dump()
    table["model"] = NoisyChannelSection()
    table["search"] |= {"over": "outputs", "weights": SearchSection().weights} | given
    recipe = change_search(Recipe.model_validate(table), settings)
    is_there = (True, "channel" in parts, "lm" in parts, True)
    weights = tuple(weight * there for weight, there in zip(recipe.search.weights, is_there, strict=True))
    return recipe.model_copy(update={"search": recipe.search.model_copy(update={"weights": weights})})


_PART_KINDS: dict[str, tuple[type[ModelSection], ...]] = {
    "direct": (TransducerSection, EnsembleSection),
    "channel": (TransducerSection,),
    "lm": (LanguageModelSection,),
}
"""What each part of a noisy channel can be."""


def _check_kinds(parts: dict[str, RunFolder], recipes: dict[str, Recipe]) -> None:
    """Refuses parts of a wrong kind, and an ensemble that does not know how far it has read."""
    for name, part in parts.items():
        model, expected = recipes[name].model, _PART_KINDS[name]
        if not isinstance(model, expected):
            first = expected[0].model_fields["kind"].default
            raise RunError(f"{name}: a run of kind {model.kind}, expected a {first}")
        members = [member.recipe().model for member in part.parts().values()]
        if isinstance(model, EnsembleSection) and not any(isinstance(each, TransducerSection) for each in members):
            raise RunError(f"{name}: an ensemble without a transducer, expected one that knows how far it has read")
    if "channel" in recipes:
        _check_channel(recipes["channel"], recipes["direct"])


def _check_channel(channel: Recipe, direct: Recipe) -> None:
    """Refuses a channel that does not read from the left, or maps what the direct model does not."""
    if not isinstance(channel.model, TransducerSection) or channel.model.encoder != "unidirectional":
        raise RunError("channel: a bidirectional encoder, expected one trained with model.encoder=unidirectional")
    if channel.model.copy_words:
        raise RunError("channel: copies words, expected one trained with model.copy_words=false")
    if channel.data.swap == direct.data.swap:
        raise RunError("channel: maps in the same direction as the direct model, expected data.swap the other way")
    if channel.data.features != direct.data.features:
        raise RunError(
            "channel: reads features and the direct model does not, or the reverse, expected both to read them, or none"
        )


def _check_tokens(recipes: dict[str, Recipe]) -> None:
    """Refuses parts that tokenise inputs or outputs differently."""
    direct = recipes["direct"].data
    ours = token_kinds(direct)
    expected = {"channel": {"source": ours["target"], "target": ours["source"]}, "lm": {"target": ours["target"]}}
    for name, recipe in recipes.items():
        if build_normalisation(recipe.data) != build_normalisation(direct):
            raise RunError(
                f"{name}: different normalisation ({build_normalisation(recipe.data)}), expected that of the direct "
                "model"
            )
        found = token_kinds(recipe.data)
        for side, kind in expected.get(name, {}).items():
            if found[side] != kind:
                raise RunError(f"{name}: {found[side]} as {side} tokens, expected {kind} as in the direct model")


def _map_all(ours: Vocab, theirs: Vocab, name: str, what: str) -> Tensor:
    """The id of each of our tokens in another vocabulary, which must have all of them."""
    missing = [token for token in ours.tokens[len(SPECIALS) :] if token not in theirs]
    if missing:
        shown = ", ".join(repr(token) for token in missing[:3])
        raise RunError(
            f"{name} model: {len(missing)} {what} tokens of the direct model are not in its vocabulary ({shown}), "
            "expected models trained with one vocabulary; see data.vocab_from"
        )
    return map_ids(ours, theirs)


def map_ids(ours: Vocab, theirs: Vocab) -> Tensor:
    """The id of each of our tokens in another vocabulary; unknown if it is missing there."""
    return torch.from_numpy(ours.ids_in(theirs))


_TEXT_SETTINGS = (
    *("source_tokens", "target_tokens", "swap", "features"),
    *("nfc", "lowercase", "digits_to_hash", "split_punctuation", "split_hangul"),
)
"""What members of an ensemble must have in common."""


def ensemble_runs(runs: Sequence[Path], out: Path, *, force: bool) -> RunFolder:
    """Writes a run of kind ``ensemble`` that holds copies of its members."""
    folders = open_members(runs)
    recipe = _ensemble_recipe(dict(zip(map(str, runs), folders, strict=True)))
    with combined_run(dict(zip(MEMBERS, folders, strict=False)), recipe, out, force=force) as run:
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
        if set(codec.target.vocab.tokens) != set(theirs.target.vocab.tokens):
            raise RunError(f"{name}: its target vocabulary differs from the ensemble's, expected the same")
        ids.append(MemberIds(*map(map_ids, codec.vocabs, theirs.vocabs)))
    if not members:
        raise RunError(f"{run.path}: no members in it, expected one in {run.path / 'member-1'}")
    return Ensemble(members, ids)


def open_members(runs: Sequence[Path]) -> list[RunFolder]:
    """The runs that an ensemble is to be made of."""
    if not 2 <= len(runs) <= len(MEMBERS):
        raise RunError(f"ensemble: {count_of(len(runs), 'run')}, expected 2 to {len(MEMBERS)}")
    return [RunFolder.open(path) for path in runs]


def check_member_kind(name: str, kind: Kind) -> None:
    """Refuses a kind that no ensemble can have as a member."""
    if kind.search is None:
        raise RunError(f"{name}: a run of kind {kind.name}, expected one that predicts token by token")


def _ensemble_recipe(folders: dict[str, RunFolder]) -> Recipe:
    """The first member's recipe as that of an ensemble; members that do not fit together are refused by name."""
    recipes = {name: folder.recipe() for name, folder in folders.items()}
    for name, each in recipes.items():
        kind = KINDS[each.model.kind]
        if kind.made_by:
            raise RunError(f"{name}: a run of kind {kind.name}, expected a single model; name its members instead")
        check_member_kind(name, kind)
    first, *others = folders
    recipe, tokens = recipes[first], set(folders[first].vocab("target").tokens)
    for name in others:
        if set(folders[name].vocab("target").tokens) != tokens:
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
    table["search"] |= {"over": "outputs", "rule_weight": rule_weight}
    return Recipe.model_validate(table)


def copy_run(run: RunFolder, target: Path) -> None:
    """Copies the files of a run, and of its parts, that prediction needs; no path of their data is in the copy."""
    copy_files(run, PREDICTION_FILES, target)
    for name, part in run.parts().items():
        copy_run(part, target / name)
    RunFolder(target).save_recipe(without_paths(run.recipe()))
    seal_run(target)


def copy_part(run: RunFolder, target: Path) -> None:
    """Copies a run that becomes a part of another one; without weights it is refused."""
    if not run.parts():
        run.trained_weights()
    copy_run(run, target)


def copy_vocabs(run: RunFolder, target: RunFolder) -> None:
    """Copies the vocabularies and SentencePiece models of a run."""
    copy_files(run, ("source.vocab", "target.vocab", "features.vocab", "source.spm", "target.spm"), target.path)


def copy_files(run: RunFolder, names: Sequence[str], target: Path) -> None:
    """Copies those of the named files that a run has."""
    for name in names:
        if run.file(name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with open_regular(run.file(name)) as content, (target / name).open("wb") as copy:
                shutil.copyfileobj(content, copy)


def run_digest(run: RunFolder) -> str:
    """SHA-256 of all that outputs depend on: the same for a run and its copies.

    That is the bytes of files, and the recipe without its paths.
    """
    names = [name for name in PREDICTION_FILES if name not in ("recipe.toml", "metrics.json")]
    about = {
        "recipe": as_table(without_paths(run.recipe())),
        "files": {name: digest_file(run.file(name)).sha256 for name in names if run.file(name).exists()},
        "parts": {name: run_digest(part) for name, part in run.parts().items()},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
