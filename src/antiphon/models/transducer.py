"""Segment-to-segment neural transduction: a latent monotone alignment, summed out exactly.

    h_i               state of the source at position i, unidirectional or bidirectional: of an LSTM or a transformer
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i
    token(i, j)       softmax(W_h h_i + W_s s_j + b) at y_j
    emit(i, j)        sigmoid(v . tanh(T_h h_i + T_s s_j + c) + d), or one constant (geometric)
    read(i, j)        1 - emit(i, j)

What source and target contribute to a cell is computed by ``models/transducer_network.py``, features included. If
both sides share their tokens, unknown tokens can be copied (``models/left_to_right.py``). With
``copy_words`` the token of a cell may be a copy of ``x_i``, whether the vocabulary has it or not (``nn/copying.py``).

Thesis: chapter 4. The four models it names are the choices of ``encoder`` (uni, bi) and ``transition`` (geometric;
neural, there marked ``+``).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from antiphon.data.batch import Batch
from antiphon.device import is_traced, run_concurrently
from antiphon.lattice import Moves, log_marginal
from antiphon.lattice.paths import IMPOSSIBLE, forward_along, moves_of_cells
from antiphon.models.left_to_right import RowBand
from antiphon.models.transducer_network import CellFactors, SideState, SourceContext, TransducerNetwork
from antiphon.nn.copying import CellCopies, CopyTable, copies_as_unknown
from antiphon.nn.factored_softmax import has_kernel, log_token_probabilities, smoothing_term
from antiphon.nn.next_tokens import TokenTable, kernels_fit, next_tokens, rows_from
from antiphon.nn.transition import TransitionTable
from antiphon.torch_free.hypothesis import LONG_SOURCE
from antiphon.torch_free.vocab import END, PAD

_ROWS_AHEAD = 16
"""Rows added to the band when probability reaches its last row; doubled until it does not."""


class TransducerMemory(NamedTuple):
    """What is computed once per source: token logits and transition units of every row."""

    token_table: TokenTable
    transition: TransitionTable
    context: SourceContext | None
    lengths: Int[Tensor, " B"]
    end_logits: Float[Tensor, " B"]
    first_end: int
    """No source ends before this row: the first in which one does, or 0 on a GPU, which saves a device sync."""
    copy_table: CopyTable | None


class TransducerState(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row from ``first_row`` on for the next token.

    ``log_weight(n, i) = log write(n, i) - log Z(i, n)``, where ``write`` is the probability, given the prefix, of
    writing next in row ``i``. Token ``y`` is then written there in proportion to ``exp(log_weight + A[i, y])``; where
    words are copied, this depends on ``C[n, y]`` too, which is computed from ``output``.
    """

    decoder: SideState
    log_weight: Float[Tensor, "N R"]
    first_row: int
    output: Float[Tensor, "N K"]

    @property
    def rows(self) -> slice:
        """The rows that have weights."""
        return rows_from(self.first_row, self.log_weight.shape[1])


class ForwardRows(NamedTuple):
    """Log scores in rows of the column after each prefix, of which a kernel computes only the first.

    They are those of writing next in a row, of having written the last token there, of reaching it, and of reading.
    """

    log_write: Float[Tensor, "N R"]
    log_arrive: Float[Tensor, "N R"] | None = None
    log_forward: Float[Tensor, "N R"] | None = None
    log_read: Float[Tensor, "N R"] | None = None


class Transducer(TransducerNetwork):
    """p(y | x) as the sum over all monotone alignments."""

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair: the same as ``log_prob``."""
        return self.log_prob(batch)

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training, with label smoothing in every cell."""
        return log_marginal(*self.moves(batch, label_smoothing), batch.source_lengths, batch.target_lengths)

    def moves(self, batch: Batch, label_smoothing: float = 0.0) -> Moves:
        """The log scores of both moves in every cell; with label smoothing, they are not probabilities."""
        (source, context), (states, _) = run_concurrently(
            lambda: self.encode(batch),
            lambda: self.read_prefix(batch.shifted_target, self.target_state(batch.features)),
            side_stream=0,
        )
        target = self.target_factors(self.attend(states, context))
        log_token = self._log_token(source, target, batch)
        if label_smoothing:
            log_token = log_token + label_smoothing * self._smoothing(source, target, batch.target)
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
            int(last.amin()) if last.device.type == "cpu" and not is_traced() else 0,
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
        context = None if memory.context is None else memory.context.select(sentence)
        states, decoder = self.read_prefix(tokens[:, None], state.decoder)
        output = self.attend(states, context)
        factors = self.target_factors(output)
        logits, units = factors.logits[:, 0], factors.transition[:, 0]
        first_row, rows = self._forward_rows(memory, state, tokens, units, sentence)
        found = next_tokens(memory.token_table, first_row, logits, sentence, rows.log_write)
        after = TransducerState(decoder, rows.log_write - found.log_z, first_row, self._kept_output(output[:, 0]))
        found.log_prob[:, END] = self._log_end(memory, after, logits, sentence).to(logits.dtype)
        if memory.copy_table is None:
            return found.log_prob, after, rows
        log_copy = after.log_weight + self._copy_logits(memory, after, sentence) + logits[:, self.target_size, None]
        tokens_only = found.log_prob[:, : self.target_size]
        return memory.copy_table.add_copies(tokens_only, log_copy, first_row, sentence), after, rows

    def _kept_output(self, output: Float[Tensor, "N H"]) -> Float[Tensor, "N K"]:
        """What is kept of the states that target logits are computed from: nothing if words are not copied."""
        return output if self.copies_words else output[:, :0]

    def _copy_logits(
        self, memory: TransducerMemory, state: TransducerState, sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N R"]:
        """The source's part of the logit of copying in the rows of the band."""
        return memory.token_table.logits[:, :, self.target_size][:, state.rows][sentence]

    def select(self, state: TransducerState, index: Int[Tensor, " N"]) -> TransducerState:
        """The states of some prefixes."""
        log_weight, output = (part.index_select(0, index) for part in (state.log_weight, state.output))
        return TransducerState(state.decoder.select(index), log_weight, state.first_row, output)

    def is_long(self, memory: TransducerMemory) -> bool:
        """Whether decoding is limited to a band of rows; shapes then depend on the data."""
        logits = memory.token_table.logits
        return logits.shape[1] > LONG_SOURCE and not has_kernel(logits)

    def long_sources(self, memory: TransducerMemory) -> Bool[Tensor, " B"]:
        """Which sources alone would limit decoding to a band of rows."""
        return memory.lengths > LONG_SOURCE

    def next_rows(self, state: TransducerState) -> Int[Tensor, " N"]:
        """The row in which each prefix will most probably write next."""
        return state.first_row + state.log_weight.argmax(1)

    def log_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        parent: Int[Tensor, " N"] | slice,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> RowBand:
        """``log arrive(i)`` after one more token of each parent."""
        log_weight = state.log_weight[parent]
        known = tokens if memory.copy_table is None else copies_as_unknown(tokens, self.target_size)
        log_written = log_weight + memory.token_table.logits_of(known, state.rows, sentence)
        if memory.copy_table is not None:
            copy_logits = self._copy_logits(memory, state, sentence)
            is_copy = memory.copy_table.copied[:, state.rows][sentence] == tokens[:, None]
            log_odds = self._log_odds_of_copying(state.output[parent], known)
            log_copied = (log_weight + copy_logits + log_odds[:, None]).masked_fill(~is_copy, IMPOSSIBLE)
            only_copied = (tokens >= self.target_size)[:, None]
            log_written = torch.logaddexp(log_written.masked_fill(only_copied, IMPOSSIBLE), log_copied)
        return RowBand(state.first_row, log_written.log_softmax(1))

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
    ) -> tuple[int, ForwardRows]:
        """The first row after these tokens, and the scores of rows from it on; of short sources of all rows."""
        kernel_suffices = memory.copy_table is None and not memory.transition.is_exponential
        if kernel_suffices and kernels_fit(units, sentence, len(memory.lengths)):
            from antiphon.nn import next_tokens_triton

            table, readout = memory.token_table.logits, self.transition.readout
            given = state.log_weight, table, tokens, memory.transition.units, units, readout, memory.lengths
            log_write = next_tokens_triton.log_write(*given, final_write_forced=self.final_write_forced, padding=PAD)
            return 0, ForwardRows(log_write)
        arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        if not self.is_long(memory):
            return 0, self._log_forward(memory, arrive, units, sentence)
        return self._forward_band(memory, arrive, units, sentence)

    def _forward_band(
        self,
        memory: TransducerMemory,
        arrive: RowBand,
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[int, ForwardRows]:
        """The same for long sources, given ``log arrive(i)`` in the band of the step before.

        The band grows until a negligible share of the probability reaches its last row; a wide one then loses the rows
        at its ends that have a negligible share.
        """
        negligible = _log_negligible(units.dtype)
        I, ahead = memory.token_table.logits.shape[1], _ROWS_AHEAD
        while True:
            rows = self._log_forward(memory, arrive, units, sentence)
            assert rows.log_forward is not None
            if arrive.stop_row >= I or rows.log_forward[:, -1].amax() < negligible:
                break
            grown = pad(arrive.log_prob, (0, min(ahead, I - arrive.stop_row)), value=IMPOSSIBLE)
            arrive = RowBand(arrive.first_row, grown)
            ahead *= 2
        if rows.log_write.shape[1] <= LONG_SOURCE:
            return arrive.first_row, rows
        has_mass = (rows.log_write > negligible).any(0).nonzero()[:, 0]
        first, stop = (int(has_mass[0]), int(has_mass[-1]) + 1) if len(has_mass) else (0, 1)
        return arrive.first_row + first, ForwardRows(rows.log_write[:, first:stop])

    def _log_forward(
        self,
        memory: TransducerMemory,
        arrive: RowBand,
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> ForwardRows:
        """The scores of the rows of a band.

        forward(i) = sum over r <= i of arrive(r) * product of read(r..i-1),  write(i) = forward(i) * emit(i)
        """
        (first_row, log_arrive), stop = arrive, arrive.stop_row
        rows = rows_from(first_row, log_arrive.shape[1])
        log_odds = self.transition.log_odds_by_sentence(memory.transition, rows, units, sentence)
        if stop <= memory.first_end:
            log_read = logsigmoid(-log_odds).double()
            log_forward = forward_along(log_arrive, log_read)
            return ForwardRows(log_forward + logsigmoid(log_odds), log_arrive, log_forward, log_read)
        rows_left = memory.lengths[sentence, None] - 1 - torch.arange(first_row, stop, device=units.device)
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
        R = state.log_weight.shape[1]
        if state.first_row + R <= memory.first_end:
            return torch.full_like(state.log_weight[:, 0], IMPOSSIBLE)
        column = memory.lengths[sentence] - 1 - state.first_row
        log_weight = state.log_weight.gather(1, column.clamp(0, R - 1)[:, None])[:, 0]
        log_end = log_weight + memory.end_logits[sentence] + logits[:, END]
        return log_end.masked_fill((column < 0) | (column >= R), IMPOSSIBLE)


def _log_negligible(dtype: torch.dtype) -> float:
    """Log of the share of a prefix's probability below which a row is dropped from the band."""
    return 2 * math.log(torch.finfo(dtype).eps)
