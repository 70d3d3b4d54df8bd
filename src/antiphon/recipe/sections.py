"""The sections of a recipe: what can be set, and its default; marks on settings, and what is said of wrong values.

Every default lives here, or in ``model_sections.py`` for the section ``model``, and nowhere else. Models, search and
training take plain keyword arguments; ``runs/build.py`` hands them over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from antiphon.terminal import one_line
from antiphon.torch_free.readers import SOURCE_TARGET_FEATURES, ColumnOrder

Positive = Annotated[int, Field(gt=0, le=10**9)]
Width = Annotated[int, Field(gt=0, le=2**15)]
Hypotheses = Annotated[int, Field(gt=0, le=1000)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Nats = Annotated[float, Field(ge=0, le=1e6)]

SettingGroup = Literal[
    "pairs",  # reads pairs of a source and a target
    "batches",  # reads them encoded, in batches
    "targets",  # reads targets alone
    "questions",  # reads questions and candidate answers
    "vectors",  # reads word vectors
    "epochs",  # is trained by gradient descent
    "tokens",  # learns to predict target tokens
    "search",  # finds outputs by beam search
    "paths",  # can search for the best alignments, too (search.over)
    "streams",  # can write while it reads
    "rescoring",  # weighs the scores of several models
]
"""Settings that go together. Each kind of model says which groups it uses."""
_LONGEST_SHOWN = 100
"""Maximum number of characters shown of a wrong value."""
_OTHER_NAMES = {
    "lr": "learning_rate",
    "type": "kind",
    "architecture": "kind",
    "epochs": "max_epochs",
    "steps": "max_updates",
    "updates": "max_updates",
    "bs": "batch_size",
    "beam_size": "beam",
    "metric": "dev_metric",
    "ema": "ema_decay",
}
"""Usual names of settings elsewhere, and theirs here, which spelling alone does not find."""
_PLAIN = {
    "tuple_type": "input should be a list",
    "list_type": "input should be a list",
    "missing": "input should be a longer list",
    "too_long": "input should be a list of at most {max_length}",
    "path_type": "input should be a path, or a list of two for parallel files",
    "bool_type": "input should be true or false",
    "bool_parsing": "input should be true or false",
}
"""What is expected, in other words than those of pydantic, which are of Python."""
TokenKind = Literal["chars", "words", "sentencepiece"]
MetricName = Literal[
    "perplexity",
    "accuracy",
    "edit_distance",
    "symbol_error_rate",
    "word_error_rate",
    "bleu",
    "chrf",
    "rouge1",
    "rouge2",
    "rougeL",
    "retained_f1",
    "map",
    "mrr",
    "p_at_1",
]
MAX_LENGTH_RATIO, MAX_LENGTH_EXTRA = 100.0, 10**4
"""The highest limits on the length of outputs."""


@dataclass(frozen=True)
class UsedBy:
    """Marks a setting, or a section, of kinds that use a group; what is not marked belongs to all kinds."""

    group: SettingGroup


class Section(BaseModel):
    """A section of a recipe: unknown keys, non-finite numbers, and booleans as numbers are refused; immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_numbers(cls, given: Any, info: ValidationInfo) -> Any:
        """The value as it is; pydantic would take ``true`` for the number 1."""
        values = given if isinstance(given, list | tuple) else [given]
        field = cls.model_fields[str(info.field_name)]
        if any(isinstance(value, bool) for value in values) and bool not in _types(field.annotation):
            raise PydanticCustomError("no_truth_value", "input should be neither true nor false")
        return given


def _types(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)


class DataSection(Section):
    """Where pairs come from and how text is tokenised."""

    train: Path | tuple[Path, Path] | None = None
    """Pairs to learn from: a TSV file, or a list of two parallel text files."""
    dev: Path | tuple[Path, Path] | None = None
    """Held-out pairs that select the best epoch."""
    test: Path | tuple[Path, Path] | None = None
    """Pairs to evaluate on after training; optional."""
    unpaired: Annotated[tuple[Path, ...], BeforeValidator(lambda given: _as_list(given)), UsedBy("targets")] = ()
    """Further targets for a language model: a text file or a list of them, one sequence per line."""
    vocab_from: Annotated[Path | None, UsedBy("batches")] = None
    """A run whose vocabularies to use, so that models can be combined."""
    swap: Annotated[bool, UsedBy("pairs")] = False
    """Learn to map targets to sources; other settings still describe the file as it is."""
    columns: Annotated[ColumnOrder, UsedBy("pairs")] = SOURCE_TARGET_FEATURES
    """The order of the columns; in files without features, that of the other two."""
    features: Annotated[bool | None, UsedBy("pairs")] = None
    """Read the column of features; unset: if the training file has three columns."""
    questions: Annotated[Literal["all", "answerable", "mixed"], UsedBy("questions")] = "all"
    """Training questions that are used: all, those with a right candidate, or with both a right and a wrong one."""
    vectors: Annotated[Path | None, UsedBy("vectors")] = None
    """Word vectors for answer selection: GloVe or word2vec text, word2vec binary (.bin), or npz."""
    more_words: Annotated[int, Field(ge=0, le=10**9), UsedBy("vectors")] = 50_000
    """Words kept from the start of the vectors file besides those of the data, for use in new questions."""

    source_tokens: Annotated[TokenKind, UsedBy("pairs")] = "chars"
    """Tokens of the source column: characters, space-separated words, or SentencePiece subwords."""
    target_tokens: Annotated[TokenKind, UsedBy("pairs")] = "chars"
    """Tokens of the target column."""
    sentencepiece_size: Annotated[int, Field(gt=0, le=10**6), UsedBy("pairs")] = 8000
    """Vocabulary size of SentencePiece models, which are trained on the training pairs."""

    nfc: bool = False
    """Compose characters to Unicode NFC."""
    lowercase: bool = False
    """Lower-case all text."""
    digits_to_hash: bool = False
    """Replace every digit by #."""
    split_punctuation: bool = False
    """Split punctuation from words, for text that is not tokenised."""
    split_hangul: bool | None = None
    """Take syllables of Hangul apart into letters (jamo); unset: where tokens are characters."""
    min_count: Annotated[Positive, UsedBy("pairs")] = 1
    """Tokens seen less often in training become unknown."""
    max_source_length: Annotated[Positive | None, UsedBy("batches")] = None
    """Tokens of the longest source kept for training."""
    max_target_length: Annotated[Positive | None, UsedBy("batches")] = None
    """Tokens of the longest target kept for training."""
    max_cells: Annotated[Positive | None, UsedBy("batches")] = None
    """Largest product of both lengths kept for training."""
    limit_dev: Annotated[bool, UsedBy("batches")] = False
    """Leave out dev pairs as well that are longer than training pairs may be."""


class TrainSection(Section):
    """Training."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Random seed of initial weights, dropout and batch order."""
    max_epochs: Positive | None = None
    """Maximum number of epochs; unset: from ``max_updates`` and ``min_passes``."""
    max_updates: Positive = 6_000
    """Updates of a run if ``max_epochs`` is unset; more for large data, see ``min_passes``."""
    min_passes: Positive = 40
    """Minimum number of passes over the training pairs, if ``max_epochs`` is unset."""
    minutes: Annotated[float, Field(gt=0, le=10**6)] | None = None
    """Minutes that training may take: fewer epochs, and fewer units where those are too few; unset: no limit."""
    passes: Positive | None = None
    """Passes over the training pairs in an epoch; unset: as few as give it 100 updates, for many pairs 1."""
    patience: Positive | None = None
    """Epochs without a better dev metric that end training; unset: a fifth, half if the rate falls, at least 10."""
    dev_metric: MetricName = "perplexity"
    """The metric that selects the best epoch; perplexity needs no search."""
    dev_beam: Hypotheses = 1
    """Beam size in training, if the dev metric needs predictions."""
    batch_size: Annotated[int, Field(gt=0, le=10**6)] = 32
    """Maximum number of pairs in a batch."""
    max_batch_cells: Positive = 100_000
    """Maximum of pairs * longest source * longest target in a batch."""
    learning_rate: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Peak learning rate; unset: 0.001, for a transformer times the square root of 256 / ``model.hidden_size``."""
    optimiser: Literal["adam", "adagrad"] = "adam"
    """The optimiser."""
    l2: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """L2 penalty: this times half the squared weights is added to the loss that ``l2_of`` names."""
    l2_of: Literal["mean", "sum"] = "mean"
    """The loss of the L2 penalty: the mean of a batch, or as in the thesis the sum over all training pairs."""
    final_learning_rate_ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Ratio of the final to the peak learning rate, on a cosine curve; 1: constant."""
    warmup_updates: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Updates of linear learning-rate warm-up, before the curve falls; unset: 2 epochs of a transformer, else none."""
    label_smoothing: Annotated[Annotated[float, Field(ge=0, le=0.99)] | None, UsedBy("tokens")] = None
    """Fraction of the target's probability that is spread over all tokens; unset: 0.1 for kind transformer, else 0."""
    listwise_weight: Annotated[float, Field(ge=0, le=1e6), UsedBy("questions")] = 0.0
    """Weight of a softmax over the candidates of a question, added to the loss of each pair (listwise); 0: none."""
    hallucination: Annotated[float, Field(ge=0, le=1)] | None = None
    """Fraction of the pairs whose shared letters are made up; unset: up to a half, for few inflected words."""
    hidden_sources: Annotated[Annotated[float, Field(ge=0, le=1)] | None, UsedBy("pairs")] = None
    """Fraction of the pairs in which source tokens become unknown; unset: 0.01 where unknown ones are not copied."""
    clip: Annotated[float, Field(gt=0, le=1e9)] = 5.0
    """Maximum gradient norm."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """Of matrix products: tf32 on GPUs that have it, else float32; bfloat16 except in lattice, losses and weights."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """EMA decay of the evaluated weights, lower in the first updates; 0 turns it off."""
    checkpoint_minutes: Annotated[float, Field(gt=0, le=10**6)] = 10.0
    """Minutes between checkpoints within an epoch, besides those at the end of each epoch."""


class SearchSection(Section):
    """How outputs are searched."""

    over: Annotated[Literal["outputs", "paths", "cells"], UsedBy("paths")] = "outputs"
    """Over outputs, alignments summed; or as in the thesis, over best paths, or over cells, of noisy channels alone."""
    beam: Hypotheses = 10
    """Hypotheses kept at every step; 1 is greedy search. Over paths and cells: for each input position."""
    proposals: Annotated[Hypotheses, UsedBy("rescoring")] = 10
    """Extensions per step that a noisy channel rescores, at least ``beam``."""
    direct_outputs: Annotated[Annotated[int, Field(ge=0, le=1000)] | None, UsedBy("rescoring")] = None
    """Outputs of the direct model's own search that a noisy channel ranks with those it finds; unset: ``beam``."""
    weights: Annotated[tuple[Weight, Weight, Weight, Weight], UsedBy("rescoring")] = (1.0, 0.5, 0.5, 0.5)
    """Weights of a noisy channel: direct model, channel model, language model, length."""
    threshold: Annotated[float, Field(gt=0, le=1e6)] = 8.0
    """Hypotheses more than this many nats behind the best are pruned (beam threshold)."""
    commit_margin: Annotated[Nats, UsedBy("streams")] = 1.0
    """A stream writes the prefix shared by all outputs at most this many nats behind the best; lower writes sooner."""
    max_length_ratio: Annotated[float, Field(gt=0, le=MAX_LENGTH_RATIO)] | None = None
    """Maximum length of outputs as a multiple of the input's, and ``max_length_extra`` more; unset: by the data."""
    max_length_extra: Annotated[int, Field(gt=0, le=MAX_LENGTH_EXTRA)] | None = None
    """Tokens that outputs may have beyond ``max_length_ratio`` times the length of the input; unset: by the data."""
    length_normalisation: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Finished outputs are ranked by log probability / length ** this; 0: by the log probability itself."""
    rule_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight of suffix rules beside a network that inflects words; unset: fitted on dev. 0: no rules."""
    length_bias: Annotated[float, Field(ge=-1000, le=1000)] = 0.0
    """Added to the log probability for every token of an output."""
    batch_size: Annotated[int, Field(gt=0, le=10**4)] = 32
    """Inputs decoded at once."""


def explain(error: ValidationError, names: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], str]:
    """A sentence for every key that is wrong, by section and name; ``names`` are the keys of each section."""
    by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for problem in error.errors(include_url=False):  # a union reports an error for each of its members
        by_key.setdefault(tuple(str(part) for part in problem["loc"][:2]), dict(problem))
    return {path: _explain(path, problem, names) for path, problem in by_key.items()}


def show_value(value: Any) -> str:
    """A value as Python would print it, booleans and dates as in TOML; truncated if it is long or deep."""
    if isinstance(value, bool | date | time):
        return str(value).lower()
    brief = Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _LONGEST_SHOWN
    try:
        return one_line(brief.repr(value))
    except ValueError:  # of too many digits for Python
        return "a number of thousands of digits"


def check_texts(given: Any, key: str = "", depth: int = 4) -> None:
    """Refuses text that cannot be written to a file, by its dotted key; checks up to ``depth``."""
    for where, text in _texts(given, key, depth):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{one_line(where)} = {show_value(text)}: not UTF-8 or with NUL, expected plain text")


def _expected(problem: Mapping[str, Any]) -> str:
    """What is expected instead of a wrong value."""
    if problem["type"] in _PLAIN:
        return _PLAIN[problem["type"]].format(**problem.get("ctx", {}))
    message = str(problem["msg"])
    return f"{message[0].lower()}{message[1:]}"


def _explain(path: Sequence[str], problem: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> str:
    key = one_line(".".join(path))
    if problem["type"] == "extra_forbidden":
        beside = names if len(path) == 1 else names[path[0]]
        near = nearest_names(path[-1], list(beside), most=1)
        return f"{key}: unknown key, " + (f"did you mean {near[0]}?" if near else "expected one of antiphon settings")
    if problem["type"] == "value_error":
        return str(problem["msg"]).removeprefix("Value error, ")
    return f"{key} = {show_value(problem['input'])}: {_expected(problem)}"


def nearest_names(name: str, known: Sequence[str], *, most: int) -> list[str]:
    """The names that are probably meant: the one that others call so, or the nearest; in a section or alone."""
    name = name[:_LONGEST_SHOWN].lower()
    section, dot, own = name.rpartition(".")
    meant = f"{section}{dot}{_OTHER_NAMES.get(own, own)}"
    return [meant] if meant in known else get_close_matches(name, known, n=most)


def _texts(given: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(given, str | Path):
        yield key, str(given)
    elif depth and isinstance(given, Mapping):
        for name, value in given.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name), depth - 1)
    elif depth and isinstance(given, list | tuple):
        for value in given:
            yield from _texts(value, key, depth - 1)


def _as_list(given: Any) -> Any:
    """A single path as a list."""
    return [given] if isinstance(given, str | Path) else given
