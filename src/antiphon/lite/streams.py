"""What online decoding computes with graphs: ``torch_free/stream_policies.py`` decides what is written."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.folder import ExportedFolder
from antiphon.lite.graphs import FACTORS, IMPOSSIBLE, SOURCE, TARGET, Array, OnnxGraph, State, tensor
from antiphon.lite.search import top_k
from antiphon.torch_free.stream_beam import Cells, CellScores
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
        moves = {"log_emit": tensor("float", "N"), "log_read": tensor("float", "N"), "log_probs": factors["logits"]}
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

    def choose(self, row: State, cells: Cells, forced: Forced) -> list[int | None]:
        """The token that is written in each cell; None where it reads or ends."""
        scores = self.extend(row, cells, 1, forced)
        best = scores.tokens[:, 0]
        is_written = ((scores.log_emit > scores.log_read) | cells.is_last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def extend(self, row: State, cells: Cells, width: int, forced: Forced) -> CellScores:
        """What may be written in cells of a row, and whether it is."""
        streams = cells.streams
        given = {"emit_bias": self.emit_bias[streams], "is_last": cells.is_last, "copied": self.copied[streams]}
        for name in FACTORS:
            given[f"{SOURCE}_{name}"] = row[name][cells.positions]
            given[f"{TARGET}_{name}"] = self._slots[name][cells.slots]
        found = self.graphs.cell(given)
        log_probs = found["log_probs"]
        for cell, token in forced:
            log_prob = log_probs[cell, token]
            log_probs[cell] = IMPOSSIBLE
            log_probs[cell, token] = log_prob
        log_probs[cells.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        best, tokens = top_k(log_probs, min(width, log_probs.shape[1]))
        if self.graphs.copies_words:  # the id of a copy is that of the word
            tokens = np.where(tokens == self.graphs.size, self.copied[streams][:, None], tokens)
        return CellScores(found["log_emit"], found["log_read"], best, tokens)

    def _fill(self, slots: Sequence[int], before: State, tokens: Array) -> None:
        """Fills slots with outputs after one more token; those of a range are new ones after all others."""
        factors, after = self.graphs.write.advance(before, FACTORS, tokens=tokens)
        if isinstance(slots, range):
            self._slots = self.graphs.write.join(self._slots, factors | after)
        else:
            self.graphs.write.put(self._slots, np.array(slots), factors | after)
