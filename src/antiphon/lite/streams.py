"""Online decoding with graphs: ``torch_free/online_policy.py`` has the policies."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.graphs import FACTORS, IMPOSSIBLE, SOURCE, TARGET, Array, OnnxGraph, State, TensorType, ids, numbers
from antiphon.lite.search import top_k
from antiphon.torch_free.beam_policy import BeamPolicy
from antiphon.torch_free.beam_row import BeamRow, CellScores
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.online_policy import GreedyPolicy, OnlinePolicy
from antiphon.torch_free.output_tree import OutputTree
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
        self.read.check(source | {"tokens": tokens, "copied": tokens}, factors)
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


class LiteDecoder(OnlinePolicy):
    """Decodes inputs that arrive token by token, one for each row of ``features``; what the policies share."""

    def __init__(
        self, graphs: StreamGraphs, features: NDArray[np.int64], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        self.graphs, self.settings = graphs, settings
        N = len(features)
        self.emit_bias = np.full(N, emit_bias, np.float32)
        self.prefixes: list[Sequence[int]] = [()] * N
        self.tokens_read = [0] * N
        self.copied = np.full(N, NOT_COPIED)
        self._source, target, state = graphs.start(features)
        self._begin_targets(target, state)

    def add(self, features: NDArray[np.int64]) -> None:
        """Adds streams, one for each row of ``features``, after the existing ones."""
        M = len(features)
        self.emit_bias = np.pad(self.emit_bias, (0, M))
        self.copied = np.pad(self.copied, (0, M), constant_values=NOT_COPIED)
        self.prefixes += [()] * M
        self.tokens_read += [0] * M
        source, target, state = self.graphs.start(features)
        self._source = self.graphs.read.join(self._source, source)
        self._add_targets(target, state)

    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs in the slots of streams; the output of each must begin with the tokens of its prefix."""
        index = np.array(streams)
        self.emit_bias[index] = emit_bias
        for stream, prefix in zip(streams, prefixes, strict=True):
            self.prefixes[stream] = tuple(prefix)
            self.tokens_read[stream] = 0
        source, target, state = self.graphs.start(features)
        self.graphs.read.put(self._source, index, source)
        self._restart_targets(list(streams), target, state)

    @abstractmethod
    def _begin_targets(self, target: Factors, state: State) -> None:
        """Begins with an empty output for each stream, given what the target contributes after the start symbol."""

    @abstractmethod
    def _add_targets(self, target: Factors, state: State) -> None:
        """Adds the outputs of new streams."""

    @abstractmethod
    def _restart_targets(self, streams: list[int], target: Factors, state: State) -> None:
        """Replaces the outputs of streams by empty ones."""

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None = None) -> Factors:
        index = np.array(streams)
        self.copied[index] = copied or NOT_COPIED
        state = self.graphs.read.select(self._source, index)
        found, state = self.graphs.read.advance(state, FACTORS, tokens=np.array(tokens), copied=self.copied[index])
        self.graphs.read.put(self._source, index, state)
        for stream in streams:
            self.tokens_read[stream] += 1
        return found["logits"], found["transition"]

    def _cells(
        self, source: Factors, target: Factors, streams: Array, is_last: Array, written: Sequence[int]
    ) -> tuple[Array, Array, Array]:
        """Log probabilities of writing, of reading on, and of the tokens that each stream may write in a cell.

        A stream that has not ``written`` all of its prefix may only write the next token of it.
        """
        found = self.graphs.cell(
            **{f"{SOURCE}_{name}": part for name, part in zip(FACTORS, source, strict=True)},
            **{f"{TARGET}_{name}": part for name, part in zip(FACTORS, target, strict=True)},
            emit_bias=self.emit_bias[streams],
            is_last=is_last,
            copied=self.copied[streams],
        )
        log_probs = found["log_probs"]
        for row, (stream, length) in enumerate(zip(streams.tolist(), written, strict=True)):
            if length < len(self.prefixes[stream]):
                others = np.arange(log_probs.shape[1]) != self.prefixes[stream][length]
                log_probs[row, others] = IMPOSSIBLE
        return found["log_emit"], found["log_shift"], log_probs

    def _ids(self, tokens: Array, streams: Array) -> Array:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.graphs.copies_words:
            return tokens
        return np.where(tokens == self.graphs.size, self.copied[streams][:, None], tokens)


class LiteGreedyDecoder(GreedyPolicy, LiteDecoder):
    """Keeps one output for each stream, which grows while writing is more probable than reading on."""

    def _begin_targets(self, target: Factors, state: State) -> None:
        self.tokens_written = [0] * len(target[0])
        self._target, self._state = target, state

    def _add_targets(self, target: Factors, state: State) -> None:
        self.tokens_written += [0] * len(target[0])
        self._target, self._state = _join(self._target, target), self.graphs.write.join(self._state, state)

    def _restart_targets(self, streams: list[int], target: Factors, state: State) -> None:
        self._put(np.array(streams), target, state)
        for stream in streams:
            self.tokens_written[stream] = 0

    def _put(self, index: Array, target: Factors, state: State) -> None:
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self.graphs.write.put(self._state, index, state)

    def _choose(
        self, streams: list[int], positions: list[int], factors: Factors, is_last: list[bool]
    ) -> list[int | None]:
        index, last = np.array(streams), np.array(is_last)
        written = [self.tokens_written[stream] for stream in streams]
        cells = self._cells(_select(factors, positions), _select(self._target, streams), index, last, written)
        log_emit, log_shift, log_probs = cells
        best = self._ids(log_probs.argmax(1)[:, None], index)[:, 0]
        is_written = ((log_emit > log_shift) | last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def _advance(self, streams: list[int], tokens: list[int]) -> None:
        index = np.array(streams)
        self._put(index, *self.graphs.extend(self.graphs.write.select(self._state, index), np.array(tokens)))


class LiteTree(OutputTree):
    """The active outputs and their prefixes, with the target's contribution after each."""

    def __init__(self, graphs: StreamGraphs, target: Factors, state: State) -> None:
        super().__init__(len(target[0]))
        self.graphs, self.target, self.state = graphs, target, state

    def _step(self, parents: list[int], tokens: list[int]) -> tuple[Factors, State]:
        return self.graphs.extend(self.graphs.write.select(self.state, np.array(parents)), np.array(tokens))

    def _store(self, target: Factors, state: State) -> None:
        self.target, self.state = _join(self.target, target), self.graphs.write.join(self.state, state)

    def _keep_stored(self, nodes: list[int]) -> None:
        self.target, self.state = _select(self.target, nodes), self.graphs.write.select(self.state, np.array(nodes))


class LiteBeamDecoder(BeamPolicy, LiteDecoder):
    """Keeps several active outputs for each stream and writes the prefix that they share."""

    tree: LiteTree

    def _begin_targets(self, target: Factors, state: State) -> None:
        self._begin(LiteTree(self.graphs, target, state), self.settings.beam)

    def _add_targets(self, target: Factors, state: State) -> None:
        self._add_roots(len(target[0]), target, state)

    def _restart_targets(self, streams: list[int], target: Factors, state: State) -> None:
        self._restart_roots(streams, target, state)

    def _extend(self, row: BeamRow, factors: Factors) -> CellScores:
        streams, is_last = row.streams[row.positions], row.is_last[row.positions]
        here, target = _select(factors, row.positions), _select(self.tree.target, row.nodes)
        log_emit, log_shift, log_probs = self._cells(here, target, streams, is_last, row.lengths.tolist())
        log_probs[row.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        best, tokens = top_k(log_probs, min(self.width, log_probs.shape[1]))
        return CellScores(log_emit, log_shift, best, self._ids(tokens, streams))


def _select(factors: Factors, index: Sequence[int] | Array) -> Factors:
    """The factors of some cells."""
    return factors[0][index], factors[1][index]


def _join(factors: Factors, others: Factors) -> Factors:
    """The factors of these cells and of others."""
    return np.concatenate([factors[0], others[0]]), np.concatenate([factors[1], others[1]])
