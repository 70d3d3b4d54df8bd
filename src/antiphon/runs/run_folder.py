"""Run folders: the files of a trained model, and how they are read without executing anything.

manifest.json        format version, and size and SHA-256 of every file below; all are checked when a run is opened
recipe.toml          every setting
source.vocab         one token per line; also target.vocab, and features.vocab if there are features
source.spm           SentencePiece model, if one is used; also target.spm
model.safetensors    the best weights so far; suffix rules are in rules.tsv instead
words.vocab          words for answer selection, whose vectors are in vectors.safetensors
overlap.tsv          number of sentences with each word; logistic.json weights shared words
metrics.json         how training went
log.csv              one row per epoch, drawn in training.png
last.ckpt            checkpoint to resume training from
direct/ channel/ lm/ the runs that a noisy channel is made of
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.exceptions import RunError, is_disk_full
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import TransducerSection
from antiphon.recipe.recipe_file import parse_recipe, parse_toml, paths_in_run, save_recipe
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import TokenKind
from antiphon.storage.files import STAGED, final_location, locked, read_regular, resolved
from antiphon.storage.manifest import (
    LITE_SETTINGS,
    MANIFEST,
    PARTS,
    changed_run,
    check_new_run,
    commit_new_run,
    holds_run,
    read_verified,
    staged_folder,
    staging_folder,
)
from antiphon.torch_free.codec import (
    NO_FEATURES,
    PairCodec,
    PairTokeniser,
    TextCodec,
    TextTokeniser,
    open_tokeniser,
)
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.vocab import Vocab

if TYPE_CHECKING:  # PyTorch, which takes seconds to import, only where a network is made
    from torch import Tensor, nn

_SHIPPED = Path(__file__).parent / "shipped"
"""Runs that come with the package."""
_EXPORTED = Path(__file__).parents[1] / "lite" / "shipped"
"""Exported runs that come with the package; most have no weights for PyTorch."""


class Shipped(NamedTuple):
    """What a run that comes with the package is for, and how good it is, in a sentence; inputs to try."""

    about: str
    examples: tuple[str, ...]


_ABOUT = {
    "en-stream": Shipped(
        "English words to phonemes (ARPAbet, stress); 43 % of new words right",
        ("knight", "elephant", "daylight", "quixotic"),
    )
}
_COUNTS = ("best_epoch", "epochs", "training_seconds", "pairs_per_second")
"""Numbers among the metrics of a trained run."""
_MAX_BYTES = 2**24
"""Far larger than any recipe, and the metrics of any run."""
_RUNS_SHOWN = 5
"""Runs that a message names."""


def shipped_runs() -> list[str]:
    """The names of the runs that come with the package."""
    return sorted(path.name for path in _SHIPPED.iterdir())


def is_exported(path: Path) -> bool:
    """Whether a path is that of an exported run, or the name of a shipped one that is no run."""
    if path.exists():
        return (path / LITE_SETTINGS).is_file() and not holds_run(path)
    return path.name == str(path) and (_EXPORTED / path).is_dir() and str(path) not in shipped_runs()


class RunFolder:
    """Paths and contents of one run.

    If a change was committed and interrupted, ``staged`` is a folder with files of the run that are still to be moved
    into place, and ``removed`` are files that no longer belong to it.
    """

    def __init__(self, path: Path, staged: Path | None = None, removed: Collection[str] = ()) -> None:
        self.path, self._staged, self._removed = path, staged, removed
        self.weights = self.file("model.safetensors")
        self.rules = self.file("rules.tsv")
        self.words = self.file("words.vocab")
        self.vectors = self.file("vectors.safetensors")
        self.overlap = self.file("overlap.tsv")
        self.logistic = self.file("logistic.json")
        self.checkpoint = self.file("last.ckpt")
        self.log = self.file("log.csv")
        self.plot = self.file("training.png")

    @classmethod
    def open(cls, path: Path, *, checkpoint: bool = False) -> "RunFolder":
        """The run in a folder, or the one of a shipped name, after every file has been verified.

        The checkpoint, which only training reads, is verified if it is asked for.
        """
        if path.is_file():
            raise RunError(f"{path}: a file, expected a run folder")
        if str(path) in shipped_runs() and not path.exists():
            path = _SHIPPED / path
        if is_exported(path):
            runs = "" if path.exists() else f"; a run that comes with the package: {', '.join(shipped_runs())}"
            raise RunError(
                f"{path}: an exported run, expected a run folder; antiphon predict {path} FILE predicts with it, and "
                f'antiphon.lite.load("{path}") in Python{runs}'
            )
        if not path.exists():
            raise RunError(f"{path}: no such folder, expected a run folder")
        if not holds_run(path):
            raise RunError(f"{path}: not a run folder, expected one with a {MANIFEST} in it{_runs_inside(path)}")
        manifest = read_verified(path, checkpoint=checkpoint)
        if manifest.removed is None:
            return cls(path)
        return cls(path, staged=staged_folder(path) or path / STAGED, removed=manifest.removed)

    def file(self, name: str) -> Path:
        """Where a file of the run is."""
        if self._staged is not None and (name in self._removed or (self._staged / name).exists()):
            return self._staged / name
        return self.path / name

    @property
    def shipped(self) -> Shipped | None:
        """What the run is, if it comes with the package."""
        return _ABOUT.get(self.path.name) if self.path.parent == _SHIPPED else None

    def parts(self) -> dict[str, "RunFolder"]:
        """The runs that a noisy channel or an ensemble is made of."""
        parts = {name: self._part(name) for name in PARTS}
        return {name: part for name, part in parts.items() if part.file("recipe.toml").exists()}

    def _part(self, name: str) -> "RunFolder":
        removed = [each.removeprefix(f"{name}/") for each in self._removed if each.startswith(f"{name}/")]
        return RunFolder(self.path / name, self._staged and self._staged / name, removed)

    @contextmanager
    def changed(self, remove: Iterable[str] = ()) -> Iterator["RunFolder"]:
        """An empty folder; the files saved into it become part of this run at the end, all or none.

        Files named in ``remove`` are deleted in the same change. The caller must hold the run's lock.
        """
        with changed_run(self.path, remove) as stage:
            yield RunFolder(stage)

    def recipe(self) -> Recipe:
        """The run's settings."""
        path = self.file("recipe.toml")
        try:
            table = parse_toml(read_regular(path, _MAX_BYTES))
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error}), expected the recipe of a run") from None
        missing = [section for section in Recipe.model_fields if section not in table]
        if missing:
            raise RunError(f"{path}: damaged (no section [{missing[0]}]), expected the recipe of a run")
        paths_in_run(table, final_location(self.path))
        return parse_recipe(table, str(path))

    def save_recipe(self, recipe: Recipe) -> None:
        """Writes the run's settings, with paths relative to the place that the run folder will have."""
        save_recipe(recipe, self.path / "recipe.toml", final_location(self.path))

    def save_vocabs(self, source: Vocab, target: Vocab, features: Vocab = NO_FEATURES) -> None:
        """Writes the vocabularies; that of features only if there are any."""
        source.save(self.path / "source.vocab")
        target.save(self.path / "target.vocab")
        if features != NO_FEATURES:
            features.save(self.path / "features.vocab")

    def pair_tokeniser(self, recipe: Recipe) -> PairTokeniser:
        """Text to tokens, before the run has vocabularies."""
        from antiphon.runs.build import build_normalisation

        steps, kinds = build_normalisation(recipe.data), self.token_kinds(recipe)
        tokenisers = (open_tokeniser(kind, self.sentencepiece_path(side)) for side, kind in kinds.items())
        return PairTokeniser(*(TextTokeniser(steps, tokeniser) for tokeniser in tokenisers))

    def token_kinds(self, recipe: Recipe) -> dict[str, TokenKind]:
        """The kind of token of each side; the source of a language model, which is empty, needs no SentencePiece."""
        kinds = token_kinds(recipe.data)
        is_empty = not KINDS[recipe.model.kind].reads_source and not self.sentencepiece_path("source").exists()
        if kinds["source"] == "sentencepiece" and is_empty:
            kinds["source"] = "words"
        return kinds

    def codec(self, recipe: Recipe) -> PairCodec:
        """Text to ids and back, as the run was trained."""
        pair = self.pair_tokeniser(recipe)
        source = TextCodec(pair.source.normalisation, pair.source.tokeniser, self.vocab("source"))
        target = TextCodec(pair.target.normalisation, pair.target.tokeniser, self.vocab("target"))
        features = self.vocab("features") if self.file("features.vocab").exists() else NO_FEATURES
        return PairCodec(source, target, features, self._copies_words(recipe))

    def _copies_words(self, recipe: Recipe) -> bool:
        """Whether the model of the run, or one of its parts, copies words."""
        if isinstance(recipe.model, TransducerSection):
            return bool(recipe.model.copy_words)
        return any(part._copies_words(part.recipe()) for part in self.parts().values())

    def sentencepiece_path(self, side: str) -> Path:
        """Where a side keeps its SentencePiece model."""
        return self.file(f"{side}.spm")

    def save_weights(self, weights: "Mapping[str, Tensor]") -> None:
        """Writes the weights."""
        from antiphon.storage.tensors import save_tensors

        save_tensors(weights, self.weights)

    def trained_weights(self) -> Path:
        """The file of the best weights; an error if there is none yet."""
        if not self.weights.is_file():
            raise RunError(f"{self.path}: no model.safetensors yet, expected a run that finished at least one epoch")
        return self.weights

    def load_rules(self) -> SuffixRules:
        """The suffix rules."""
        if not self.rules.is_file():
            raise RunError(
                f"{self.rules}: missing, expected the suffix rules of the run; without them search.rule_weight is 0"
            )
        return SuffixRules.load(self.rules)

    def save_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Writes how training went."""
        text = json.dumps(metrics, indent=2, ensure_ascii=False)
        (self.path / "metrics.json").write_text(text + "\n", encoding="utf-8")

    def metrics(self) -> dict[str, Any]:
        """How training went; empty while it has not ended."""
        path = self.file("metrics.json")
        if not path.is_file():
            return {}
        try:
            metrics = json.loads(read_regular(path, _MAX_BYTES))
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}: damaged ({error}), expected JSON") from None
        if not isinstance(metrics, dict):
            raise RunError(f"{path}: not a JSON object, expected the metrics of a run")
        for name, value in metrics.items():
            if (name in _COUNTS or name.startswith("dev_")) and type(value) not in (int, float):
                raise RunError(f"{path}: {name} is no number, expected the metrics of a run")
        return metrics

    def training_metrics(self, dev_metric: str) -> dict[str, Any]:
        """The metrics of a run whose training has ended."""
        metrics = self.metrics()
        for name in (*_COUNTS, f"dev_{dev_metric}"):
            if name not in metrics:
                raise RunError(f"{self.file('metrics.json')}: {name} is missing, expected the metrics of a trained run")
        return metrics

    def state(self) -> str:
        """How far training has come."""
        if self.metrics():
            return "trained"
        if self.checkpoint.exists():
            return "in training, or stopped: continue with --resume"
        return "stopped before its training ended" if self.weights.exists() else "no epoch finished yet"

    def vocabulary_sizes(self) -> dict[str, int]:
        """How many tokens each vocabulary of the run has."""
        sides = ("source", "target", "features", "words")
        return {side: len(self.vocab(side)) for side in sides if self.file(f"{side}.vocab").exists()}

    def vocab(self, side: str) -> Vocab:
        """The vocabulary of the source, the target or the features, or the words for answer selection."""
        path = self.file(f"{side}.vocab")
        if not path.is_file():
            raise RunError(f"{path}: missing, expected the vocabulary of a run")
        return Vocab.load(path)


def load_network(run: RunFolder, recipe: Recipe) -> "nn.Module":
    """The trained network of a run that has one, ready to use."""
    from antiphon.runs.build import build_model
    from antiphon.storage.tensors import load_into

    codec = run.codec(recipe)
    return load_into(lambda: build_model(recipe.model, codec), run.trained_weights(), recipe.model.depth)


def load_any_network(run: RunFolder, recipe: Recipe) -> "nn.Module":
    """The network of a run of any kind: a single one, or one that is made of several runs."""
    return KINDS[recipe.model.kind].load()(run, recipe)


def widest_layer(run: RunFolder) -> int:
    """Units of the widest layer of a run, or of the runs that it is made of."""
    return max([run.recipe().model.width, *(widest_layer(part) for part in run.parts().values())])


@contextmanager
def open_for_writing(path: Path) -> Iterator[RunFolder]:
    """The run in a folder, verified and locked against other writers; its first change finishes an interrupted one."""
    if not holds_run(path):
        RunFolder.open(path)
    with locked_folder(path):
        yield RunFolder.open(path)


def _runs_inside(folder: Path) -> str:
    """Names the runs in a folder that is none itself, for a message."""
    folders = folder.iterdir() if folder.is_dir() else ()
    inside = sorted(str(each) for each in folders if each.is_dir() and holds_run(each))
    more = ", ..." if len(inside) > _RUNS_SHOWN else ""
    return f"; runs in it: {', '.join(inside[:_RUNS_SHOWN])}{more}" if inside else ""


def refuse_inside(out: Path, runs: Iterable[RunFolder]) -> None:
    """Refuses an output that would be written into one of the runs that it is made of."""
    for run in runs:
        if run.path.resolve() in (resolved(out), *resolved(out).parents):
            raise RunError(f"{out}: in the run itself, expected another --out")


@contextmanager
def locked_folder(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Locks a folder for writing; ``wait`` waits for other processes. A full disk inside is one sentence."""
    try:
        with locked(path, wait=wait):
            yield
    except OSError as error:
        if is_disk_full(error):
            place = final_location(Path(os.fsdecode(error.filename or path)))
            shown = path if path.absolute() in (place, *place.parents) else place
            raise RunError(
                f"{shown}: the disk is full; nothing is lost, make room and give the command again"
            ) from error
        raise


@contextmanager
def new_run(path: Path, *, force: bool = False) -> Iterator[RunFolder]:
    """An empty run folder inside ``path`` whose files become the run in ``path`` at the end, all at once.

    If preparing it fails, nothing has changed. A run that is in ``path`` already is refused, or with ``force`` replaced
    at the end; other files there stay. The caller must hold the folder's lock.
    """
    with waiting_run(path, force=force) as run:
        yield run
        publish(run, path)


@contextmanager
def waiting_run(path: Path, *, force: bool = False) -> Iterator[RunFolder]:
    """An empty run folder inside ``path``, in which a new run is trained until ``publish`` puts it in its place.

    Until then a run in ``path`` stays, if ``force`` allows to replace it. The caller must hold the folder's lock.
    """
    check_new_run(path, force=force)
    with staging_folder(path) as stage:
        yield RunFolder(stage)


def publish(waiting: RunFolder, path: Path) -> RunFolder:
    """Makes a run that has waited inside ``path`` the run in ``path``."""
    commit_new_run(path, waiting.path)
    return RunFolder(path)
