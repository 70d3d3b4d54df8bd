"""A transducer that predicts token by token, with all alignments summed: ``models/transducer.py`` in numpy."""

import math
from typing import NamedTuple

import numpy as np

from antiphon.data.padded_pairs import PaddedPairs
from antiphon.data.vocab import END, START
from antiphon.lite.copied_positions import CopyTable, copies_as_unknown
from antiphon.lite.log_space import IMPOSSIBLE, Array, forward_along, log_softmax
from antiphon.lite.token_table import TokenTable, log_normalisers, next_tokens
from antiphon.lite.transducer_graphs import CellFactors, Context, SideState, TransducerGraphs
from antiphon.lite.transition_odds import TransitionTable

_BANDED_FROM = 48
"""Longer inputs are decoded in a band of rows: those in which any prefix has probability."""
_ROWS_AHEAD = 16
"""Rows added to the band when probability reaches its last row; doubled until it does not."""
_LOG_NEGLIGIBLE = 2 * math.log(np.finfo(np.float32).eps)
"""Log of the share of a prefix's probability below which a row is dropped from the band."""


class Memory(NamedTuple):
    """What is computed once per source; ``first_end`` is the first row in which a source ends."""

    tokens: TokenTable
    transition: TransitionTable
    states: Array | None
    lengths: Array
    first_end: int
    copies: CopyTable | None


class State(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row from ``first_row`` on for the next token.

    ``logits[rows]`` are the target's logits of each prefix: they are needed for few tokens, so they are not copied.
    """

    decoder: SideState
    log_weight: Array
    first_row: int
    logits: Array
    rows: Array


class SummedTransducer:
    """``p(y | x)`` as the sum over all monotone alignments, token by token."""

    def __init__(self, graphs: TransducerGraphs) -> None:
        self.graphs, self.copies_unknown, self.copies_words = graphs, graphs.copies_unknown, graphs.copies_words

    def start(self, pairs: PaddedPairs) -> tuple[Memory, State]:
        """The sources, encoded, and the state before the start symbol, with all probability in the first row."""
        factors, states = self.graphs.encode(pairs)
        B, I, _ = factors.logits.shape
        copies = CopyTable.of(self.graphs.copied_words(pairs), self.graphs.target_size) if self.copies_words else None
        memory = Memory(
            TokenTable.of(factors.logits),
            self.graphs.transition.table(factors.transition),
            states,
            pairs.source_lengths,
            int(pairs.source_lengths.min()) - 1,
            copies,
        )
        log_weight = np.full((B, 1 if self.is_long(memory) else I), IMPOSSIBLE)
        log_weight[:, 0] = 0.0
        nothing = np.zeros((1, factors.logits.shape[2]), np.float32)
        decoder = self.graphs.target_state(pairs.features)
        return memory, State(decoder, log_weight, 0, nothing, np.zeros(B, np.int64))

    def step(self, memory: Memory, state: State, tokens: Array, sentence: Array) -> tuple[Array, State]:
        """``log P(y | prefix)`` for every next token ``y``, all alignments summed, and the state to continue from."""
        context = None if memory.states is None else Context(memory.states, memory.lengths, sentence)
        factors, decoder = self.graphs.decode_step(tokens, state.decoder, context)
        first_row, log_ready = self._log_ready(memory, state, tokens, factors.transition, sentence)
        band = slice(first_row, first_row + log_ready.shape[1])
        log_prob, log_z = next_tokens(memory.tokens.slice_rows(band), factors.logits, sentence, log_ready)
        after = State(decoder, log_ready - log_z, first_row, factors.logits, np.arange(len(tokens)))
        log_prob[:, END] = self._log_end(memory, after, sentence)
        if memory.copies is None:
            return log_prob, after
        size = self.graphs.target_size
        log_copy = after.log_weight + self._copy_parts(memory, after, sentence) + factors.logits[:, size, None]
        return memory.copies.add_copies(log_prob[:, :size], log_copy, first_row, sentence), after

    def select(self, state: State, index: Array) -> State:
        """The states of some prefixes."""
        return State(
            state.decoder.select(index), state.log_weight[index], state.first_row, state.logits, state.rows[index]
        )

    def is_long(self, memory: Memory) -> bool:
        """Whether decoding is limited to a band of rows."""
        return bool(memory.tokens.logits.shape[1] > _BANDED_FROM)

    def long_sources(self, memory: Memory) -> Array:
        """Which sources alone would limit decoding to a band of rows."""
        return memory.lengths > _BANDED_FROM

    def unfinished_row(self, memory: Memory, state: State) -> int | None:
        """The row in which prefixes will most probably write next, or None if a source ends there."""
        row = state.first_row + int(state.log_weight.max(0).argmax()) if len(state.log_weight) else 0
        return row if row < memory.first_end else None

    def log_rows(
        self, memory: Memory, state: State, parent: Array | slice, tokens: Array, sentence: Array
    ) -> tuple[int, Array]:
        """The first row of the band, and ``log arrive(i)`` of the rows after one more token of each parent."""
        log_weight = state.log_weight[parent]
        band = slice(state.first_row, state.first_row + log_weight.shape[1])
        size = self.graphs.target_size
        known = tokens if memory.copies is None else copies_as_unknown(tokens, size)
        log_written = log_weight + memory.tokens.logits[:, band][sentence, :, known]
        if memory.copies is not None:
            logits, rows = state.logits, state.rows[parent]
            log_odds = logits[rows, size] - logits[rows, known]
            log_copied = log_weight + self._copy_parts(memory, state, sentence) + log_odds[:, None]
            is_copy = memory.copies.copied[:, band][sentence] == tokens[:, None]
            only_copied = (tokens >= size)[:, None]
            log_written = np.logaddexp(
                np.where(only_copied, IMPOSSIBLE, log_written), np.where(is_copy, log_copied, IMPOSSIBLE)
            )
        return state.first_row, log_softmax(log_written)

    def _copy_parts(self, memory: Memory, state: State, sentence: Array) -> Array:
        """The source's part of the logit of copying in the rows of the band."""
        band = slice(state.first_row, state.first_row + state.log_weight.shape[1])
        return np.asarray(memory.tokens.logits[:, band, self.graphs.target_size][sentence])

    def _log_ready(
        self, memory: Memory, state: State, tokens: Array, target: Array, sentence: Array
    ) -> tuple[int, Array]:
        """The first row of a band, and ``log ready(i)`` of its rows after these tokens; of short sources all rows."""
        first_row, log_arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        if not self.is_long(memory):
            return 0, self._log_forward(memory, 0, log_arrive, target, sentence)[1]
        return self._log_ready_in_band(memory, first_row, log_arrive, target, sentence)

    def _log_ready_in_band(
        self, memory: Memory, first_row: int, log_arrive: Array, target: Array, sentence: Array
    ) -> tuple[int, Array]:
        """The same for long sources: the band grows as far as probability reaches, and loses rows without it."""
        I, ahead = memory.tokens.logits.shape[1], _ROWS_AHEAD
        log_forward, log_ready = self._log_forward(memory, first_row, log_arrive, target, sentence)
        while first_row + log_arrive.shape[1] < I and log_forward[:, -1].max() >= _LOG_NEGLIGIBLE:
            more = min(ahead, I - first_row - log_arrive.shape[1])
            log_arrive = np.pad(log_arrive, ((0, 0), (0, more)), constant_values=IMPOSSIBLE)
            log_forward, log_ready = self._log_forward(memory, first_row, log_arrive, target, sentence)
            ahead *= 2
        if log_ready.shape[1] <= _BANDED_FROM:
            return first_row, log_ready
        has_mass = np.flatnonzero((log_ready > _LOG_NEGLIGIBLE).any(0))
        first, stop = (int(has_mass[0]), int(has_mass[-1]) + 1) if len(has_mass) else (0, 1)
        return first_row + first, log_ready[:, first:stop]

    def _log_forward(
        self, memory: Memory, first_row: int, log_arrive: Array, target: Array, sentence: Array
    ) -> tuple[Array, Array]:
        """Log probabilities of reaching each row after the prefix, and of writing there next."""
        transition, stop = self.graphs.transition, first_row + log_arrive.shape[1]
        table = memory.transition.slice_rows(slice(first_row, stop))
        log_odds = transition.log_odds_by_sentence(table, target, sentence)
        rows_left = memory.lengths[sentence, None] - 1 - np.arange(first_row, stop)
        log_emit, log_shift = transition.split_odds(log_odds, rows_left == 0)
        log_forward = forward_along(log_arrive, log_shift)
        log_forward[rows_left < 0] = IMPOSSIBLE
        return log_forward, log_forward + log_emit

    def _log_end(self, memory: Memory, state: State, sentence: Array) -> Array:
        """Log probability of the end symbol, which can be written only in the last row."""
        last = memory.lengths[sentence] - 1
        column, R = last - state.first_row, state.log_weight.shape[1]
        prefixes = np.arange(len(sentence))
        log_weight = state.log_weight[prefixes, column.clip(0, R - 1)]
        log_end = log_weight + memory.tokens.logits[sentence, last, END] + state.logits[:, END]
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
    """The row of each token on the path with the highest product of moves; among equals the one that reads later.

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
