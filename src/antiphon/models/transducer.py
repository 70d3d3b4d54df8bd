"""Segment-to-segment neural transduction: a latent monotone alignment, summed out exactly.

    h_i               state of the source at position i, unidirectional or bidirectional: of an LSTM or a transformer
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i (``nn/source_attention.py``)
    token(i, j)       softmax(W_h h_i + W_s s_j + b) at y_j
    emit(i, j)        sigmoid(v . tanh(T_h h_i + T_s s_j + c) + d), or one constant (geometric)
    shift(i, j)       1 - emit(i, j)

If there are features, their vector is added to the embedding of every token of both sides. Source tokens can be tied
to target tokens: to the same ones, or to those that they occur with most often. The transition model then sees whether
the token that ``x_i`` is tied to has just been written (``nn/transition.py``). If they are the same, unknown tokens can
be copied (``models/left_to_right.py``). With ``copy_words`` the token of a cell may be a copy of ``x_i``, whether the
vocabulary has it or not (``nn/copying.py``).

Thesis: chapter 5. The four models it names are the choices of ``encoder`` (uni, bi) and ``transition`` (geometric;
neural, there marked ``+``).
"""

import math
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from antiphon.data.batch import Batch
from antiphon.data.copied_words import NOT_COPIED
from antiphon.data.vocab import END, NO_COUNTERPART, PAD
from antiphon.lattice import log_marginal
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.lattice.recurrence import forward_along
from antiphon.nn.cell_factors import CausalState, CellFactors, SideState, no_keys, run_keys
from antiphon.nn.copying import CellCopies, CopyTable, in_vocabulary
from antiphon.nn.cuda_streams import run_concurrently
from antiphon.nn.factored_softmax import has_kernel, log_token_probabilities
from antiphon.nn.next_tokens import TokenTable, kernels_fit, next_tokens
from antiphon.nn.recurrent import FeatureEmbedding, PrefixEncoder, Sizes, SourceEncoder, valid_positions
from antiphon.nn.source_attention import SourceAttention, SourceContext
from antiphon.nn.token_logits import TokenLogits
from antiphon.nn.transformer_encoder import TransformerEncoder
from antiphon.nn.transformer_layers import LayerSizes
from antiphon.nn.transition import GeometricTransition, NeuralTransition, TransitionTable

_TRANSITION_ELEMENTS = 2**26
"""Elements of the hidden transition units that are computed at once when no gradient is needed."""
_BANDED_FROM = 48
"""Longer inputs are decoded in a band of rows: those in which any prefix has probability."""
_ROWS_AHEAD = 16
"""Rows added to the band when probability reaches its last row; doubled until it does not."""


SourceState = SideState | CausalState
"""The source side of a unidirectional transducer after some tokens, read by an LSTM or by a transformer."""


class Moves(NamedTuple):
    """Log scores of the two moves of the lattice, ``write = emit * token``."""

    log_write: Float[Tensor, "B I J"]
    log_shift: Float[Tensor, "B I J"]


class TransducerMemory(NamedTuple):
    """What is computed once per source: token logits and transition units of every row."""

    token_table: TokenTable
    transition: TransitionTable
    context: SourceContext | None
    lengths: Int[Tensor, " B"]
    end_logits: Float[Tensor, " B"]
    first_end: int
    """The first row in which a source ends."""
    copies: CopyTable | None


class TransducerState(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row from ``first_row`` on for the next token.

    ``log_weight(n, i) = log ready(n, i) - log Z(i, n)``, where ``ready`` is the probability, given the prefix, of
    writing next in row ``i``. Token ``y`` is then written there in proportion to ``exp(log_weight + A[i, y])``; where
    words are copied, this depends on ``C[n, y]`` too, which is computed from ``output``.
    """

    decoder: SideState
    log_weight: Float[Tensor, "N R"]
    first_row: int
    output: Float[Tensor, "N K"]


class Transducer(nn.Module):
    """p(y | x) as the sum over all monotone alignments."""

    counterparts: Tensor

    def __init__(
        self,
        source_size: int,
        target_size: int,
        feature_size: int = 0,
        *,
        encoder: Literal["unidirectional", "bidirectional"],
        encoder_network: Literal["lstm", "transformer"],
        encoder_layers: int,
        encoder_heads: int,
        encoder_feedforward_size: int,
        transition: Literal["geometric", "neural"],
        final_emit: Literal["learned", "forced"],
        tie: Literal["none", "same", "associated"],
        context: Literal["none", "attention"],
        copy_words: bool,
        hidden_size: int,
        embedding_size: int,
        layers: int,
        dropout: float,
        forget_bias: float,
        emit_probability: float = 0.5,
        counterparts: Int[Tensor, " S"] | None = None,
    ) -> None:
        """``counterparts`` has the target id that every source token is tied to, or ``NO_COUNTERPART``.

        ``encoder_layers``, ``encoder_heads`` and ``encoder_feedforward_size`` are those of a transformer as encoder.
        """
        super().__init__()
        sizes = Sizes(embedding_size, hidden_size, layers, dropout, forget_bias)
        bidirectional = encoder == "bidirectional"
        self.encoder: SourceEncoder | TransformerEncoder = (
            SourceEncoder(source_size, sizes, bidirectional=bidirectional)
            if encoder_network == "lstm"
            else TransformerEncoder(
                source_size,
                LayerSizes(hidden_size, encoder_heads, encoder_feedforward_size, dropout),
                encoder_layers,
                bidirectional=bidirectional,
            )
        )
        self.decoder = PrefixEncoder(target_size, sizes)
        self.source_features = FeatureEmbedding(feature_size, self.encoder.embedding_size) if feature_size else None
        self.target_features = FeatureEmbedding(feature_size, embedding_size) if feature_size else None
        self.attention = (
            SourceAttention(hidden_size, self.encoder.output_size, dropout) if context == "attention" else None
        )
        self.target_size, self.copies_words = target_size, copy_words
        self.copies = tie == "same" and not copy_words
        self._ties_words = tie == "same" and copy_words
        if counterparts is None:
            counterparts = torch.full((source_size,), NO_COUNTERPART)
        self.register_buffer("counterparts", counterparts, persistent=tie != "none")
        classes = target_size + copy_words
        self.source_logits = TokenLogits(self.encoder.output_size, classes, bias=False)
        self.target_logits = TokenLogits(hidden_size, classes)
        self.final_emit_forced = final_emit == "forced"
        self.transition: NeuralTransition | GeometricTransition = (
            NeuralTransition(self.encoder.output_size, hidden_size, units=hidden_size, compares=tie != "none")
            if transition == "neural"
            else GeometricTransition(emit_probability)
        )

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair: the same as ``log_prob``."""
        return self.log_prob(batch)

    def log_prob(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair."""
        return log_marginal(*self.moves(batch), batch.source_lengths, batch.target_lengths)

    def moves(self, batch: Batch) -> Moves:
        """The log scores of both moves in every cell."""
        (source, context), (states, keys, _) = run_concurrently(
            lambda: self.encode(batch),
            lambda: self._read_prefix(batch.shifted_target, self.target_state(batch.features)),
            side_stream=0,
        )
        target = self._target_factors(self._attend(states, context), keys)
        log_token = self._log_token(source, target, batch)
        log_odds = self.emit_log_odds(source.transition, target.transition).to(log_token.dtype)
        rows = torch.arange(log_odds.shape[1], device=log_odds.device)
        log_emit, log_shift = self.split_odds(log_odds, rows[:, None] == batch.source_lengths[:, None, None] - 1)
        return Moves(log_emit + log_token, log_shift)

    def _log_token(self, source: CellFactors, target: CellFactors, batch: Batch) -> Float[Tensor, "B I J"]:
        """The log probability of every cell's token."""
        if not self.copies_words:
            return log_token_probabilities(source.logits, target.logits, batch.target)
        copies = CellCopies.of(self.copied_words(batch), batch.target, self.target_size)
        known = in_vocabulary(batch.target, self.target_size)
        return log_token_probabilities(source.logits, target.logits, known, copies)

    def copied_words(self, batch: Batch) -> Int[Tensor, "B I"]:
        """The target id of every source token that can be copied; of a batch that does not name them, none can."""
        return batch.copied if batch.copied.shape[1] else torch.full_like(batch.source, NOT_COPIED)

    def source_state(self, features: Int[Tensor, "N F"], room: int = 0) -> SourceState:
        """The source side before its first token; one that grows has room for ``room`` tokens from the start."""
        vectors = self._source_vectors(features)
        if isinstance(self.encoder, TransformerEncoder):
            return CausalState.initial(self.encoder.initial_cache(len(features), room), vectors)
        return SideState.initial(self.encoder.initial_state(len(features))[0], vectors)

    def _source_vectors(self, features: Int[Tensor, "N F"]) -> Float[Tensor, "N E"] | None:
        return None if self.source_features is None else self.source_features(features)

    def target_state(self, features: Int[Tensor, "N F"]) -> SideState:
        """The target side before the start symbol."""
        vectors = None if self.target_features is None else self.target_features(features)
        return SideState.initial(self.decoder.initial_state(len(features))[0], vectors)

    def encode(self, batch: Batch) -> tuple[CellFactors, SourceContext | None]:
        """The source's contribution to every cell, and what the decoder attends to, if it does."""
        states = self.encoder(batch.source, batch.source_lengths, self._source_vectors(batch.features))
        tied = self.copied_words(batch) if self._ties_words else self.counterparts[batch.source]
        keys = run_keys(tied, no_keys(batch.source_lengths))
        factors = CellFactors(self.source_logits(states), self.transition.source_part(states, keys))
        if self.attention is None:
            return factors, None
        return factors, SourceContext(states, valid_positions(batch.source_lengths, states.shape[1]))

    def encode_step(
        self, tokens: Int[Tensor, " N"], state: SourceState, copied: Int[Tensor, " N"] | None = None
    ) -> tuple[CellFactors, SourceState]:
        """The contribution of one more source token, and the state to continue from; for unidirectional encoders.

        ``copied`` has the target id of each, for models that copy words.
        """
        tied = copied if self._ties_words and copied is not None else self.counterparts[tokens]
        key = run_keys(tied[:, None], state.key)[:, 0]
        after: SourceState
        if isinstance(state, CausalState):
            states, cache = cast(TransformerEncoder, self.encoder).step(tokens, state.cache, state.features)
            after = CausalState(cache, key, state.features)
        else:
            before = state.hidden, state.cell
            states, (hidden, cell) = cast(SourceEncoder, self.encoder).step(tokens, before, state.features)
            after = SideState(hidden, cell, key, state.features)
        return CellFactors(self.source_logits(states), self.transition.source_part(states, key)), after

    def decode_prefix(
        self, prefix: Int[Tensor, "N J"], state: SideState, context: SourceContext | None = None
    ) -> tuple[CellFactors, SideState]:
        """The target's contribution after each token of the prefix, and the state to continue from.

        ``context`` is the source of each prefix, for models that attend to it.
        """
        states, keys, after = self._read_prefix(prefix, state)
        return self._target_factors(self._attend(states, context), keys), after

    def _read_prefix(
        self, prefix: Int[Tensor, "N J"], state: SideState
    ) -> tuple[Float[Tensor, "N J H"], Int[Tensor, "N J"], SideState]:
        """The decoder's state and the key after each token of the prefix, and the state to continue from."""
        known = in_vocabulary(prefix, self.target_size) if self.copies_words else prefix
        states, (hidden, cell) = self.decoder(known, (state.hidden, state.cell), state.features)
        keys = run_keys(prefix, state.key)
        return states, keys, SideState(hidden, cell, keys[:, -1], state.features)

    def _attend(self, states: Float[Tensor, "N J H"], context: SourceContext | None) -> Float[Tensor, "N J H"]:
        """The states of the target after attention to the source, if there is any."""
        return states if self.attention is None else self.attention(states, context)

    def _target_factors(self, states: Float[Tensor, "N J H"], keys: Int[Tensor, "N J"]) -> CellFactors:
        """The target's contribution to every cell."""
        return CellFactors(self.target_logits(states), self.transition.target_part(states, keys))

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
            int(last.amin()) if last.device.type == "cpu" else 0,
            CopyTable.of(self.copied_words(batch), self.target_size) if self.copies_words else None,
        )
        log_weight = factors.logits.new_full((B, 1 if self.is_long(memory) else I), IMPOSSIBLE, dtype=torch.float64)
        log_weight[:, 0] = 0.0
        decoder = self.target_state(batch.features)
        return memory, TransducerState(decoder, log_weight, 0, self._kept_output(decoder.hidden[-1]))

    def step(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], TransducerState]:
        """``log P(y | prefix)`` for every next token ``y``, all alignments summed, and the state to continue from.

        arrive(i)  probability, given the prefix, that its last token was written in row i
        ready(i)   = emit(i) * sum over r <= i of arrive(r) * product of shift(r..i-1)
        P(y)       = sum_i ready(i) token(y | i),  the end symbol only in the last row

        Not in the thesis, whose search follows single paths (section 5.4).
        """
        context = None if memory.context is None else memory.context.select(sentence)
        states, keys, decoder = self._read_prefix(tokens[:, None], state.decoder)
        output = self._attend(states, context)
        factors = self._target_factors(output, keys)
        logits, units = factors.logits[:, 0], factors.transition[:, 0]
        first_row, log_ready = self._log_ready(memory, state, tokens, units, sentence)
        found = next_tokens(memory.token_table, first_row, logits, sentence, log_ready)
        after = TransducerState(decoder, log_ready - found.log_z, first_row, self._kept_output(output[:, 0]))
        found.log_prob[:, END] = self._log_end(memory, after, logits, sentence).to(logits.dtype)
        if memory.copies is None:
            return found.log_prob, after
        log_copy = after.log_weight + self._log_copy_parts(memory, after, sentence) + logits[:, self.target_size, None]
        tokens_only = found.log_prob[:, : self.target_size]
        return memory.copies.add_copies(tokens_only, log_copy, first_row, sentence), after

    def _kept_output(self, output: Float[Tensor, "N H"]) -> Float[Tensor, "N K"]:
        """What is kept of the states that target logits are computed from: nothing if words are not copied."""
        return output if self.copies_words else output[:, :0]

    def _log_copy_parts(
        self, memory: TransducerMemory, state: TransducerState, sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N R"]:
        """The source's part of the logit of copying in the rows of the band."""
        band = slice(state.first_row, state.first_row + state.log_weight.shape[1])
        return memory.token_table.logits[:, band, self.target_size][sentence]

    def select(self, state: TransducerState, index: Int[Tensor, " N"]) -> TransducerState:
        """The states of some prefixes."""
        log_weight, output = (part.index_select(0, index) for part in (state.log_weight, state.output))
        return TransducerState(state.decoder.select(index), log_weight, state.first_row, output)

    def is_long(self, memory: TransducerMemory) -> bool:
        """Whether decoding is limited to a band of rows; shapes then depend on the data."""
        logits = memory.token_table.logits
        return logits.shape[1] > _BANDED_FROM and not has_kernel(logits)

    def unfinished_row(self, memory: TransducerMemory, state: TransducerState) -> int | None:
        """The row in which prefixes will most probably write next, or None if a source ends there."""
        row = state.first_row + int(state.log_weight.amax(0).argmax()) if len(state.log_weight) else 0
        return row if row < memory.first_end else None

    def log_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        parent: Int[Tensor, " N"] | slice,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[int, Float[Tensor, "N R"]]:
        """The first row of the band, and ``log arrive(i)`` of the rows after one more token of each parent."""
        log_weight = state.log_weight[parent]
        band = slice(state.first_row, state.first_row + log_weight.shape[1])
        known = tokens if memory.copies is None else in_vocabulary(tokens, self.target_size)
        log_written = log_weight + memory.token_table.logits[:, band][sentence, :, known]
        if memory.copies is not None:
            parts = self._log_copy_parts(memory, state, sentence)
            is_copy = memory.copies.copied[:, band][sentence] == tokens[:, None]
            log_odds = self._log_odds_of_copying(state.output[parent], known)
            log_copied = (log_weight + parts + log_odds[:, None]).masked_fill(~is_copy, IMPOSSIBLE)
            only_copied = (tokens >= self.target_size)[:, None]
            log_written = torch.logaddexp(log_written.masked_fill(only_copied, IMPOSSIBLE), log_copied)
        return state.first_row, log_written.log_softmax(1)

    def _log_odds_of_copying(self, output: Float[Tensor, "N H"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """``C[n, copy] - C[n, y]``: the target's part of copying instead of writing a token."""
        weight, bias = self.target_logits.weight, self.target_logits.bias
        per_token = weight[self.target_size] - weight[tokens]
        return (output * per_token).sum(1) + bias[self.target_size] - bias[tokens]

    def _log_ready(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[int, Float[Tensor, "N R"]]:
        """``log ready(i)`` after these tokens in a band of rows, and the first row of the band."""
        is_plain = not (memory.transition.rest.shape[-1] or memory.transition.is_exponential or memory.copies)
        if is_plain and kernels_fit(units, sentence, len(memory.lengths)):
            from antiphon.models import ready_rows_triton

            table, readout = memory.token_table.logits, self.transition.readout
            given = state.log_weight, table, tokens, memory.transition.units, units, readout, memory.lengths
            return 0, ready_rows_triton.log_ready(*given, final_emit_forced=self.final_emit_forced, padding=PAD)
        first_row, log_arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        if not self.is_long(memory):
            return 0, self._log_forward(memory, 0, log_arrive, units, sentence)[1]
        negligible = _log_negligible(units.dtype)
        I, ahead = memory.token_table.logits.shape[1], _ROWS_AHEAD
        log_forward, log_ready = self._log_forward(memory, first_row, log_arrive, units, sentence)
        while first_row + log_arrive.shape[1] < I and log_forward[:, -1].amax() >= negligible:
            log_arrive = pad(log_arrive, (0, min(ahead, I - first_row - log_arrive.shape[1])), value=IMPOSSIBLE)
            log_forward, log_ready = self._log_forward(memory, first_row, log_arrive, units, sentence)
            ahead *= 2
        if log_ready.shape[1] <= _BANDED_FROM:
            return first_row, log_ready
        has_mass = (log_ready > negligible).any(0).nonzero()[:, 0]
        first, stop = (int(has_mass[0]), int(has_mass[-1]) + 1) if len(has_mass) else (0, 1)
        return first_row + first, log_ready[:, first:stop]

    def _log_forward(
        self,
        memory: TransducerMemory,
        first_row: int,
        log_arrive: Float[Tensor, "N R"],
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
        """Log probabilities of reaching each row after the prefix, and of writing there next."""
        stop = first_row + log_arrive.shape[1]
        log_odds = self.transition.log_odds_by_sentence(memory.transition, slice(first_row, stop), units, sentence)
        if stop <= memory.first_end:
            log_forward = forward_along(log_arrive, logsigmoid(-log_odds).double())
            return log_forward, log_forward + logsigmoid(log_odds)
        rows_left = memory.lengths[sentence, None] - 1 - torch.arange(first_row, stop, device=units.device)
        log_emit, log_shift = self.split_odds(log_odds, rows_left == 0)
        log_forward = forward_along(log_arrive, log_shift.double()).masked_fill(rows_left < 0, IMPOSSIBLE)
        return log_forward, log_forward + log_emit

    def _log_end(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        logits: Float[Tensor, "N V"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, " N"]:
        """Log probability of the end symbol, which can be written only in the last row."""
        R = state.log_weight.shape[1]
        if state.first_row + R <= memory.first_end:
            return torch.full_like(state.log_weight[:, 0], IMPOSSIBLE)
        column = memory.lengths[sentence] - 1 - state.first_row
        log_weight = state.log_weight.gather(1, column.clamp(0, R - 1)[:, None])[:, 0]
        log_end = log_weight + memory.end_logits[sentence] + logits[:, END]
        return log_end.masked_fill((column < 0) | (column >= R), IMPOSSIBLE)

    def split_odds(
        self, log_odds: Float[Tensor, "*cells"], in_last_row: Bool[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
        """Log probabilities of emit and shift; emit is certain in the last row if it is forced there."""
        log_emit, log_shift = logsigmoid(log_odds), logsigmoid(-log_odds)
        if self.final_emit_forced:
            log_emit = log_emit.masked_fill(in_last_row, 0.0)
        return log_emit, log_shift

    def emit_log_odds(self, source: Float[Tensor, "B I T"], target: Float[Tensor, "B J T"]) -> Float[Tensor, "B I J"]:
        """Log odds of every cell; without gradients, some columns at a time."""
        B, I, T = source.shape
        at_once = target.shape[1] if torch.is_grad_enabled() else _TRANSITION_ELEMENTS // max(1, B * I * T)
        parts = target.split(max(1, at_once), dim=1)
        return torch.cat([self.transition.all_log_odds(source, part) for part in parts], 2)


def _log_negligible(dtype: torch.dtype) -> float:
    """Log of the share of a prefix's probability below which a row is dropped from the band."""
    return 2 * math.log(torch.finfo(dtype).eps)
