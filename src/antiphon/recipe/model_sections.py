"""The section ``model`` of each kind, with the settings that the kind has and their defaults."""

from math import gcd
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from antiphon.recipe.sections import Section, Width

Dropout = Annotated[float, Field(ge=0, le=0.99)]
Heads = Annotated[int, Field(gt=0, le=256)]
FeedForward = Annotated[int, Field(gt=0, le=2**17)]
MAX_WEIGHTS = 10**9
"""Weights of the layers of a model at most: with gradients and the optimiser's state, 16 GB."""


def refuse_too_many(weights: int, settings: str) -> None:
    """Refuses settings whose layers have more weights than fit into memory."""
    if weights > MAX_WEIGHTS:
        raise ValueError(
            f"{settings}: about {weights / 1e9:.3g} billion weights "
            f"({weights * 4 / 1e9:.3g} GB), expected at most {MAX_WEIGHTS / 1e9:g} billion"
        )


class ModelSection(Section):
    """What is trained; each kind of model has a section of its own."""

    needs_warmup: ClassVar[bool] = False
    """Whether the learning rate has to rise slowly, as for transformers."""
    kind: str
    """The kind of model; noisy channels and ensembles are made of trained runs (``antiphon combine``, ``ensemble``)."""

    @property
    def width(self) -> int:
        """Units of the widest layer, 0 where that is not known from the settings alone."""
        return 0

    @property
    def depth(self) -> int:
        """Layers of the deepest network."""
        return 1

    def arguments(self) -> dict[str, Any]:
        """What the constructor of the model is given."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}


class LSTMSection(ModelSection):
    """What kinds with LSTMs share."""

    hidden_size: Width = 128
    """Hidden size of each LSTM."""
    layers: Annotated[int, Field(gt=0, le=64)] = 1
    """Layers of each LSTM."""
    forget_bias: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Initial bias added to the forget gates."""

    @property
    def width(self) -> int:
        """Units of each LSTM."""
        return self.hidden_size

    @property
    def depth(self) -> int:
        """Layers of each LSTM."""
        return self.layers

    def input_size(self) -> int:
        """Width of what the first layer reads."""
        return self.hidden_size

    @model_validator(mode="after")
    def _check_size_of_lstms(self) -> "LSTMSection":
        hidden, layers = self.hidden_size, self.layers
        refuse_too_many(
            3 * 4 * hidden * (self.input_size() + hidden * (2 * layers - 1)),
            f"model.hidden_size = {hidden} with model.layers = {layers}",
        )
        return self


class TokenModelSection(LSTMSection):
    """What kinds share that learn vectors of their tokens."""

    embedding_size: Width | None = None
    """Size of token embeddings; unset: ``hidden_size``."""
    dropout: Dropout | None = None
    """Dropout on what each LSTM or layer reads and writes; unset: 0.5 for fewer than 5,000 pairs, 0.3 for more."""

    def input_size(self) -> int:
        """Width of token vectors."""
        return self.embedding_size or self.hidden_size

    def arguments(self) -> dict[str, Any]:
        """All settings, with defaults for those that are unset."""
        return super().arguments() | {"embedding_size": self.input_size(), "dropout": self.dropout or 0.0}


class TransducerSection(TokenModelSection):
    """A transducer with latent alignments."""

    kind: Literal["transducer"] = "transducer"
    encoder: Literal["unidirectional", "bidirectional"] = "bidirectional"
    """Unidirectional encoders can stream; bidirectional ones see the whole source."""
    transition: Literal["geometric", "neural"] = "neural"
    """Probability of writing: a constant estimated from lengths, or predicted by a network."""
    right_to_left: bool = False
    """Train a right-to-left twin as well: an output has the mean of both probabilities; not if ``unidirectional``."""
    final_write: Literal["learned", "forced"] = "learned"
    """Probability of writing once the source is read: the network's, or 1."""
    context: Literal["none", "attention"] | None = None
    """What of the source each output position sees besides its row; unset: all, if words are read both ways."""
    copy_unknown: bool | None = None
    """Copy source tokens that training never saw; unset: if most target tokens are source tokens too."""
    copy_words: bool | None = None
    """Copy source words, also those outside the vocabulary; unset: if most target words are source words too."""
    tie_output: bool = False
    """Use the embeddings of target tokens as output weights as well, for source states after a projection."""

    @property
    def has_twin(self) -> bool:
        """Whether there is a right-to-left twin; it cannot write while reading, and does not copy words."""
        return self.right_to_left and self.encoder == "bidirectional" and not self.copy_words

    def arguments(self) -> dict[str, Any]:
        """All settings of one direction; what is unset sees nothing else and copies nothing."""
        given = super().arguments()
        given.pop("right_to_left")
        return given | {
            "context": self.context or "none",
            "copy_words": bool(self.copy_words),
            "copy_unknown": bool(self.copy_unknown),
        }

    @model_validator(mode="after")
    def _check_tied_output(self) -> "TransducerSection":
        if self.tie_output and self.input_size() != self.hidden_size:
            raise ValueError(
                f"model.embedding_size = {self.embedding_size} with model.tie_output = true: embeddings are output "
                f"weights too, expected {self.hidden_size}, the value of model.hidden_size"
            )
        return self

    @model_validator(mode="after")
    def _check_context(self) -> "TransducerSection":
        if self.context == "attention" and self.encoder == "unidirectional":
            raise ValueError(
                'model.context = "attention" with model.encoder = "unidirectional": attention needs the whole source, '
                'expected a bidirectional encoder, or model.context = "none"'
            )
        return self


class EncoderDecoderSection(TokenModelSection):
    """An encoder and a decoder joined by one state."""

    kind: Literal["encoder_decoder"] = "encoder_decoder"


class AttentionSection(TokenModelSection):
    """An encoder and a decoder with attention."""

    kind: Literal["attention"] = "attention"


class TransformerSection(ModelSection):
    """A transformer, encoder and decoder."""

    needs_warmup: ClassVar[bool] = True
    kind: Literal["transformer"] = "transformer"
    hidden_size: Width = 256
    """Size of states and embeddings, all heads together."""
    layers: Annotated[int, Field(gt=0, le=64)] = 4
    """Layers of the encoder, and of the decoder."""
    heads: Heads | None = None
    """Heads of each attention, which divide ``hidden_size``; unset: 4, or 2 or 1 if it is not a multiple of 4."""
    feedforward_size: FeedForward | None = None
    """Hidden size of the feed-forward networks; unset: 4 times ``hidden_size``."""
    dropout: Dropout = 0.3
    """Dropout on embeddings, the output of each sub-layer, and inside the feed-forward networks."""
    tie_output: bool = False
    """Use the vectors of target tokens as weights of the output layer as well."""

    @property
    def width(self) -> int:
        """Size of the states."""
        return self.hidden_size

    @property
    def depth(self) -> int:
        """Layers of the encoder."""
        return self.layers

    def arguments(self) -> dict[str, Any]:
        """All settings, with defaults for those that are unset."""
        heads = self.heads or gcd(self.hidden_size, 4)
        return super().arguments() | {"heads": heads, "feedforward_size": self._inner_size()}

    def _inner_size(self) -> int:
        return self.feedforward_size or 4 * self.hidden_size

    @model_validator(mode="after")
    def _check_heads(self) -> "TransformerSection":
        if self.heads is not None and self.hidden_size % self.heads:
            raise ValueError(
                f"model.hidden_size = {self.hidden_size} with model.heads = {self.heads}: heads of unequal size, "
                "expected a hidden size that is a multiple of the heads"
            )
        return self

    @model_validator(mode="after")
    def _check_size_of_layers(self) -> "TransformerSection":
        hidden, inner, layers = self.hidden_size, self._inner_size(), self.layers
        refuse_too_many(
            layers * hidden * (12 * hidden + 4 * inner),
            f"model.hidden_size = {hidden} with model.feedforward_size = {inner} and model.layers = {layers}",
        )
        return self


class LanguageModelSection(TokenModelSection):
    """A language model of targets."""

    kind: Literal["language_model"] = "language_model"


class SuffixRuleSection(ModelSection):
    """Rules that change the endings of words."""

    kind: Literal["suffix_rule"] = "suffix_rule"


class NoisyChannelSection(ModelSection):
    """Several runs whose scores are weighed; each has settings of its own."""

    kind: Literal["noisy_channel"] = "noisy_channel"


class EnsembleSection(ModelSection):
    """Several runs whose probabilities are averaged; each has settings of its own."""

    kind: Literal["ensemble"] = "ensemble"


class MatcherSection(LSTMSection):
    """Answer selection by a match of sentence vectors."""

    kind: Literal["matcher"] = "matcher"
    sentence: Literal["bag_of_words", "bigram", "lstm", "lstm_attention"] = "lstm_attention"
    """How a sentence becomes a vector."""
    overlap: bool = False
    """Feed what the matcher says, the words in common and their idf to a logistic regression (``+ count``)."""
    overlap_feature: Literal["log_odds", "probability"] = "log_odds"
    """What the matcher says to that logistic regression: its log odds, or as in the thesis its probability."""
    overlap_l2: Annotated[float, Field(ge=1e-9, le=1e9)] = 0.01
    """L2 penalty of that logistic regression."""
    dropout: Dropout = 0.5
    """Dropout on the word vectors that an LSTM reads."""
    state_dropout: Dropout = 0.0
    """Dropout between the layers of an LSTM, on its states, and on sentence vectors."""
    pooling: Literal["last", "mean", "max"] = "last"
    """How the states of an LSTM become one vector: the last one, their mean, or their maximum."""
    bidirectional: bool = False
    """Read from the right as well, by a second LSTM."""
    shared: bool = False
    """Use one LSTM for questions and answers instead of two."""
    initial_weights: Literal["orthogonal", "random"] = "orthogonal"
    """Orthogonal gates of LSTMs, and a bias of the match that suits the data; or all as PyTorch draws them."""


class OverlapSection(ModelSection):
    """Answer selection by words in common."""

    kind: Literal["overlap"] = "overlap"
    baseline: Literal["random", "word_count", "idf_word_count", "bm25"] = "idf_word_count"
    """How answers are ranked: at random, by words in common, by their idf, or by BM25."""
