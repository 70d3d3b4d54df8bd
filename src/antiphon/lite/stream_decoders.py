"""What online decoding computes in numpy: ``torch_free/stream_policies.py`` decides what is written."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.copied_positions import add_row_copy
from antiphon.lite.log_space import IMPOSSIBLE, Array, log_softmax, top_k
from antiphon.lite.transducer_graphs import CellFactors, SideState, TransducerGraphs
from antiphon.torch_free.stream_beam import BeamRow, CellScores
from antiphon.torch_free.stream_policies import Forced
from antiphon.torch_free.vocab import END, NOT_COPIED, PAD, START, UNKNOWN


class LiteStreams:
    """A unidirectional transducer as a ``StreamNetwork``."""

    def __init__(self, graphs: TransducerGraphs) -> None:
        self.graphs = graphs
        self.emit_bias, self.copied = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self._source: SideState | None = None
        self._slots: tuple[CellFactors, SideState] | None = None

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        M = len(features)
        self.emit_bias = np.pad(self.emit_bias, (0, M), constant_values=emit_bias)
        self.copied = np.pad(self.copied, (0, M), constant_values=NOT_COPIED)
        started = self.graphs.source_state(features)
        self._source = started if self._source is None else self._source.join(started)

    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        assert self._source is not None
        index = np.array(streams)
        self.emit_bias[index] = emit_bias
        self._source = self._source.replace(index, self.graphs.source_state(features))

    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> CellFactors:
        """The source's contribution to the row of each token."""
        assert self._source is not None
        index, given = np.array(streams), np.array(tokens, np.int64)
        self.copied[index] = copied or NOT_COPIED
        words = self.copied[index] if self.graphs.copies_words else None
        row, state = self.graphs.encode_step(given, self._source.select(index), words)
        self._source = self._source.replace(index, state)
        return row

    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        start = np.full(len(features), START)
        self._fill(slots, *self.graphs.decode_step(start, self.graphs.target_state(features)))

    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        assert self._slots is not None
        before = self._slots[1].select(np.array(parents))
        self._fill(slots, *self.graphs.decode_step(np.array(tokens), before))

    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, in place of all others."""
        assert self._slots is not None
        target, state = self._slots
        self._slots = target.select(slots), state.select(np.array(slots))

    def choose(
        self, row: CellFactors, positions: list[int], streams: list[int], is_last: list[bool], forced: Forced
    ) -> list[int | None]:
        """The token that each stream writes next, in the cells at these positions; None if it reads on or ends."""
        index, last = np.array(streams), np.array(is_last)
        log_emit, log_shift, log_probs = self._cells(row.select(positions), streams, index, last, forced)
        best = self._ids(log_probs.argmax(1)[:, None], index)[:, 0]
        is_written = ((log_emit > log_shift) | last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def extend(self, row: CellFactors, column: BeamRow, width: int, forced: Forced) -> CellScores:
        """What may be written after each output of a row's column, and whether it is."""
        streams, is_last = column.streams[column.positions], column.is_last[column.positions]
        here = row.select(column.positions)
        log_emit, log_shift, log_probs = self._cells(here, column.nodes, streams, is_last, forced)
        log_probs[column.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        best, tokens = top_k(log_probs, min(width, log_probs.shape[1]))
        return CellScores(log_emit, log_shift, best, self._ids(tokens, streams))

    def _fill(self, slots: Sequence[int], target: CellFactors, state: SideState) -> None:
        """Stores what belongs to slots; those of a range are new ones after all others."""
        if self._slots is None:
            self._slots = target, state
            return
        targets, states = self._slots
        if isinstance(slots, range):
            self._slots = targets.join(target), states.join(state)
        else:
            index = np.array(slots)
            targets.put(index, target)
            self._slots = targets, states.replace(index, state)

    def _cells(
        self, here: CellFactors, slots: Sequence[int], streams: Array, is_last: Array, forced: Forced
    ) -> tuple[Array, Array, Array]:
        """Log probabilities in cells of these streams: of writing, of reading on, and of the tokens allowed there.

        The last token is a copy, if the model copies words.
        """
        assert self._slots is not None
        target = self._slots[0].select(slots)
        log_odds = self.graphs.transition.log_odds(here.transition, target.transition) + self.emit_bias[streams]
        log_probs = log_softmax(here.logits + target.logits)
        if self.graphs.copies_words:
            log_probs = add_row_copy(log_probs, self.copied[streams])
        log_probs[:, [PAD, START] if self.graphs.copies_unknown else [PAD, UNKNOWN, START]] = IMPOSSIBLE
        log_probs[~is_last, END] = IMPOSSIBLE
        for cell, token in forced:
            log_prob = log_probs[cell, token]
            log_probs[cell] = IMPOSSIBLE
            log_probs[cell, token] = log_prob
        return (*self.graphs.transition.split_odds(log_odds, is_last), log_probs)

    def _ids(self, tokens: Array, streams: Array) -> Array:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.graphs.copies_words:
            return tokens
        return np.where(tokens == self.graphs.target_size, self.copied[streams][:, None], tokens)
