"""What online decoding computes with graphs: ``torch_free/stream_policies.py`` decides what is written."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.graphs import FACTORS, IMPOSSIBLE, SOURCE, TARGET, Array, OnnxGraph, State, TensorType, ids, numbers
from antiphon.lite.search import top_k
from antiphon.torch_free.stream_beam import BeamRow, CellScores
from antiphon.torch_free.stream_policies import Forced
from antiphon.torch_free.vocab import END, NOT_COPIED, START

Factors = tuple[Array, Array]
"""What one side contributes to cells: token logits, and its part of the transition."""


class StreamGraphs(NamedTuple):
    """The graphs of a transducer that reads the source token by token; its target vocabulary has ``size`` tokens."""

    open: OnnxGraph
    read: OnnxGraph
    write: OnnxGraph
    cell: OnnxGraph
    size: int
    copies_words: bool

    def check(self) -> None:
        """Refuses graphs that do not fit each other and the size of the vocabulary."""
        source, target = (
            {name: graph.inputs[name] for name in graph.axes if name.startswith(side)}
            for graph, side in ((self.read, SOURCE), (self.write, TARGET))
        )
        self.open.check({"features": ids("N", "F")}, source | target)
        tokens, flags = ids("N"), TensorType("bool", ("N",))
        classes = self.size + self.copies_words
        units = self.write.outputs.get("transition", numbers("N", None)).shape[-1]
        factors = dict(zip(FACTORS, (numbers("N", classes), numbers("N", units)), strict=True))
        self.read.check(source | {"tokens": tokens}, factors)
        self.write.check(target | {"tokens": tokens}, factors)
        both = {f"{side}_{name}": each for side in (SOURCE, TARGET) for name, each in factors.items()}
        moves = {"log_emit": numbers("N"), "log_shift": numbers("N"), "log_probs": factors["logits"]}
        self.cell.check(both | {"emit_bias": numbers("N"), "is_last": flags, "copied": tokens}, moves)

    def start(self, features: NDArray[np.int64]) -> tuple[State, Factors, State]:
        """The source before its first token, and what ``extend`` gives for the start symbol of the target."""
        states = self.open(features=features)
        return states, *self.extend(states, np.full(len(features), START))

    def extend(self, state: State, tokens: Array) -> tuple[Factors, State]:
        """The target's contribution after one more token of each output, and its state."""
        found, after = self.write.advance(state, FACTORS, tokens=tokens)
        return (found["logits"], found["transition"]), after


class LiteStreams:
    """A unidirectional transducer as a ``StreamNetwork``."""

    def __init__(self, graphs: StreamGraphs) -> None:
        self.graphs = graphs
        self.emit_bias, self.copied = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self._source: State | None = None
        self._slots: tuple[Factors, State] | None = None

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        M = len(features)
        self.emit_bias = np.pad(self.emit_bias, (0, M), constant_values=emit_bias)
        self.copied = np.pad(self.copied, (0, M), constant_values=NOT_COPIED)
        source = self.graphs.start(features)[0]
        self._source = source if self._source is None else self.graphs.read.join(self._source, source)

    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        assert self._source is not None
        index = np.array(streams)
        self.emit_bias[index] = emit_bias
        self.graphs.read.put(self._source, index, self.graphs.start(features)[0])

    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> Factors:
        """The source's contribution to the row of each token."""
        assert self._source is not None
        index = np.array(streams)
        self.copied[index] = copied or NOT_COPIED
        state = self.graphs.read.select(self._source, index)
        found, state = self.graphs.read.advance(state, FACTORS, tokens=np.array(tokens))
        self.graphs.read.put(self._source, index, state)
        return found["logits"], found["transition"]

    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        self._fill(slots, *self.graphs.start(features)[1:])

    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        assert self._slots is not None
        before = self.graphs.write.select(self._slots[1], np.array(parents))
        self._fill(slots, *self.graphs.extend(before, np.array(tokens)))

    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, in place of all others."""
        assert self._slots is not None
        target, state = self._slots
        self._slots = _select(target, slots), self.graphs.write.select(state, np.array(slots))

    def choose(
        self, row: Factors, positions: list[int], streams: list[int], is_last: list[bool], forced: Forced
    ) -> list[int | None]:
        """The token that each stream writes next, in the cells at these positions; None if it reads on or ends."""
        index, last = np.array(streams), np.array(is_last)
        log_emit, log_shift, log_probs = self._cells(_select(row, positions), streams, index, last, forced)
        best = self._ids(log_probs.argmax(1)[:, None], index)[:, 0]
        is_written = ((log_emit > log_shift) | last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def extend(self, row: Factors, column: BeamRow, width: int, forced: Forced) -> CellScores:
        """What may be written after each output of a row's column, and whether it is."""
        streams, is_last = column.streams[column.positions], column.is_last[column.positions]
        here = _select(row, column.positions)
        log_emit, log_shift, log_probs = self._cells(here, column.nodes, streams, is_last, forced)
        log_probs[column.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        best, tokens = top_k(log_probs, min(width, log_probs.shape[1]))
        return CellScores(log_emit, log_shift, best, self._ids(tokens, streams))

    def _fill(self, slots: Sequence[int], target: Factors, state: State) -> None:
        """Stores what belongs to slots; those of a range are new ones after all others."""
        if self._slots is None:
            self._slots = target, state
            return
        targets, states = self._slots
        if isinstance(slots, range):
            self._slots = _join(targets, target), self.graphs.write.join(states, state)
            return
        index = np.array(slots)
        for whole, part in zip(targets, target, strict=True):
            whole[index] = part
        self.graphs.write.put(states, index, state)

    def _cells(
        self, here: Factors, slots: Sequence[int], streams: Array, is_last: Array, forced: Forced
    ) -> tuple[Array, Array, Array]:
        """Log probabilities in cells of these streams: of writing, of reading on, and of the tokens allowed there."""
        assert self._slots is not None
        found = self.graphs.cell(
            **{f"{SOURCE}_{name}": part for name, part in zip(FACTORS, here, strict=True)},
            **{f"{TARGET}_{name}": part for name, part in zip(FACTORS, _select(self._slots[0], slots), strict=True)},
            emit_bias=self.emit_bias[streams],
            is_last=is_last,
            copied=self.copied[streams],
        )
        log_probs = found["log_probs"]
        for cell, token in forced:
            log_prob = log_probs[cell, token]
            log_probs[cell] = IMPOSSIBLE
            log_probs[cell, token] = log_prob
        return found["log_emit"], found["log_shift"], log_probs

    def _ids(self, tokens: Array, streams: Array) -> Array:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.graphs.copies_words:
            return tokens
        return np.where(tokens == self.graphs.size, self.copied[streams][:, None], tokens)


def _select(factors: Factors, index: Sequence[int] | Array) -> Factors:
    """The factors of some cells."""
    return factors[0][index], factors[1][index]


def _join(factors: Factors, others: Factors) -> Factors:
    """The factors of these cells and of others."""
    return np.concatenate([factors[0], others[0]]), np.concatenate([factors[1], others[1]])
