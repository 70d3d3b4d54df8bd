"""The network of a transducer: what source and target contribute to every cell of the lattice.

    h_i               state of the source at position i, unidirectional or bidirectional
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i (``SourceAttention``)
    logits            W_h h_i and W_s s_j + b, which are added in cell (i, j)
    transition        T_h h_i and T_s s_j + c, likewise

With a tied output ``W_s`` is also the table of target embeddings, and ``W_h = W_s P``: one vector for each word.

If there are features, their vector is added to the embedding of every token of both sides.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from antiphon.data.batch import Batch
from antiphon.device import kernels_can_run
from antiphon.lattice.paths import split_odds
from antiphon.models.left_to_right import LeftToRight
from antiphon.nn.copying import copies_as_unknown
from antiphon.nn.recurrent import (
    Dropout,
    FeatureEmbedding,
    LSTMSizes,
    LSTMState,
    PrefixEncoder,
    SourceEncoder,
    valid_positions,
)
from antiphon.nn.transition import GeometricTransition, NeuralTransition
from antiphon.torch_free.vocab import NOT_COPIED


class CellFactors(NamedTuple):
    """What one side of a cell contributes: token logits, and its part of the transition (``nn/transition.py``)."""

    logits: Float[Tensor, "... V"]
    transition: Float[Tensor, "... T"]


class SideState(NamedTuple):
    """One side after some tokens: the state of its LSTM, and the vector of its features, if any."""

    network: LSTMState
    features: Float[Tensor, "N E"] | None


_UNIT = 8
"""GPUs multiply and read rows fastest whose length is a multiple of this."""


class TokenLogits(nn.Linear):
    """A linear layer that, while training on a GPU, pads the vocabulary to a multiple of 8 with impossible tokens.

    With a bias their logits are ``-inf``, without one 0: logits are a sum of parts, one of which has the bias.
    """

    def forward(self, input: Float[Tensor, "... H"], *, add_bias: bool = True) -> Float[Tensor, "... V"]:
        """The logits of every token."""
        more = -self.out_features % _UNIT
        bias = self.bias if add_bias else None
        if not more or not self.training or not kernels_can_run(input):
            return linear(input, self.weight, bias)
        padded = None if bias is None else pad(bias, (0, more), value=float("-inf"))
        return linear(input, pad(self.weight, (0, 0, 0, more)), padded)


class SourceContext(NamedTuple):
    """What prefixes attend to: the encoder's states, and which of them are real."""

    states: Float[Tensor, "N I S"]
    valid: Bool[Tensor, "N I"]


class SourceAttention(nn.Module):
    """Combines the state of each prefix with the attended source states.

    a_ji       softmax over i of  (Q s_j) . h_i / sqrt(size of h)
    c_j        sum over i of  a_ji h_i
    s'_j       tanh(U [s_j; c_j] + u)

    ``s'_j`` depends on the prefix and on the input but not on the path through the lattice, so that the sum over
    alignments stays exact and the softmax factored. All positions are computed at once: nothing feeds back into the
    LSTM. Not in the thesis. Cost: O(I J H) for each pair.
    """

    def __init__(self, hidden_size: int, source_size: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, source_size, bias=False)
        self.combine = nn.Linear(hidden_size + source_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, states: Float[Tensor, "N J H"], context: SourceContext) -> Float[Tensor, "N J H"]:
        """``s'_j`` of every prefix."""
        scores = torch.bmm(self.query(states), context.states.transpose(1, 2)) * context.states.shape[2] ** -0.5
        weights = scores.masked_fill(~context.valid[:, None], float("-inf")).softmax(2)
        seen = torch.bmm(weights, context.states)
        combined: Tensor = self.dropout(torch.tanh(self.combine(torch.cat([states, seen], 2))))
        return combined


_CPU_ELEMENTS, _GPU_ELEMENTS = 2**23, 2**26
"""Elements of the hidden transition units that are computed at once when no gradient is needed."""


@dataclass(frozen=True, kw_only=True)
class TransducerSettings(LSTMSizes):
    """The layers of a transducer.

    With ``tie_output`` one vector per target token is its embedding and its output weights for both sides.
    """

    encoder: Literal["unidirectional", "bidirectional"]
    transition: Literal["geometric", "neural"]
    final_write: Literal["learned", "forced"]
    context: Literal["none", "attention"]
    copy_words: bool
    copy_unknown: bool
    tie_output: bool
    write_probability: float = 0.5


class TransducerNetwork(LeftToRight):
    """Encoder, decoder, token logits and transition of a transducer; keyword arguments are ``TransducerSettings``."""

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__()
        given = TransducerSettings(**settings)
        hidden_size = given.hidden_size
        self.encoder = SourceEncoder(source_size, given, bidirectional=given.encoder == "bidirectional")
        self.decoder = PrefixEncoder(None if given.tie_output else target_size, given)
        self.source_features = FeatureEmbedding(feature_size, self.encoder.embedding_size) if feature_size else None
        self.target_features = FeatureEmbedding(feature_size, given.embedding_size) if feature_size else None
        width = self.encoder.output_size
        self.attention = SourceAttention(hidden_size, width, given.dropout) if given.context == "attention" else None
        self.target_size, self.copies_words = target_size, given.copy_words
        self.copies_unknown = given.copy_unknown and not given.copy_words
        classes = target_size + 1 if given.copy_words else target_size  # the last is *copy* (``nn/copying.py``)
        self.source_logits = None if given.tie_output else TokenLogits(width, classes, bias=False)
        self.source_projection = nn.Linear(width, hidden_size, bias=False) if given.tie_output else None
        self.target_logits = TokenLogits(hidden_size, classes)
        if given.tie_output:
            nn.init.normal_(self.target_logits.weight, std=hidden_size**-0.5)
        self.final_write_forced = given.final_write == "forced"
        self.transition = (
            NeuralTransition(width, hidden_size, units=hidden_size)
            if given.transition == "neural"
            else GeometricTransition(given.write_probability)
        )

    def copied_words(self, batch: Batch) -> Int[Tensor, "B I"]:
        """The target id of every source token that can be copied; none can in a batch without the column ``copied``."""
        return batch.copied if batch.copied.shape[1] else torch.full_like(batch.source, NOT_COPIED)

    def source_state(self, features: Int[Tensor, "N F"]) -> SideState:
        """The source side before its first token."""
        return SideState(self.encoder.initial_state(features.shape[0]), _vectors(self.source_features, features))

    def target_state(self, features: Int[Tensor, "N F"]) -> SideState:
        """The target side before the start symbol."""
        return SideState(self.decoder.initial_state(features.shape[0]), _vectors(self.target_features, features))

    def encode(self, batch: Batch) -> tuple[CellFactors, SourceContext | None]:
        """The source's contribution to every cell, and what the decoder attends to, if it does."""
        features = _vectors(self.source_features, batch.features)
        states = self.encoder(batch.source, batch.source_lengths, features)
        factors = self.source_factors(states)
        if self.attention is None:
            return factors, None
        return factors, SourceContext(states, valid_positions(batch.source_lengths, states.shape[1]))

    def encode_step(self, tokens: Int[Tensor, " N"], state: SideState) -> tuple[CellFactors, SideState]:
        """The contribution of one more source token, and the state to continue from; for unidirectional encoders."""
        states, after = self.encoder.step(tokens, state.network, state.features)
        return self.source_factors(states), SideState(after, state.features)

    def decode_prefix(
        self, prefix: Int[Tensor, "N J"], state: SideState, context: SourceContext | None = None
    ) -> tuple[CellFactors, SideState]:
        """The target's contribution after each token of the prefix, and the state to continue from.

        ``context`` is the source of each prefix, for models that attend to it.
        """
        states, after = self.read_prefix(prefix, state)
        return self.target_factors(self.attend(states, context)), after

    def decode_step(self, tokens: Int[Tensor, " N"], state: SideState) -> tuple[CellFactors, SideState]:
        """The contribution of one more target token, and the state to continue from, without attention."""
        target, after = self.decode_prefix(tokens[:, None], state)
        return CellFactors(target.logits[:, 0], target.transition[:, 0]), after

    def read_prefix(self, prefix: Int[Tensor, "N J"], state: SideState) -> tuple[Float[Tensor, "N J H"], SideState]:
        """The decoder's state after each token of the prefix, and the state to continue from."""
        known = copies_as_unknown(prefix, self.target_size) if self.copies_words else prefix
        table = self.target_logits.weight if self.decoder.embedding is None else None
        states, after = self.decoder(known, state.network, state.features, table)
        return states, SideState(after, state.features)

    def attend(self, states: Float[Tensor, "N J H"], context: SourceContext | None) -> Float[Tensor, "N J H"]:
        """The states of the target after attention to the source, if there is any."""
        return states if self.attention is None else self.attention(states, context)

    def source_factors(self, states: Float[Tensor, "*N S"]) -> CellFactors:
        """The source's contribution to every cell."""
        if self.source_logits is not None:
            logits = self.source_logits(states)
        else:
            logits = self.target_logits(cast(nn.Linear, self.source_projection)(states), add_bias=False)
        return CellFactors(logits, self.transition.source_part(states))

    def target_factors(self, states: Float[Tensor, "N J H"]) -> CellFactors:
        """The target's contribution to every cell."""
        return CellFactors(self.target_logits(states), self.transition.target_part(states))

    def split_odds(
        self, log_odds: Float[Tensor, "*cells"], in_last_row: Bool[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
        """Log probabilities of emit and read; emit is certain in the last row if it is forced there."""
        return split_odds(log_odds, in_last_row if self.final_write_forced else None)

    def emit_log_odds(self, source: Float[Tensor, "B I T"], target: Float[Tensor, "B J T"]) -> Float[Tensor, "B I J"]:
        """Log odds of every cell; without gradients, some columns at a time."""
        B, I, T = source.shape
        elements = _CPU_ELEMENTS if source.device.type == "cpu" else _GPU_ELEMENTS
        at_once = target.shape[1] if torch.is_grad_enabled() else elements // max(1, B * I * T)
        parts = target.split(max(1, at_once), dim=1)
        return torch.cat([self.transition.all_log_odds(source, part) for part in parts], 2)


def _vectors(table: FeatureEmbedding | None, features: Int[Tensor, "N F"]) -> Float[Tensor, "N E"] | None:
    """The vector that the features of each pair add to its tokens; None if the model reads no features."""
    return None if table is None else table(features)
