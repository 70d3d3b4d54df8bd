"""Segment-to-segment neural transduction: a latent monotone alignment, summed out exactly.

    h_i               state of the source at position i, unidirectional or bidirectional
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i
    token(i, j)       softmax(W_h h_i + W_s s_j + b) at y_j
    emit(i, j)        sigmoid(v . tanh(T_h h_i + T_s s_j + c) + d), or one constant (geometric)
    read(i, j)        1 - emit(i, j)

The logits of a cell are a sum of what source and target contribute, and so is its transition. With a tied output
``W_s`` is also the table of target embeddings, and ``W_h = W_s P``: one vector for each word. If there are features,
their vector is added to the embedding of every token of both sides.

If both sides share their tokens, unknown tokens can be copied (``models/left_to_right.py``). With ``copy_words`` the
token of a cell may be a copy of ``x_i``, whether the vocabulary has it or not (``nn/copying.py``).

A right-to-left twin (``TwoWayTransducer``) reads and writes everything from the end; an output has the mean of what
both give it. Its mistakes are others, since it knows the end of an output when it writes the beginning::

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2

Streams, alignments and samples are those of the left-to-right half, which is a plain transducer.

Thesis: chapter 4. The four models it names are the choices of ``encoder`` (uni, bi) and ``transition`` (geometric;
neural, there marked ``+``).
"""

from dataclasses import dataclass
from math import log
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.device import run_concurrently
from antiphon.lattice import Moves, log_marginal
from antiphon.lattice.paths import IMPOSSIBLE, forward_along, moves_of_cells, split_odds
from antiphon.models.left_to_right import LeftToRight, select
from antiphon.nn.copying import CellCopies, CopyTable, copies_as_unknown
from antiphon.nn.factored_softmax import TokenTable, kernels_fit, log_token_probabilities, next_tokens, smoothing_term
from antiphon.nn.recurrent import FeatureEmbedding, LSTMSizes, LSTMState, PrefixEncoder, SourceEncoder, valid_positions
from antiphon.nn.transducer_layers import (
    GeometricTransition,
    NeuralTransition,
    SourceAttention,
    SourceContext,
    TokenLogits,
    TransitionTable,
)
from antiphon.torch_free.vocab import END, NOT_COPIED, PAD

_CPU_ELEMENTS, _GPU_ELEMENTS = 2**23, 2**26
"""Elements of the hidden transition units that are computed at once when no gradient is needed."""


class CellFactors(NamedTuple):
    """What one side of a cell contributes: token logits, and its part of the transition."""

    logits: Float[Tensor, "... V"]
    transition: Float[Tensor, "... T"]


class SideState(NamedTuple):
    """One side after some tokens: the state of its LSTM, and the vector of its features, if any."""

    network: LSTMState
    features: Float[Tensor, "N E"] | None


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


class TransducerMemory(NamedTuple):
    """What is computed once per source: token logits and transition units of every row."""

    token_table: TokenTable
    transition: TransitionTable
    context: SourceContext | None
    lengths: Int[Tensor, " B"]
    end_logits: Float[Tensor, " B"]
    copy_table: CopyTable | None


class TransducerState(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row for the next token.

    ``log_weight(n, i) = log write(n, i) - log Z(i, n)``, where ``write`` is the probability, given the prefix, of
    writing next in row ``i``. Token ``y`` is then written there in proportion to ``exp(log_weight + A[i, y])``; where
    words are copied, this depends on ``C[n, y]`` too, which is computed from ``output``.
    """

    decoder: SideState
    log_weight: Float[Tensor, "N I"]
    output: Float[Tensor, "N K"]


class ForwardRows(NamedTuple):
    """Log scores in every row of the column after each prefix, of which a kernel computes only the first.

    They are those of writing next in a row, of having written the last token there, of reaching it, and of reading.
    """

    log_write: Float[Tensor, "N I"]
    log_arrive: Float[Tensor, "N I"] | None = None
    log_forward: Float[Tensor, "N I"] | None = None
    log_read: Float[Tensor, "N I"] | None = None


class Transducer(LeftToRight):
    """p(y | x) as the sum over all monotone alignments; keyword arguments are ``TransducerSettings``."""

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

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training, with the gradient of label smoothing where tokens are written."""
        return log_marginal(*self.moves(batch, label_smoothing), batch.source_lengths, batch.target_lengths)

    def moves(self, batch: Batch, label_smoothing: float = 0.0) -> Moves:
        """The log scores of both moves in every cell.

        Label smoothing adds its gradient alone, so each cell's is weighted by the probability that the token is written
        there, while the sum over alignments stays that of the model. If the scores had it too, alignments through cells
        that know little would win (docs/experiments.md).
        """
        (source, context), (states, _) = run_concurrently(
            lambda: self.encode(batch),
            lambda: self.read_prefix(batch.shifted_target, self.target_state(batch.features)),
            side_stream=0,
        )
        target = self.target_factors(self.attend(states, context))
        log_token = self._log_token(source, target, batch)
        if label_smoothing:
            log_token = log_token + label_smoothing * _gradient_alone(self._smoothing(source, target, batch.target))
        log_odds = self.emit_log_odds(source.transition, target.transition).to(log_token.dtype)
        return moves_of_cells(log_token, log_odds, batch.source_lengths, final_write_forced=self.final_write_forced)

    def _log_token(self, source: CellFactors, target: CellFactors, batch: Batch) -> Float[Tensor, "B I J"]:
        """The log probability of every cell's token."""
        if not self.copies_words:
            return log_token_probabilities(source.logits, target.logits, batch.target)
        copies = CellCopies.of(self.copied_words(batch), batch.target, self.target_size)
        known = copies_as_unknown(batch.target, self.target_size)
        return log_token_probabilities(source.logits, target.logits, known, copies)

    def _smoothing(
        self, source: CellFactors, target: CellFactors, targets: Int[Tensor, "B J"]
    ) -> Float[Tensor, "B I J"]:
        """What label smoothing adds in each cell; nothing to a word that can only be copied."""
        known = copies_as_unknown(targets, self.target_size) if self.copies_words else targets
        classes = self.target_logits.out_features  # without the padding of ``TokenLogits``
        added = smoothing_term(source.logits[:, :, :classes], target.logits[:, :, :classes], known)
        return added.masked_fill((targets >= self.target_size)[:, None], 0.0)

    def start(self, batch: Batch) -> tuple[TransducerMemory, TransducerState]:
        """The sources, encoded, and the state before the start symbol, with all probability in the first row."""
        factors, context = self.encode(batch)
        B, I, _ = factors.logits.shape
        last = batch.source_lengths - 1
        memory = TransducerMemory(
            TokenTable.of(factors.logits),
            self.transition.table(factors.transition),
            context,
            batch.source_lengths,
            factors.logits[torch.arange(B, device=last.device), last, END],
            CopyTable.of(self.copied_words(batch), self.target_size) if self.copies_words else None,
        )
        log_weight = factors.logits.new_full((B, I), IMPOSSIBLE, dtype=torch.float64)
        log_weight[:, 0] = 0.0
        decoder = self.target_state(batch.features)
        return memory, TransducerState(decoder, log_weight, self._kept_output(decoder.network.hidden[-1]))

    def step(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], TransducerState]:
        """``log P(y | prefix)`` for every next token ``y``, all alignments summed, and the state to continue from.

        arrive(i)  probability, given the prefix, that its last token was written in row i
        write(i)   = emit(i) * sum over r <= i of arrive(r) * product of read(r..i-1)
        P(y)       = sum_i write(i) token(y | i),  the end symbol only in the last row

        Not in the thesis, whose search follows single paths (section 4.5).
        """
        log_next, after, _ = self.aligning_step(memory, state, tokens, sentence)
        return log_next, after

    def aligning_step(
        self, memory: TransducerMemory, state: TransducerState, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], TransducerState, ForwardRows]:
        """The same, and the scores of the rows, from which a best path can be found."""
        context = select(memory.context, sentence)
        states, decoder = self.read_prefix(tokens[:, None], state.decoder)
        output = self.attend(states, context)
        factors = self.target_factors(output)
        logits, units = factors.logits[:, 0], factors.transition[:, 0]
        rows = self._forward_rows(memory, state, tokens, units, sentence)
        found = next_tokens(memory.token_table, logits, sentence, rows.log_write)
        after = TransducerState(decoder, rows.log_write - found.log_z, self._kept_output(output[:, 0]))
        found.log_prob[:, END] = self._log_end(memory, after, logits, sentence).to(logits.dtype)
        if memory.copy_table is None:
            return found.log_prob, after, rows
        log_copy = after.log_weight + self._copy_logits(memory, sentence) + logits[:, self.target_size, None]
        tokens_only = found.log_prob[:, : self.target_size]
        return memory.copy_table.add_copies(tokens_only, log_copy, sentence), after, rows

    def _kept_output(self, output: Float[Tensor, "N H"]) -> Float[Tensor, "N K"]:
        """What is kept of the states that target logits are computed from: nothing if words are not copied."""
        return output if self.copies_words else output[:, :0]

    def _copy_logits(self, memory: TransducerMemory, sentence: Int[Tensor, " N"]) -> Float[Tensor, "N I"]:
        """The source's part of the logit of copying in every row."""
        return memory.token_table.logits[:, :, self.target_size][sentence]

    def next_rows(self, state: TransducerState) -> Int[Tensor, " N"]:
        """The row in which each prefix will most probably write next."""
        return state.log_weight.argmax(1)

    def log_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        parent: Int[Tensor, " N"] | slice,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, "N I"]:
        """``log arrive(i)`` after one more token of each parent."""
        log_weight = state.log_weight[parent]
        known = tokens if memory.copy_table is None else copies_as_unknown(tokens, self.target_size)
        log_written = log_weight + memory.token_table.logits_of(known, sentence)
        if memory.copy_table is not None:
            copy_logits = self._copy_logits(memory, sentence)
            is_copy = memory.copy_table.copied[sentence] == tokens[:, None]
            log_odds = self._log_odds_of_copying(state.output[parent], known)
            log_copied = (log_weight + copy_logits + log_odds[:, None]).masked_fill(~is_copy, IMPOSSIBLE)
            only_copied = (tokens >= self.target_size)[:, None]
            log_written = torch.logaddexp(log_written.masked_fill(only_copied, IMPOSSIBLE), log_copied)
        return log_written.log_softmax(1)

    def _log_odds_of_copying(self, output: Float[Tensor, "N H"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """``C[n, copy] - C[n, y]``: the target's part of copying instead of writing a token."""
        weight, bias = self.target_logits.weight, self.target_logits.bias
        per_token = weight[self.target_size] - weight[tokens]
        return (output * per_token).sum(1) + bias[self.target_size] - bias[tokens]

    def _forward_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> ForwardRows:
        """The scores of all rows after these tokens.

        forward(i) = sum over r <= i of arrive(r) * product of read(r..i-1),  write(i) = forward(i) * emit(i)
        """
        kernel_suffices = memory.copy_table is None and not memory.transition.is_exponential
        if kernel_suffices and kernels_fit(units, sentence, len(memory.lengths)):
            from antiphon.nn import next_tokens_triton

            table, readout = memory.token_table.logits, self.transition.readout
            given = state.log_weight, table, tokens, memory.transition.units, units, readout, memory.lengths
            log_write = next_tokens_triton.log_write(*given, final_write_forced=self.final_write_forced, padding=PAD)
            return ForwardRows(log_write)
        log_arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        log_odds = self.transition.log_odds_by_sentence(memory.transition, units, sentence)
        rows_left = memory.lengths[sentence, None] - 1 - torch.arange(log_odds.shape[1], device=units.device)
        log_emit, log_read = self.split_odds(log_odds, rows_left == 0)
        log_forward = forward_along(log_arrive, log_read.double()).masked_fill(rows_left < 0, IMPOSSIBLE)
        return ForwardRows(log_forward + log_emit, log_arrive, log_forward, log_read)

    def _log_end(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        logits: Float[Tensor, "N V"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, " N"]:
        """Log probability of the end symbol, which can be written only in the last row."""
        log_weight = state.log_weight.gather(1, memory.lengths[sentence, None] - 1)[:, 0]
        return log_weight + memory.end_logits[sentence] + logits[:, END]


def _gradient_alone(added: Tensor) -> Tensor:
    """Zeros with the gradient of a tensor."""
    return added - added.detach()


class TwoWayTransducer(Transducer):
    """The left-to-right transducer, with ``reverse`` as its twin."""

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__(source_size, target_size, feature_size, **settings)
        self.reverse = Transducer(source_size, target_size, feature_size, **settings)

    @property
    def twin(self) -> Transducer:
        """The right-to-left half."""
        return self.reverse

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training the mean of both logs, a lower bound, so that both learn it."""
        forward = super().log_prob(batch, label_smoothing)
        backward = self.reverse.log_prob(batch.reversed(), label_smoothing)
        return (forward + backward) / 2 if self.training else torch.logaddexp(forward, backward) - log(2)


def _vectors(table: FeatureEmbedding | None, features: Int[Tensor, "N F"]) -> Float[Tensor, "N E"] | None:
    """The vector that the features of each pair add to its tokens; None if the model reads no features."""
    return None if table is None else table(features)
