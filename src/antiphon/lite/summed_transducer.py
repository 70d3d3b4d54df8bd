"""A transducer that predicts token by token, with all alignments summed: ``models/transducer.py`` in numpy."""

import math
from typing import NamedTuple

import numpy as np

from antiphon.lite.copied_positions import CopyTable, copies_as_unknown
from antiphon.lite.log_space import IMPOSSIBLE, Array, forward_along, log_softmax
from antiphon.lite.step_model import RowBand
from antiphon.lite.token_table import TokenTable, log_normalisers, next_tokens
from antiphon.lite.transducer_graphs import CellFactors, Context, SideState, TransducerGraphs
from antiphon.lite.transition_odds import TransitionTable
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.vocab import END, START

_BANDED_FROM = 48
"""Longer inputs are decoded in a band of rows: those in which any prefix has probability."""
_ROWS_AHEAD = 16
"""Rows added to the band when probability reaches its last row; doubled until it does not."""
_LOG_NEGLIGIBLE = 2 * math.log(np.finfo(np.float32).eps)
"""Log of the share of a prefix's probability below which a row is dropped from the band."""


class TransducerMemory(NamedTuple):
    """What is computed once per source: token logits and transition units of every row.

    ``states`` are those that the decoder attends to, if it does.
    """

    token_table: TokenTable
    transition: TransitionTable
    states: Array | None
    lengths: Array
    copy_table: CopyTable | None


class TransducerState(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row from ``first_row`` on for the next token.

    ``log_weight`` is that of ``models/transducer.py``. ``logits[logit_rows]`` are the target's logits of each
    prefix: few of them are needed, so they are not copied.
    """

    decoder: SideState
    log_weight: Array
    first_row: int
    logits: Array
    logit_rows: Array

    @property
    def rows(self) -> slice:
        """The rows that have weights."""
        return slice(self.first_row, self.first_row + self.log_weight.shape[1])


class SummedTransducer:
    """``p(y | x)`` as the sum over all monotone alignments, token by token."""

    def __init__(self, graphs: TransducerGraphs) -> None:
        self.graphs, self.copies_unknown, self.copies_words = graphs, graphs.copies_unknown, graphs.copies_words

    def start(self, pairs: PaddedPairs) -> tuple[TransducerMemory, TransducerState]:
        """The sources, encoded, and the state before the start symbol, with all probability in the first row."""
        factors, states = self.graphs.encode(pairs)
        B, I, _ = factors.logits.shape
        copies = CopyTable.of(self.graphs.copied_words(pairs), self.graphs.target_size) if self.copies_words else None
        memory = TransducerMemory(
            TokenTable.of(factors.logits),
            self.graphs.transition.table(factors.transition),
            states,
            pairs.source_lengths,
            copies,
        )
        log_weight = np.full((B, 1 if self.is_long(memory) else I), IMPOSSIBLE)
        log_weight[:, 0] = 0.0
        nothing = np.zeros((1, factors.logits.shape[2]), np.float32)
        decoder = self.graphs.target_state(pairs.features)
        return memory, TransducerState(decoder, log_weight, 0, nothing, np.zeros(B, np.int64))

    def step(
        self, memory: TransducerMemory, state: TransducerState, tokens: Array, sentence: Array
    ) -> tuple[Array, TransducerState]:
        """``log P(y | prefix)`` for every next token ``y``, all alignments summed, and the state to continue from."""
        context = None if memory.states is None else Context(memory.states, memory.lengths, sentence)
        factors, decoder = self.graphs.decode_step(tokens, state.decoder, context)
        first_row, log_ready = self._log_ready(memory, state, tokens, factors.transition, sentence)
        rows = slice(first_row, first_row + log_ready.shape[1])
        log_prob, log_z = next_tokens(memory.token_table.slice_rows(rows), factors.logits, sentence, log_ready)
        after = TransducerState(decoder, log_ready - log_z, first_row, factors.logits, np.arange(len(tokens)))
        log_prob[:, END] = self._log_end(memory, after, sentence)
        if memory.copy_table is None:
            return log_prob, after
        size = self.graphs.target_size
        log_copy = after.log_weight + self._copy_logits(memory, after, sentence) + factors.logits[:, size, None]
        return memory.copy_table.add_copies(log_prob[:, :size], log_copy, first_row, sentence), after

    def select(self, state: TransducerState, index: Array) -> TransducerState:
        """The states of some prefixes."""
        return TransducerState(
            state.decoder.select(index), state.log_weight[index], state.first_row, state.logits, state.logit_rows[index]
        )

    def is_long(self, memory: TransducerMemory) -> bool:
        """Whether decoding is limited to a band of rows."""
        return bool(memory.token_table.logits.shape[1] > _BANDED_FROM)

    def long_sources(self, memory: TransducerMemory) -> Array:
        """Which sources alone would limit decoding to a band of rows."""
        return memory.lengths > _BANDED_FROM

    def next_rows(self, state: TransducerState) -> Array:
        """The row in which each prefix will most probably write next."""
        rows: Array = state.first_row + state.log_weight.argmax(1)
        return rows

    def log_rows(
        self, memory: TransducerMemory, state: TransducerState, parent: Array | slice, tokens: Array, sentence: Array
    ) -> RowBand:
        """``log arrive(i)`` after one more token of each parent."""
        log_weight = state.log_weight[parent]
        size = self.graphs.target_size
        known = tokens if memory.copy_table is None else copies_as_unknown(tokens, size)
        log_written = log_weight + memory.token_table.logits[:, state.rows][sentence, :, known]
        if memory.copy_table is not None:
            logits, prefixes = state.logits, state.logit_rows[parent]
            log_odds = logits[prefixes, size] - logits[prefixes, known]
            log_copied = log_weight + self._copy_logits(memory, state, sentence) + log_odds[:, None]
            is_copy = memory.copy_table.copied[:, state.rows][sentence] == tokens[:, None]
            only_copied = (tokens >= size)[:, None]
            log_written = np.logaddexp(
                np.where(only_copied, IMPOSSIBLE, log_written), np.where(is_copy, log_copied, IMPOSSIBLE)
            )
        return RowBand(state.first_row, log_softmax(log_written))

    def _copy_logits(self, memory: TransducerMemory, state: TransducerState, sentence: Array) -> Array:
        """The source's part of the logit of copying in the rows of the band."""
        return np.asarray(memory.token_table.logits[:, state.rows, self.graphs.target_size][sentence])

    def _log_ready(
        self, memory: TransducerMemory, state: TransducerState, tokens: Array, target: Array, sentence: Array
    ) -> RowBand:
        """``log ready(i)`` after these tokens; of short sources in all rows."""
        arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        if not self.is_long(memory):
            return RowBand(0, self._log_forward(memory, arrive, target, sentence)[1])
        return self._log_ready_in_band(memory, arrive, target, sentence)

    def _log_ready_in_band(self, memory: TransducerMemory, arrive: RowBand, target: Array, sentence: Array) -> RowBand:
        """The same for long sources: the band grows as far as probability reaches, and loses rows without it."""
        I, ahead = memory.token_table.logits.shape[1], _ROWS_AHEAD
        log_forward, log_ready = self._log_forward(memory, arrive, target, sentence)
        while (rows_left := I - arrive.first_row - arrive.log_prob.shape[1]) and (
            log_forward[:, -1].max() >= _LOG_NEGLIGIBLE
        ):
            more = ((0, 0), (0, min(ahead, rows_left)))
            arrive = RowBand(arrive.first_row, np.pad(arrive.log_prob, more, constant_values=IMPOSSIBLE))
            log_forward, log_ready = self._log_forward(memory, arrive, target, sentence)
            ahead *= 2
        if log_ready.shape[1] <= _BANDED_FROM:
            return RowBand(arrive.first_row, log_ready)
        has_mass = np.flatnonzero((log_ready > _LOG_NEGLIGIBLE).any(0))
        first, stop = (int(has_mass[0]), int(has_mass[-1]) + 1) if len(has_mass) else (0, 1)
        return RowBand(arrive.first_row + first, log_ready[:, first:stop])

    def _log_forward(
        self, memory: TransducerMemory, arrive: RowBand, target: Array, sentence: Array
    ) -> tuple[Array, Array]:
        """``log forward(i)`` of reaching each row after the prefix, and ``log ready(i)`` of writing there next."""
        first_row, log_arrive = arrive
        transition, stop = self.graphs.transition, first_row + log_arrive.shape[1]
        table = memory.transition.slice_rows(slice(first_row, stop))
        log_odds = transition.log_odds_by_sentence(table, target, sentence)
        rows_left = memory.lengths[sentence, None] - 1 - np.arange(first_row, stop)
        log_emit, log_shift = transition.split_odds(log_odds, rows_left == 0)
        log_forward = forward_along(log_arrive, log_shift)
        log_forward[rows_left < 0] = IMPOSSIBLE
        return log_forward, log_forward + log_emit

    def _log_end(self, memory: TransducerMemory, state: TransducerState, sentence: Array) -> Array:
        """Log probability of the end symbol, which can be written only in the last row."""
        last = memory.lengths[sentence] - 1
        column, R = last - state.first_row, state.log_weight.shape[1]
        prefixes = np.arange(len(sentence))
        log_weight = state.log_weight[prefixes, column.clip(0, R - 1)]
        log_end = log_weight + memory.token_table.logits[sentence, last, END] + state.logits[:, END]
        return np.where((column < 0) | (column >= R), IMPOSSIBLE, log_end)

    def best_rows(self, pairs: PaddedPairs) -> Array:
        """The input position of each target token on the best alignment of each pair."""
        source, states = self.graphs.encode(pairs)
        sentence = np.arange(len(pairs.source))
        context = None if states is None else Context(states, pairs.source_lengths, sentence)
        start = np.full_like(pairs.target[:, :1], START)
        prefix = np.concatenate([start, pairs.target[:, :-1]], 1)
        target, _ = self.graphs.decode(prefix, self.graphs.target_state(pairs.features), context)
        rows = [self._best_rows_of(pairs, b, source, target) for b in range(len(pairs.source))]
        return np.stack(rows)

    def _best_rows_of(self, pairs: PaddedPairs, b: int, source: CellFactors, target: CellFactors) -> Array:
        """The best alignment of one pair, -1 at padding."""
        I, J = int(pairs.source_lengths[b]), int(pairs.target_lengths[b])
        one = CellFactors(source.logits[b, :I], source.transition[b, :I])
        other = CellFactors(target.logits[b, :J], target.transition[b, :J])
        write, shift = self._moves(one, other, pairs.target[b, :J], self.graphs.copied_words(pairs)[b, :I])
        write[:-1, -1] = IMPOSSIBLE  # the last token is written in the last row
        found = np.full(pairs.target.shape[1], -1)
        found[:J] = best_path(write, shift)
        return found

    def _moves(self, source: CellFactors, target: CellFactors, tokens: Array, copied: Array) -> tuple[Array, Array]:
        """Log scores of writing and of reading on in every cell of one pair."""
        transition, size = self.graphs.transition, self.graphs.target_size
        log_odds = transition.log_odds(source.transition[:, None], target.transition[None])
        in_last_row = np.arange(len(source.logits))[:, None] == len(source.logits) - 1
        log_emit, log_shift = transition.split_odds(log_odds, in_last_row)
        table = TokenTable.of(source.logits[None])
        log_z = log_normalisers(table, target.logits, np.zeros(len(tokens), np.int64)).T
        known = copies_as_unknown(tokens, size)
        columns = np.arange(len(tokens))
        log_token = source.logits[:, known] + target.logits[columns, known] - log_z
        if self.copies_words:
            log_copy = source.logits[:, size, None] + target.logits[:, size] - log_z
            log_token = np.logaddexp(
                np.where(tokens >= size, IMPOSSIBLE, log_token),
                np.where(copied[:, None] == tokens, log_copy, IMPOSSIBLE),
            )
        return log_emit + log_token, log_shift


def best_path(write: Array, shift: Array) -> list[int]:
    """The row of each token on the path with the highest product of moves; among equals the one that reads sooner.

    best(i, j) = max(best(i, j-1) + write(i, j-1), best(i-1, j) + shift(i-1, j))
    """
    I, J = write.shape
    shifts = np.concatenate([np.zeros((1, J)), shift[:-1].astype(np.float64)]).cumsum(0)
    best = shifts[:, 0]
    came_by = []
    for column in range(J):
        wrote = best + write[:, column]
        before = shifts[:, column + 1] if column + 1 < J else np.zeros(I)
        lead = wrote - before
        reached = np.maximum.accumulate(lead)
        came_by.append(lead >= reached)
        best = reached + before
    return _trace_back(came_by, I)


def _trace_back(came_by_writing: list[Array], I: int) -> list[int]:
    """The row of each token, from the last row of the last column backwards."""
    rows, row = [], I - 1
    for wrote in reversed(came_by_writing):
        while not wrote[row]:
            row -= 1
        rows.append(row)
    return rows[::-1]
