"""The settings of a recipe: what can be set, and its default.

Every default lives here, or in ``model_sections.py`` for the section ``model``, and nowhere else. Models, search and
training take plain keyword arguments; ``runs/build.py`` hands them over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, SerializeAsAny, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import ModelSection, TransducerSection
from antiphon.recipe.section import Hypotheses, Nats, Positive, Section, UsedBy, Weight, check_texts
from antiphon.torch_free.readers import SOURCE_TARGET_FEATURES, ColumnOrder

TokenKind = Literal["chars", "words", "sentencepiece"]
MetricName = Literal[
    "perplexity",
    "accuracy",
    "edit_distance",
    "phoneme_error_rate",
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
DEFAULT_KIND = TransducerSection().kind
"""The kind of a recipe that names none."""


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
    cache: Path | None = None
    """A folder that caches encoded data, so that the next training on the same files starts at once."""
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
    source_sentencepiece: Annotated[Path | None, UsedBy("pairs")] = None
    """An existing SentencePiece model for the source column; unset: one is trained."""
    target_sentencepiece: Annotated[Path | None, UsedBy("pairs")] = None
    """An existing SentencePiece model for the target column; unset: one is trained."""
    sentencepiece_size: Annotated[int, Field(gt=0, le=10**6), UsedBy("pairs")] = 8000
    """Vocabulary size of a SentencePiece model trained here."""

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
    """L2 penalty: this times half the squared weights is added to the mean loss of a batch."""
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
    """Fraction of the pairs in which source tokens become unknown; unset: 0.05 where unknown ones are not copied."""
    clip: Annotated[float, Field(gt=0, le=1e9)] = 5.0
    """Maximum gradient norm."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """Of matrix products: tf32 on GPUs that have it, else float32; bfloat16 except in lattice, losses and weights."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """EMA decay of the evaluated weights, lower in the first updates; 0 turns it off."""
    checkpoint_minutes: Annotated[float, Field(gt=0, le=10**6)] = 10.0
    """Minutes between checkpoints within an epoch, besides those at the end of each epoch."""
    log: Literal["tensorboard"] | None = None
    """Log metrics for TensorBoard in the run folder; needs the extra log."""


class SearchSection(Section):
    """How outputs are searched."""

    over: Annotated[Literal["outputs", "paths"], UsedBy("paths")] = "outputs"
    """Search for outputs, alignments summed out; or, as in the thesis, for outputs with their best alignments."""
    beam: Hypotheses = 10
    """Hypotheses kept at every step; 1 is greedy search. Over paths: for each input position."""
    proposals: Annotated[Hypotheses, UsedBy("rescoring")] = 10
    """Extensions per step that a noisy channel rescores, at least ``beam``."""
    direct_outputs: Annotated[Annotated[int, Field(ge=0, le=1000)] | None, UsedBy("rescoring")] = None
    """Outputs of the direct model's own search that a noisy channel ranks with those it finds; unset: ``beam``."""
    ensemble: Annotated[Literal["probabilities", "logs"], UsedBy("members")] = "probabilities"
    """What an ensemble averages: the members' probabilities of the next token, or their logs."""
    weights: Annotated[tuple[Weight, Weight, Weight, Weight], UsedBy("rescoring")] = (1.0, 0.5, 0.5, 0.5)
    """Weights of a noisy channel: direct model, channel model, language model, length."""
    channel_prefix: Annotated[Literal["last", "anywhere"], UsedBy("rescoring")] = "last"
    """In an unfinished output, the channel aligns the last input token to the last output token, or to any."""
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
    replace_unknown: Annotated[bool, UsedBy("attention")] = False
    """Write words outside the vocabulary: as the source words with the largest attention weights."""
    batch_size: Annotated[int, Field(gt=0, le=10**4)] = 32
    """Inputs decoded at once."""


class Recipe(Section):
    """All settings of a run."""

    data: DataSection = DataSection()
    model: Annotated[SerializeAsAny[ModelSection], PlainValidator(lambda given: _parse_model(given))] = (
        TransducerSection()
    )
    train: Annotated[TrainSection, UsedBy("epochs")] = TrainSection()
    search: Annotated[SearchSection, UsedBy("search")] = SearchSection()

    @model_validator(mode="before")
    @classmethod
    def _check_text(cls, given: Any) -> Any:
        check_texts(given)
        return given

    @model_validator(mode="after")
    def _check_sentencepiece(self) -> "Recipe":
        for side in ("source", "target"):
            has_model = getattr(self.data, f"{side}_sentencepiece") is not None
            if has_model and getattr(self.data, f"{side}_tokens") != "sentencepiece":
                raise ValueError(f'data.{side}_sentencepiece is set, expected data.{side}_tokens = "sentencepiece"')
        return self

    @model_validator(mode="after")
    def _check_copying(self) -> "Recipe":
        kinds = self.data.source_tokens, self.data.target_tokens
        if isinstance(self.model, TransducerSection) and self.model.copy_words and kinds != ("words", "words"):
            raise ValueError(
                f"model.copy_words = true with tokens that are {kinds[0]} and {kinds[1]}, "
                "expected data.source_tokens and data.target_tokens to be words"
            )
        return self


def token_kinds(data: DataSection) -> dict[str, TokenKind]:
    """The kind of token of the model's ``source`` and of its ``target``, which ``data.swap`` exchanges."""
    columns = data.source_tokens, data.target_tokens
    source, target = reversed(columns) if data.swap else columns
    return {"source": source, "target": target}


def kind_in(section: Any) -> Any:
    """The kind that a section ``model`` asks for, known or not."""
    return section.get("kind", DEFAULT_KIND) if isinstance(section, Mapping) else DEFAULT_KIND


def _parse_model(given: Any) -> ModelSection:
    """The section of the kind that is asked for: a union discriminated by ``kind``, open to kinds registered later."""
    if isinstance(given, ModelSection):
        return given
    if not isinstance(given, Mapping):
        return TransducerSection.model_validate(given)
    kind = kind_in(given)
    if not isinstance(kind, str) or kind not in KINDS:
        expected = PydanticCustomError("kind", "Input should be one of {kinds}", {"kinds": ", ".join(KINDS)})
        raise ValidationError.from_exception_data("model", [InitErrorDetails(type=expected, loc=("kind",), input=kind)])
    return KINDS[kind].section.model_validate(given)


def _as_list(given: Any) -> Any:
    """A single path as a list."""
    return [given] if isinstance(given, str | Path) else given
