"""Noisy channels and ensembles: runs made of other runs, in one folder that holds copies of them."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from antiphon.data.codec import NO_FEATURES
from antiphon.data.vocab import SPECIALS, Vocab
from antiphon.exceptions import RunError
from antiphon.models.channel_weights import Weights
from antiphon.models.ensemble_model import Ensemble, Mean, MemberIds
from antiphon.models.language_model import LanguageModel
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import Transducer
from antiphon.recipe.kinds import KINDS, resolve
from antiphon.recipe.model_sections import (
    EnsembleSection,
    LanguageModelSection,
    ModelSection,
    NoisyChannelSection,
    TransducerSection,
)
from antiphon.recipe.recipe_paths import without_paths
from antiphon.recipe.schema import Recipe, SearchSection
from antiphon.runs.build import build_normalisation, count_parameters
from antiphon.runs.run_folder import RunFolder, locked_folder, new_run, token_kinds
from antiphon.storage.commit import seal_run
from antiphon.storage.layout import KEPT_FILES, MEMBERS
from antiphon.terminal import count_of


def combine_runs(
    direct: Path,
    channel: Path | None,
    language_model: Path | None,
    out: Path,
    search: dict[str, object],
    *,
    force: bool,
) -> RunFolder:
    """Writes a run of kind ``noisy_channel`` that holds copies of its parts."""
    runs = {"direct": direct, "channel": channel, "lm": language_model}
    folders = {name: RunFolder.open(path) for name, path in runs.items() if path is not None}
    recipe = _combined_recipe(folders, search)
    with locked_folder(out), new_run(out, force=force) as run:
        for name, folder in folders.items():
            copy_run(folder, run.path / name)
        copy_vocabs(folders["direct"], run)
        run.save_recipe(recipe)
        combined = load_combination(run, recipe)
        run.save_metrics({"parameters": count_parameters(combined)})
    return RunFolder(out)


def copy_run(run: RunFolder, target: Path) -> None:
    """Copies the files of a run, and of its parts, that prediction needs; no path of their data is in the copy."""
    copy_files(run, KEPT_FILES, target)
    for name, part in run.parts().items():
        copy_run(part, target / name)
    RunFolder(target).save_recipe(without_paths(run.recipe()))
    seal_run(target)


def copy_vocabs(run: RunFolder, target: RunFolder) -> None:
    """Copies the vocabularies and SentencePiece models of a run."""
    copy_files(run, ("source.vocab", "target.vocab", "features.vocab", "source.spm", "target.spm"), target.path)


def load_combination(run: RunFolder, recipe: Recipe) -> NoisyChannel:
    """The models of a combined run; parts that do not fit together are refused by name."""
    parts = run.parts()
    if "direct" not in parts:
        raise RunError(f"{run.path}: no direct model in it, expected one in {run.path / 'direct'}")
    _check_kinds(parts)
    _check_tokens(parts)
    modules = {name: load_part(part, part.recipe()) for name, part in parts.items()}
    codecs = {name: part.codec(part.recipe()) for name, part in parts.items()}
    vocabs = {name: (codec.source.vocab, codec.target.vocab) for name, codec in codecs.items()}
    inputs, outputs = vocabs["direct"]
    ours = run.codec(recipe)
    if (ours.source.vocab, ours.target.vocab, ours.features) != (inputs, outputs, codecs["direct"].features):
        raise RunError(f"{run.path}: its vocabularies differ from those of its direct model, expected the same")
    nothing = Vocab(())
    known = {name: codec.features for name, codec in codecs.items()}
    features = known["direct"]
    return NoisyChannel(
        modules["direct"],
        cast(Transducer | None, modules.get("channel")),
        cast(LanguageModel | None, modules.get("lm")),
        output_in_channel=_numbers(outputs, vocabs.get("channel", (outputs, nothing))[0], "channel", "output"),
        input_in_channel=_numbers(inputs, vocabs.get("channel", (nothing, inputs))[1], "channel", "input"),
        output_in_language_model=_numbers(outputs, vocabs.get("lm", (nothing, outputs))[1], "language", "output"),
        features_in_channel=_numbers(features, known.get("channel", features), "channel", "feature"),
        features_in_language_model=_ids(features, known.get("lm", NO_FEATURES)),
        weights=Weights(*recipe.search.weights),
        reading=recipe.search.channel_prefix,
    )


def load_part(run: RunFolder, recipe: Recipe) -> nn.Module:
    """The network of a run, which may be part of another: a single one, or a combination."""
    module: nn.Module = resolve(KINDS[recipe.model.kind].load)(run, recipe)
    return module


def load_ensemble(run: RunFolder, recipe: Recipe) -> Ensemble:
    """The members of an ensemble as one model."""
    codec = run.codec(recipe)
    members, ids = [], []
    for name, part in run.parts().items():
        theirs = part.codec(part.recipe())
        members.append(load_part(part, part.recipe()))
        target = _same_ids(codec.target.vocab, theirs.target.vocab, name)
        source, features = _ids(codec.source.vocab, theirs.source.vocab), _ids(codec.features, theirs.features)
        ids.append(MemberIds(source, target, features))
    if not members:
        raise RunError(f"{run.path}: no members in it, expected one in {run.path / 'member-1'}")
    return Ensemble(members, ids, recipe.search.ensemble)


def ensemble_runs(runs: Sequence[Path], out: Path, mean: Mean, *, force: bool) -> RunFolder:
    """Writes a run of kind ``ensemble`` that holds copies of its members."""
    folders = open_members(runs)
    recipe = _ensemble_recipe(dict(zip(map(str, runs), folders, strict=True)), mean)
    with new_ensemble(folders, recipe, out, force=force) as run:
        copy_vocabs(folders[0], run)
        copy_files(folders[0], ("rules.tsv",), run.path)
        run.save_metrics({"parameters": count_parameters(load_ensemble(run, recipe))})
    return RunFolder(out)


def open_members(runs: Sequence[Path]) -> list[RunFolder]:
    """The runs that an ensemble is to be made of."""
    if not 2 <= len(runs) <= len(MEMBERS):
        raise RunError(f"ensemble: {count_of(len(runs), 'run')}, expected 2 to {len(MEMBERS)}")
    return [RunFolder.open(path) for path in runs]


@contextmanager
def new_ensemble(members: Sequence[RunFolder], recipe: Recipe, out: Path, *, force: bool) -> Iterator[RunFolder]:
    """A folder with a recipe and copies of members, which becomes the run ``out`` at the end."""
    with locked_folder(out), new_run(out, force=force) as run:
        for name, member in zip(MEMBERS, members, strict=False):
            copy_run(member, run.path / name)
        run.save_recipe(recipe)
        yield run


def _ensemble_recipe(folders: dict[str, RunFolder], mean: Mean) -> Recipe:
    """The first member's recipe as that of an ensemble; members that do not fit together are refused by name."""
    (first_name, first), *others = folders.items()
    recipe, vocab = first.recipe(), first.vocab("target")
    for name, folder in folders.items():
        kind = KINDS[folder.recipe().model.kind]
        if kind.search is None or "rescoring" in kind.uses:
            raise RunError(f"{name}: a run of kind {kind.name}, expected one that predicts token by token")
    for name, folder in others:
        if set(folder.vocab("target").tokens) != set(vocab.tokens):
            raise RunError(
                f"{name}: its target vocabulary differs from that of {first_name}, expected one; see data.vocab_from"
            )
        for key in _TEXT_SETTINGS:
            ours, theirs = (getattr(each.data, key) for each in (recipe, folder.recipe()))
            if ours != theirs:
                raise RunError(f"{name}: data.{key} = {theirs}, expected {ours} as in {first_name}")
    table = recipe.model_dump()
    table["model"] = EnsembleSection()
    weights = [folder.recipe().search.rule_weight or 0.0 for folder in folders.values()]
    rule_weight = sum(weights) / len(weights) if recipe.search.rule_weight else 0.0
    table["search"] |= {"ensemble": mean, "over": "outputs", "rule_weight": rule_weight}
    return Recipe.model_validate(table)


_TEXT_SETTINGS = (
    *("source_tokens", "target_tokens", "swap", "features"),
    *("nfc", "lowercase", "digits_to_hash", "split_punctuation", "split_hangul"),
)
"""What members of an ensemble must have in common."""


def _combined_recipe(folders: dict[str, RunFolder], search: dict[str, object]) -> Recipe:
    """The direct model's recipe as that of a noisy channel; missing parts get weight 0."""
    recipe = folders["direct"].recipe()
    given = {name: value for name, value in search.items() if value is not None}
    weights = list(cast(tuple[float, ...], given.get("weights", SearchSection().weights)))
    for index, name in ((1, "channel"), (2, "lm")):
        if name not in folders:
            weights[index] = 0.0
    table = recipe.model_dump()
    table["model"] = NoisyChannelSection()
    table["search"] |= given | {"weights": tuple(weights), "rule_weight": 0.0}
    return Recipe.model_validate(table)


def copy_files(run: RunFolder, names: Sequence[str], target: Path) -> None:
    """Copies those of the named files that a run has."""
    for name in names:
        if run.file(name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run.file(name), target / name, follow_symlinks=False)


_PART_KINDS: dict[str, tuple[type[ModelSection], ...]] = {
    "direct": (TransducerSection, EnsembleSection),
    "channel": (TransducerSection,),
    "lm": (LanguageModelSection,),
}
"""What each part of a noisy channel can be."""


def _check_kinds(parts: dict[str, RunFolder]) -> None:
    """Refuses parts of a wrong kind, and an ensemble that does not know how far it has read."""
    for name, part in parts.items():
        model, expected = part.recipe().model, _PART_KINDS[name]
        if not isinstance(model, expected):
            first = expected[0].model_fields["kind"].default
            raise RunError(f"{name}: a run of kind {model.kind}, expected a {first}")
        members = [member.recipe().model for member in part.parts().values()]
        if isinstance(model, EnsembleSection) and not any(isinstance(each, TransducerSection) for each in members):
            raise RunError(f"{name}: an ensemble without a transducer, expected one that knows how far it has read")
    if "channel" in parts:
        _check_channel(parts["channel"].recipe(), parts["direct"].recipe())


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


def _check_tokens(parts: dict[str, RunFolder]) -> None:
    """Refuses parts that tokenise inputs or outputs differently."""
    direct = parts["direct"].recipe().data
    (_, inputs), (_, outputs) = token_kinds(direct)
    sides = {"channel": (("source", outputs), ("target", inputs)), "lm": (("target", outputs),)}
    for name, part in parts.items():
        data = part.recipe().data
        if build_normalisation(data) != build_normalisation(direct):
            raise RunError(
                f"{name}: different normalisation ({build_normalisation(data)}), expected those of the direct model"
            )
        kinds = dict(token_kinds(data))
        for side, kind in sides.get(name, ()):
            if kinds[side] != kind:
                raise RunError(f"{name}: {kinds[side]} as {side} tokens, expected {kind} as in the direct model")


def _numbers(ours: Vocab, theirs: Vocab, name: str, what: str) -> Tensor:
    """The id of each of our tokens in another vocabulary, which must have all of them."""
    missing = [token for token in ours.tokens[len(SPECIALS) :] if token not in theirs]
    if missing:
        shown = ", ".join(repr(token) for token in missing[:3])
        raise RunError(
            f"{name} model: {len(missing)} {what} tokens of the direct model are not in its vocabulary ({shown}), "
            "expected models trained with one vocabulary; see data.vocab_from"
        )
    return _ids(ours, theirs)


def _ids(ours: Vocab, theirs: Vocab) -> Tensor:
    """The id of each of our tokens in another vocabulary; unknown if it is missing there."""
    return torch.from_numpy(ours.ids_in(theirs))


def _same_ids(ours: Vocab, theirs: Vocab, name: str) -> Tensor:
    """The same for vocabularies of the same tokens."""
    if set(ours.tokens) != set(theirs.tokens):
        raise RunError(f"{name}: its target vocabulary differs from the ensemble's, expected the same")
    return _ids(ours, theirs)
