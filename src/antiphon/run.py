"""Run folders: what a trained model leaves on disk, and how it is read back without executing anything.

recipe.toml          every setting
source.vocab         one token per line; also target.vocab
source.spm           SentencePiece model, where one is used; also target.spm
model.safetensors    the best weights so far; suffix rules are in rules.tsv instead
words.vocab          words of a matcher, whose vectors are in vectors.safetensors
encoder/             sizes and word pieces of a pretrained sentence encoder
overlap.tsv          in how many sentences each word stands; logistic.json weighs words in common
metrics.json         how training went
log.csv              one row per epoch, drawn in training.png
last.ckpt            all that is needed to go on training
direct/ channel/ lm/ the runs that a noisy channel is made of
corpus/              encoded corpora, until training ends; with data.cache they are there instead
"""

import json
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from antiphon.build import build_model, build_text_steps
from antiphon.config import DataSection, Recipe, TokenKind, parse_recipe, save_recipe
from antiphon.data.codec import PairCodec, PairCutter, TextCodec, TextCutter
from antiphon.data.tokenise import Chars, SentencePiece, Tokeniser, Words
from antiphon.data.vocab import Vocab
from antiphon.errors import RunError
from antiphon.models.suffix_rule import SuffixRules

KEPT_FILES = (
    "recipe.toml",
    "source.vocab",
    "target.vocab",
    "source.spm",
    "target.spm",
    "model.safetensors",
    "rules.tsv",
    "words.vocab",
    "vectors.safetensors",
    "overlap.tsv",
    "logistic.json",
    "metrics.json",
)
"""What a finished run is made of."""

_FILES = (
    *KEPT_FILES,
    "log.csv",
    "training.png",
    "last.ckpt",
    "corpus",
    "encoder",
    "direct",
    "channel",
    "lm",
)


class RunFolder:
    """Paths and contents of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path / "model.safetensors"
        self.rules = path / "rules.tsv"
        self.words = path / "words.vocab"
        self.vectors = path / "vectors.safetensors"
        self.encoder = path / "encoder"
        self.overlap = path / "overlap.tsv"
        self.logistic = path / "logistic.json"
        self.checkpoint = path / "last.ckpt"
        self.log = path / "log.csv"
        self.plot = path / "training.png"
        self.corpus = path / "corpus"

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A folder that holds a run."""
        if not path.exists():
            raise RunError(f"{path}: no such folder, expected a run folder")
        if not (path / "recipe.toml").is_file():
            raise RunError(f"{path}: no run folder, expected one with a recipe.toml in it")
        return cls(path)

    def recipe(self) -> Recipe:
        """The run's settings."""
        path = self.path / "recipe.toml"
        try:
            return parse_recipe(_completed(tomllib.loads(path.read_text(encoding="utf-8"))), str(path))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RunError(f"{path}: damaged ({error}), expected the recipe of a run") from None

    def save_recipe(self, recipe: Recipe) -> None:
        """Writes the run's settings."""
        save_recipe(recipe, self.path / "recipe.toml")

    def save_vocabs(self, source: Vocab, target: Vocab) -> None:
        """Writes both vocabularies."""
        source.save(self.path / "source.vocab")
        target.save(self.path / "target.vocab")

    def cutter(self, recipe: Recipe) -> PairCutter:
        """Text to tokens, while the run has no vocabularies yet."""
        steps = build_text_steps(recipe.data)
        source, target = (TextCutter(steps, self.tokeniser(side, kind)) for side, kind in token_kinds(recipe.data))
        return PairCutter(source, target, recipe.data.feature_order == "sorted")

    def codec(self, recipe: Recipe) -> PairCodec:
        """Text to ids and back, as the run was trained."""
        data = recipe.data
        steps = build_text_steps(data)
        source, target = (
            TextCodec(steps, self.tokeniser(side, kind), self.vocab(side)) for side, kind in token_kinds(data)
        )
        return PairCodec(source, target, data.feature_order == "sorted")

    def sentencepiece_path(self, side: str) -> Path:
        """Where a side keeps its SentencePiece model."""
        return self.path / f"{side}.spm"

    def tokeniser(self, side: str, kind: str) -> Tokeniser:
        """The tokeniser of one side."""
        if kind == "sentencepiece":
            return SentencePiece(self.sentencepiece_path(side))
        return Chars() if kind == "chars" else Words()

    def save_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replaces the weights in one move, so that a full disk or a kill leaves the old ones whole."""
        with replaced_whole(self.weights) as new:
            safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in weights.items()}, new)

    def load_weights(self) -> dict[str, Tensor]:
        """The best weights."""
        if not self.weights.is_file():
            raise RunError(f"{self.path}: no model.safetensors yet, expected a run that finished at least one epoch")
        try:
            return safetensors.torch.load_file(self.weights)
        except safetensors.SafetensorError as error:
            raise RunError(f"{self.weights}: damaged or cut short ({error}), expected safetensors weights") from None

    def load_module(self, recipe: Recipe, codec: PairCodec) -> nn.Module:
        """The trained network of the run, ready to use."""
        module = build_model(recipe.model, len(codec.source.vocab), len(codec.target.vocab))
        self.fill(module)
        return module

    def fill(self, module: nn.Module) -> None:
        """Puts the best weights into a network, which is then ready to use."""
        try:
            module.load_state_dict(self.load_weights())
        except RuntimeError as error:
            raise RunError(f"{self.weights}: not the weights of this run's recipe and vocabularies") from error
        module.eval()

    def load_rules(self) -> SuffixRules:
        """The suffix rules."""
        if not self.rules.is_file():
            raise RunError(f"{self.rules}: missing, expected the rules of a run of suffix rules")
        return SuffixRules.load(self.rules)

    def save_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Writes how training went."""
        text = json.dumps(metrics, indent=2, ensure_ascii=False)
        (self.path / "metrics.json").write_text(text + "\n", encoding="utf-8")

    def discard_metrics(self) -> None:
        """Makes the run one that is still in training."""
        (self.path / "metrics.json").unlink(missing_ok=True)

    def metrics(self) -> dict[str, Any]:
        """How training went; empty while it has not ended."""
        path = self.path / "metrics.json"
        if not path.is_file():
            return {}
        try:
            metrics: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error}), expected JSON") from None
        return metrics

    def state(self) -> str:
        """How far training has come."""
        if self.metrics():
            return "trained"
        return "in training, or stopped: --resume goes on" if self.checkpoint.exists() else "no epoch finished yet"

    def discard_corpus(self) -> None:
        """Removes the encoded corpora once training has ended."""
        shutil.rmtree(self.corpus, ignore_errors=True)

    def vocabulary_sizes(self) -> dict[str, int]:
        """How many tokens each vocabulary of the run has."""
        sides = ("source", "target", "words")
        return {side: len(self.vocab(side)) for side in sides if (self.path / f"{side}.vocab").exists()}

    def vocab(self, side: str) -> Vocab:
        """The vocabulary of the source or target, or the words of a matcher."""
        path = self.path / f"{side}.vocab"
        if not path.is_file():
            raise RunError(f"{path}: missing, expected the vocabulary of a run")
        try:
            return Vocab.load(path)
        except UnicodeDecodeError:
            raise RunError(f"{path}: damaged, expected one token per line in UTF-8") from None


@contextmanager
def staged_run(path: Path, *, force: bool = False) -> Iterator[RunFolder]:
    """A new run folder beside ``path`` that takes its place at the end; if preparing it fails, nothing has changed.

    A folder that holds a run already is refused, or with ``force`` loses that run, and nothing else, at the end.
    """
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: a file, expected a folder for the run")
    in_the_way = [path / name for name in _FILES if (path / name).exists()]
    if in_the_way and not force:
        raise RunError(
            f"{path}: holds a run already ({in_the_way[0].name}), expected a new folder; "
            "use --resume to go on with it, --force to replace it, or another --out"
        )
    stage = path.with_name(f"{path.name}.new")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    try:
        yield RunFolder(stage)
        for old in in_the_way:
            _remove(old)
        path.mkdir(exist_ok=True)
        for new in stage.iterdir():
            new.replace(path / new.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def token_kinds(data: DataSection) -> list[tuple[str, TokenKind]]:
    """The kind of token of the model's source and of its target."""
    columns = data.source_tokens, data.target_tokens
    source, target = reversed(columns) if data.swap else columns
    return [("source", source), ("target", target)]


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place once written; if writing fails the old one stays untouched."""
    new = path.with_name(path.name + ".new")
    try:
        yield new
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def _completed(table: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run with those that were not there when it was made, at what they amounted to then."""
    data = table.get("data")
    if isinstance(data, dict):
        data.setdefault("feature_order", "as_given")
    return table


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
