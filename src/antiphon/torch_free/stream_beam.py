"""What online beam search keeps: the tree of all outputs, and the row of the lattices that is being filled.

A column of the row holds the outputs of one length of each stream, the shortest first. All streams are at their own
lengths, but they fill their columns at the same time. Numbers of single cells are too few to be worth an operation on
a device, so everything here is a list or an array.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.vocab import START

IMPOSSIBLE = -math.inf


class OutputTree:
    """The active outputs and their prefixes: a node for each.

    Node ``n`` belongs to the stream ``owner[n]`` and has ``length[n]`` tokens: those of ``parent[n]``, -1 at a root,
    and ``token[n]``; ``children`` has the node after each parent and token.
    """

    def __init__(self) -> None:
        self.owner: list[int] = []
        self.parent: list[int] = []
        self.token: list[int] = []
        self.length: list[int] = []
        self.children: dict[tuple[int, int], int] = {}

    def add_roots(self, owners: Sequence[int]) -> range:
        """New nodes without tokens, one for each of these streams."""
        first = len(self.owner)
        for owner in owners:
            self._append(owner, -1, START, 0)
        return range(first, len(self.owner))

    def add(self, nodes: Sequence[tuple[int, int]]) -> range:
        """New nodes, each after one more token of a parent."""
        first = len(self.owner)
        for parent, token in nodes:
            self.children[parent, token] = len(self.owner)
            self._append(self.owner[parent], parent, token, self.length[parent] + 1)
        return range(first, len(self.owner))

    def levels(self) -> list[list[int]]:
        """The nodes of each length, shortest first."""
        by_length: dict[int, list[int]] = {}
        for node, length in enumerate(self.length):
            by_length.setdefault(length, []).append(node)
        return [by_length[length] for length in sorted(by_length)]

    def _append(self, owner: int, parent: int, token: int, length: int) -> None:
        self.owner.append(owner)
        self.parent.append(parent)
        self.token.append(token)
        self.length.append(length)

    def path(self, node: int, above: int) -> list[int]:
        """The tokens of ``node`` after those of its ancestor ``above``."""
        tokens = []
        while node != above:
            tokens.append(self.token[node])
            node = self.parent[node]
        return tokens[::-1]

    def prefix(self, node: int, length: int) -> int:
        """The ancestor of a node that has this many tokens; the node itself if it has no more."""
        while self.length[node] > length:
            node = self.parent[node]
        return node

    def shared_prefix(self, nodes: list[int], above: int) -> int:
        """The longest prefix that all these nodes share; all of them descend from ``above``."""
        shared = nodes[0]
        for node in nodes:
            other = self.prefix(node, self.length[shared])
            shared = self.prefix(shared, self.length[other])
            while shared != other:
                shared, other = self.parent[shared], self.parent[other]
            if shared == above:
                break
        return shared

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes; the new index of each of these."""
        moved = {node: index for index, node in enumerate(nodes)}
        self.owner = [self.owner[node] for node in nodes]
        self.parent = [moved.get(self.parent[node], -1) for node in nodes]
        self.token = [self.token[node] for node in nodes]
        self.length = [self.length[node] for node in nodes]
        self.children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(self.parent, self.token, strict=True))
            if parent >= 0
        }
        return moved


class Extension(NamedTuple):
    """A token that may be written in a cell: its log score, all alignments summed, and the node it follows.

    ``position`` is that of its stream in the row. ``value`` is the objective of a noisy channel, if there is one.
    """

    log_score: float
    node: int
    token: int
    position: int
    value: float = 0.0


class Cells(NamedTuple):
    """Cells in which something may be written: where each is in the row, and after which output of which stream.

    The row of a stream may be its last (``is_last``), and an output may have room for the end symbol alone
    (``is_full``).
    """

    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    streams: NDArray[np.int64]
    is_last: NDArray[np.bool_]
    is_full: NDArray[np.bool_]


class CellScores(NamedTuple):
    """Log probabilities in cells: of writing, of reading, and of ``K`` tokens in each."""

    log_emit: NDArray[Any]
    log_read: NDArray[Any]
    log_probs: NDArray[Any]
    tokens: NDArray[np.int64]


class Column:
    """Outputs of one column: their nodes, positions of their streams, and forward scores."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.positions: list[int] = []
        self.scores: list[float] = []
        self._indices: dict[int, int] = {}

    def add(self, node: int, position: int, log_score: float) -> None:
        """Adds an output; if it is in the row already, their probabilities are added."""
        index = self._indices.setdefault(node, len(self.nodes))
        if index < len(self.nodes):
            self.scores[index] = _log_add(self.scores[index], log_score)
            return
        self.nodes.append(node)
        self.positions.append(position)
        self.scores.append(log_score)


class BeamRow:
    """The row of some streams, and the column of it that is being filled.

    In this column, output ``nodes[n]`` of the stream at ``positions[n]`` has ``lengths[n]`` tokens and the forward
    score ``scores[n]``; if ``is_full[n]``, it can only end. ``reading`` has the scores of each stream's outputs when
    they read the next token. In a last row outputs end instead, and ``finished`` has the tokens of the best. ``best``
    is the best score of each stream among its outputs that have read or ended.
    """

    def __init__(
        self,
        streams: Sequence[int],
        is_last: Sequence[bool],
        active: Sequence[Mapping[int, float]],
        lengths: Sequence[Sequence[int]],
        longest: Sequence[int],
    ) -> None:
        self.streams, self.is_last = np.array(streams), np.array(is_last)
        self.reading: list[dict[int, float]] = [{} for _ in streams]
        self.finished: list[list[int]] = [[] for _ in streams]
        self.best = np.full(len(streams), IMPOSSIBLE)
        self._search_scores = [IMPOSSIBLE] * len(streams)
        self._shortest, self._longest = np.array([min(each) for each in lengths]), np.array(longest)
        self._columns: list[Column] = []
        self._index = -1
        for position, (outputs, own) in enumerate(zip(active, lengths, strict=True)):
            for (node, log_score), length in zip(outputs.items(), own, strict=True):
                self._column(length - min(own)).add(node, position, log_score)

    def _column(self, index: int) -> Column:
        while index >= len(self._columns):
            self._columns.append(Column())
        return self._columns[index]

    def next_column(self) -> bool:
        """Moves to the next column with any outputs; False at the end of the row."""
        self._index += 1
        while self._index < len(self._columns) and not self._columns[self._index].nodes:
            self._index += 1
        if self._index >= len(self._columns):
            return False
        column = self._columns[self._index]
        self.nodes, self.positions, self.scores = column.nodes, np.array(column.positions), np.array(column.scores)
        self.lengths = self._shortest[self.positions] + self._index
        self.is_full = self.lengths + 2 > self._longest[self.positions]  # no room for a token and the end symbol
        return True

    def cells(self) -> Cells:
        """The cells of the column."""
        streams, is_last = self.streams[self.positions], self.is_last[self.positions]
        return Cells(self.positions, np.array(self.nodes), streams, is_last, self.is_full)

    def read(self, log_scores: NDArray[np.float64]) -> None:
        """Lets the outputs of the column read with these scores, unless it is the last of their stream."""
        may_read = ~self.is_last[self.positions]
        np.maximum.at(self.best, self.positions[may_read], log_scores[may_read])
        reading = zip(self.nodes, self.positions.tolist(), log_scores.tolist(), may_read.tolist(), strict=True)
        for node, position, log_score, reads in reading:
            if reads:
                self.reading[position][node] = log_score

    def best_extensions(
        self, log_scores: NDArray[np.float64], threshold: float, width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices ``(n, k)`` of the best scores ``log_scores[n, k]`` of token ``k`` after output ``n``.

        There are at most ``width`` of each stream, best first, none more than ``threshold`` behind the best of them or
        behind the best output of the stream that has read or ended.
        """
        top = self.best.copy()
        np.maximum.at(top, self.positions, log_scores.max(1))
        worst = (top - threshold)[self.positions, None]
        output, rank = ((log_scores >= worst) & (log_scores > IMPOSSIBLE)).nonzero()
        position = self.positions[output]
        order = np.lexsort((-log_scores[output, rank], position))
        position = position[order]
        order = order[np.arange(len(order)) - np.searchsorted(position, position) < width]
        return output[order], rank[order]

    def arrive(self, node: int, position: int, log_score: float) -> None:
        """Adds an output to the next column."""
        self._column(self._index + 1).add(node, position, log_score)

    def finish(self, extension: Extension, search_score: float, tokens: list[int]) -> None:
        """Adds an output that ends; the best of a stream by its final score is kept."""
        position = extension.position
        self.best[position] = max(self.best[position], extension.log_score)
        if search_score > self._search_scores[position]:
            self._search_scores[position], self.finished[position] = search_score, tokens


def _log_add(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high + math.log1p(math.exp(low - high))
