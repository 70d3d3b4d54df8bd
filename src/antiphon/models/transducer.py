"""Segment-to-segment neural transduction: a latent monotone alignment, summed out exactly.

    h_i               state of the input at position i, from the left or from both ends
    s_j               state of the output prefix y_1..y_{j-1}
    word(i, j)        softmax(W_h h_i + W_s s_j + b) at y_j
    emit(i, j)        sigmoid(v . tanh(T_h h_i + T_s s_j + c) + d), or one constant (geometric)
    shift(i, j)       1 - emit(i, j)

Thesis: chapter 5. The four models it names are the choices of ``encoder`` (uni, bi) and ``transition`` (geometric;
neural, there marked ``+``).
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from antiphon.data.batch import Batch
from antiphon.lattice import log_marginal
from antiphon.nn.factored_softmax import log_word_probabilities
from antiphon.nn.recurrent import LSTMState, PrefixEncoder, Sizes, SourceEncoder
from antiphon.nn.side_by_side import side_by_side
from antiphon.nn.transition import GeometricTransition, NeuralTransition
from antiphon.nn.word_logits import WordLogits

_TRANSITION_NUMBERS = 2**26
"""How many hidden transition units are computed at once when no gradient is wanted."""


class Side(NamedTuple):
    """What one side of a cell contributes: word logits, and hidden units of the transition (neural only)."""

    logits: Float[Tensor, "... V"]
    transition: Float[Tensor, "... T"]


class Moves(NamedTuple):
    """Log scores of the two moves of the lattice, ``write = emit * word``."""

    log_write: Float[Tensor, "B I J"]
    log_shift: Float[Tensor, "B I J"]


class Transducer(nn.Module):
    """p(y | x) as a sum over all monotone alignments of the two."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        encoder: Literal["unidirectional", "bidirectional"] = "bidirectional",
        transition: Literal["geometric", "neural"] = "neural",
        final_emit: Literal["learned", "forced"] = "learned",
        hidden_size: int = 128,
        embedding_size: int = 128,
        layers: int = 1,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
        emit_probability: float = 0.5,
    ) -> None:
        super().__init__()
        sizes = Sizes(embedding_size, hidden_size, layers, dropout, forget_bias)
        self.encoder = SourceEncoder(source_size, sizes, bidirectional=encoder == "bidirectional")
        self.decoder = PrefixEncoder(target_size, sizes)
        self.source_logits = WordLogits(self.encoder.output_size, target_size, bias=False)
        self.target_logits = WordLogits(hidden_size, target_size)
        self.final_emit_forced = final_emit == "forced"
        self.transition: NeuralTransition | GeometricTransition = (
            NeuralTransition(self.encoder.output_size, hidden_size, units=hidden_size)
            if transition == "neural"
            else GeometricTransition(emit_probability)
        )

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair."""
        return log_marginal(*self.moves(batch), batch.source_lengths, batch.target_lengths)

    def moves(self, batch: Batch) -> Moves:
        """The log scores of both moves in every cell."""
        source, target = side_by_side(
            lambda: self.read(batch.source, batch.source_lengths),
            lambda: self.follow(batch.shifted_target)[0],
            lane=0,
        )
        log_word = log_word_probabilities(source.logits, target.logits, batch.target)
        log_odds = self.emit_log_odds(source.transition, target.transition).to(log_word.dtype)
        rows = torch.arange(log_odds.shape[1], device=log_odds.device)
        log_emit, log_shift = self.split_odds(log_odds, rows[:, None] == batch.source_lengths[:, None, None] - 1)
        return Moves(log_emit + log_word, log_shift)

    def read(self, source: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Side:
        """The input's part of every cell."""
        states = self.encoder(source, lengths)
        return Side(self.source_logits(states), self.transition.source_units(states))

    def read_on(self, tokens: Int[Tensor, " N"], state: LSTMState | None = None) -> tuple[Side, LSTMState]:
        """The part of one more input token, and the state to go on from; for unidirectional encoders."""
        states, state = self.encoder.step(tokens, state)
        return Side(self.source_logits(states), self.transition.source_units(states)), state

    def follow(self, prefix: Int[Tensor, "N J"], state: LSTMState | None = None) -> tuple[Side, LSTMState]:
        """The output's part after each token of the prefix, and the state to go on from."""
        states, state = self.decoder(prefix, state)
        return Side(self.target_logits(states), self.transition.target_units(states)), state

    def split_odds(
        self, log_odds: Float[Tensor, "*cells"], in_last_row: Bool[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
        """Log probabilities of emit and shift; emit is certain in the last row if it is forced there."""
        log_emit, log_shift = logsigmoid(log_odds), logsigmoid(-log_odds)
        if self.final_emit_forced:
            log_emit = log_emit.masked_fill(in_last_row, 0.0)
        return log_emit, log_shift

    def emit_log_odds(self, source: Float[Tensor, "B I T"], target: Float[Tensor, "B J T"]) -> Float[Tensor, "B I J"]:
        """Log odds of every cell, some columns at a time where nothing is kept for a gradient."""
        B, I, T = source.shape
        at_once = target.shape[1] if torch.is_grad_enabled() else _TRANSITION_NUMBERS // max(1, B * I * T)
        parts = target.split(max(1, at_once), dim=1)
        return torch.cat([self.transition.all_log_odds(source, part) for part in parts], 2)
