"""What online decoding computes with graphs: ``torch_free/stream_policies.py`` decides what is written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.folder import ExportedFolder
from antiphon.lite.graphs import FACTORS, IMPOSSIBLE, SOURCE, TARGET, Array, OnnxGraph, State, tensor
from antiphon.lite.search import top_k
from antiphon.torch_free.stream_beam import BeamRow, CellScores
from antiphon.torch_free.stream_policies import Forced
from antiphon.torch_free.vocab import END, NOT_COPIED, START

GRAPHS = ("open", "read", "write", "cell")
"""The graphs of a transducer that streams."""


class StreamGraphs:
    """The graphs of a transducer that reads the source token by token; those that do not fit are refused."""

    def __init__(self, folder: ExportedFolder, threads: int) -> None:
        self.open, self.read, self.write, self.cell = (
            OnnxGraph(folder.path / f"{name}.onnx", threads) for name in GRAPHS
        )
        self.size, self.copies_words = len(folder.codec.target.vocab), folder.codec.copies_words
        source, target = (
            {name: graph.inputs[name] for name in graph.axes if name.startswith(side)}
            for graph, side in ((self.read, SOURCE), (self.write, TARGET))
        )
        self.open.check({"features": tensor("int64", "N", "F")}, source | target)
        tokens = tensor("int64", "N")
        units = self.write.outputs.get("transition", tensor("float", "N", None)).shape[-1]
        factors = dict(
            zip(
                FACTORS, (tensor("float", "N", self.size + self.copies_words), tensor("float", "N", units)), strict=True
            )
        )
        self.read.check(source | {"tokens": tokens}, factors)
        self.write.check(target | {"tokens": tokens}, factors)
        both = {f"{side}_{name}": each for side in (SOURCE, TARGET) for name, each in factors.items()}
        moves = {"log_emit": tensor("float", "N"), "log_shift": tensor("float", "N"), "log_probs": factors["logits"]}
        self.cell.check(
            both | {"emit_bias": tensor("float", "N"), "is_last": tensor("bool", "N"), "copied": tokens}, moves
        )

    def opened(self, graph: OnnxGraph, features: NDArray[np.int64]) -> State:
        """The state of one side before its first token, for each row of ``features``."""
        found = self.open({"features": features})
        return {name: found[name] for name in graph.axes}


class LiteStreams:
    """A unidirectional transducer as a ``StreamNetwork``.

    Each stream has a state of the source; each slot has a state of the target, and what it contributes to cells.
    """

    def __init__(self, graphs: StreamGraphs) -> None:
        self.graphs = graphs
        self.emit_bias, self.copied = np.zeros(0, np.float32), np.zeros(0, np.int64)
        self._sources, self._slots = State(), State()

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        M, graph = len(features), self.graphs.read
        self.emit_bias = np.pad(self.emit_bias, (0, M), constant_values=emit_bias)
        self.copied = np.pad(self.copied, (0, M), constant_values=NOT_COPIED)
        self._sources = graph.join(self._sources, self.graphs.opened(graph, features))

    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        index, graph = np.array(streams), self.graphs.read
        self.emit_bias[index] = emit_bias
        graph.put(self._sources, index, self.graphs.opened(graph, features))

    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> State:
        """The source's contribution to the row of each token."""
        index, graph = np.array(streams), self.graphs.read
        self.copied[index] = copied or NOT_COPIED
        row, state = graph.advance(graph.select(self._sources, index), FACTORS, tokens=np.array(tokens))
        graph.put(self._sources, index, state)
        return row

    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        self._fill(slots, self.graphs.opened(self.graphs.write, features), np.full(len(features), START))

    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        graph = self.graphs.write
        before = graph.select({name: self._slots[name] for name in graph.axes}, np.array(parents))
        self._fill(slots, before, np.array(tokens))

    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, in place of all others."""
        self._slots = self.graphs.write.select(self._slots, np.array(slots))

    def choose(
        self, row: State, positions: list[int], streams: list[int], is_last: list[bool], forced: Forced
    ) -> list[int | None]:
        """The token that each stream writes next, in the cells at these positions; None if it reads or ends."""
        index, last = np.array(streams), np.array(is_last)
        log_emit, log_read, log_probs = self._cells(row, positions, streams, index, last, forced)
        best = self._ids(log_probs.argmax(1)[:, None], index)[:, 0]
        is_written = ((log_emit > log_read) | last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def extend(self, row: State, column: BeamRow, width: int, forced: Forced) -> CellScores:
        """What may be written after each output of a row's column, and whether it is."""
        streams, is_last = column.streams[column.positions], column.is_last[column.positions]
        log_emit, log_read, log_probs = self._cells(row, column.positions, column.nodes, streams, is_last, forced)
        log_probs[column.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        best, tokens = top_k(log_probs, min(width, log_probs.shape[1]))
        return CellScores(log_emit, log_read, best, self._ids(tokens, streams))

    def _fill(self, slots: Sequence[int], before: State, tokens: Array) -> None:
        """Fills slots with outputs after one more token; those of a range are new ones after all others."""
        factors, after = self.graphs.write.advance(before, FACTORS, tokens=tokens)
        if isinstance(slots, range):
            self._slots = self.graphs.write.join(self._slots, factors | after)
        else:
            self.graphs.write.put(self._slots, np.array(slots), factors | after)

    def _cells(
        self, row: State, positions: Any, slots: Sequence[int], streams: Array, is_last: Array, forced: Forced
    ) -> tuple[Array, Array, Array]:
        """Log probabilities in cells of these streams: of writing, of reading, and of the tokens allowed there."""
        given = {"emit_bias": self.emit_bias[streams], "is_last": is_last, "copied": self.copied[streams]}
        for name in FACTORS:
            given |= {f"{SOURCE}_{name}": row[name][positions], f"{TARGET}_{name}": self._slots[name][slots]}
        found = self.graphs.cell(given)
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
