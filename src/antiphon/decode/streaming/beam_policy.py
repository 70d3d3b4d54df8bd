"""Online beam search: keeps several outputs for each stream and writes the prefix that they share."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from antiphon.data.vocab import END
from antiphon.decode.streaming.online_policy import OnlinePolicy
from antiphon.decode.streaming.output_tree import OutputTree

IMPOSSIBLE = -math.inf
_ACTIVE_PER_BEAM = 8
"""Active outputs of a stream after a row, per hypothesis of the beam."""
_NODES_KEPT = 64
"""Nodes that are always kept, so that few are not sorted out again and again."""
_MAX_PENDING = 100
"""Tokens that a stream holds back at most while its outputs disagree."""


@dataclass
class StreamRow:
    """The lattice row of one stream, filled column by column from the shortest output on.

    ``forward`` has the scores of the outputs in this row, ``left`` those on leaving it. In the last row outputs end
    instead, and ``finished`` has the tokens of the best. ``best`` is the best score that has left or ended.
    """

    index: int
    forward: dict[int, float]
    left: dict[int, float] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)
    final_score: float = IMPOSSIBLE
    best: float = IMPOSSIBLE
    column: int = -1

    def next_column(self, length: list[int]) -> list[int]:
        """Moves to the next column with any outputs; their nodes, none at the end of the row."""
        remaining = [length[node] for node in self.forward if length[node] > self.column]
        if not remaining:
            return []
        self.column = min(remaining)
        return [node for node in self.forward if length[node] == self.column]

    def leave(self, node: int, log_score: float) -> None:
        """Adds an output that reads on."""
        self.left[node] = log_score
        self.best = max(self.best, log_score)

    def finish(self, log_score: float, final_score: float, tokens: list[int]) -> None:
        """Adds an output that ends; the best by its final score is kept."""
        self.best = max(self.best, log_score)
        if final_score > self.final_score:
            self.final_score, self.finished = final_score, tokens


class Candidate(NamedTuple):
    """A token that may be written in a cell: its log score, all alignments summed, and the node it follows.

    ``value`` is the objective of a noisy channel, if there is one.
    """

    log_score: float
    node: int
    token: int
    value: float = 0.0


class BeamPolicy(OnlinePolicy):
    """Keeps several active outputs for each stream and writes the prefix that they share.

    ``active[s]`` holds the outputs of stream ``s`` with their scores on entering the next row, ``root[s]`` what it has
    written; both are nodes of the tree.
    """

    width: int
    tree: OutputTree
    root: list[int]
    active: list[dict[int, float]]
    _nodes_kept: int

    def _begin(self, tree: OutputTree, width: int) -> None:
        """Starts with an empty output for each root of a tree."""
        self.tree, self.width = tree, width
        self.root = list(range(len(tree.owner)))
        self.active = [{stream: 0.0} for stream in self.root]
        self._nodes_kept = len(self.root)

    def _add_roots(self, count: int, target: Any, state: Any) -> None:
        """Adds streams with empty outputs, given what the decoder computes for the start symbol of each."""
        first = len(self.root)
        self.root += self.tree.add_roots(range(first, first + count), target, state)
        self.active += [{node: 0.0} for node in self.root[first:]]

    def _restart_root(self, stream: int, target: Any, state: Any) -> None:
        """Replaces the output of a stream by an empty one."""
        (self.root[stream],) = self.tree.add_roots([stream], target, state)
        self.active[stream] = {self.root[stream]: 0.0}

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """The active outputs."""
        found = self.active[stream].items()
        return [
            (self.tree.path(node, self.root[stream]), score)
            for node, score in nlargest(len(found), found, key=itemgetter(1))
        ]

    def _write(self, streams: list[int], factors: Any, *, is_last: bool) -> list[list[int]]:
        rows = {stream: StreamRow(index, self.active[stream]) for index, stream in enumerate(streams)}
        while nodes := [node for row in rows.values() for node in row.next_column(self.tree.length)]:
            self._fill_column(nodes, rows, factors, is_last=is_last)
        for stream, row in rows.items():
            self.active[stream] = {} if is_last else self._best_active(row.left)
        written = [row.finished if is_last else self._commit(stream) for stream, row in rows.items()]
        self._forget()
        return written

    def _fill_column(self, nodes: list[int], rows: dict[int, StreamRow], factors: Any, *, is_last: bool) -> None:
        """Extends the outputs of one column of each stream; each also leaves the row, unless it is the last."""
        own_rows = [rows[self.tree.owner[node]] for node in nodes]
        scores = [row.forward[node] for row, node in zip(own_rows, nodes, strict=True)]
        positions = [row.index for row in own_rows]
        log_shift, found = self._extend(nodes, positions, scores, factors, is_last=is_last)
        if not is_last:
            for row, node, score, shift in zip(own_rows, nodes, scores, log_shift, strict=True):
                row.leave(node, score + shift)
        kept = [
            candidate
            for stream, candidates in found.items()
            if (near := self._near(candidates, rows[stream].best))
            for candidate in self._keep(near)
        ]
        self._arrive(rows, kept)

    @abstractmethod
    def _extend(
        self, nodes: list[int], positions: list[int], scores: list[float], factors: Any, *, is_last: bool
    ) -> tuple[list[float], dict[int, list[Candidate]]]:
        """For outputs with their scores: the log probability of reading on in the cell of each.

        And the best tokens of each stream's cell, best first.
        """

    def _best_by_stream(self, nodes: list[int], found: list[tuple[float, int, int]]) -> dict[int, list[Candidate]]:
        """The best candidates of each stream, of scores, indices of nodes and tokens."""
        by_stream: dict[int, list[Candidate]] = {}
        for score, index, token in found:
            node = nodes[index]
            by_stream.setdefault(self.tree.owner[node], []).append(Candidate(score, node, token))
        return {stream: nlargest(self.width, candidates) for stream, candidates in by_stream.items()}

    def _must_end(self, nodes: list[int]) -> list[bool]:
        """Whether the output of each node has no room for another token but the end symbol."""
        return [self.tree.length[node] + 2 > self._longest_output(self.tree.owner[node]) for node in nodes]

    def _near(self, candidates: list[Candidate], best: float) -> list[Candidate]:
        """Candidates within ``threshold`` of the best candidate and of the best that has left the row or finished."""
        worst = max(best, candidates[0].log_score) - self.settings.threshold
        return [candidate for candidate in candidates if candidate.log_score >= worst]

    def _keep(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates of a cell that become outputs: all of them."""
        return candidates

    def _arrive(self, rows: dict[int, StreamRow], candidates: list[Candidate]) -> None:
        """Makes candidates outputs of the next column, or finishes them if they end."""
        unfinished = [candidate for candidate in candidates if candidate.token != END]
        grown = self.tree.grow([c.node for c in unfinished], [c.token for c in unfinished])
        for node, candidate in zip(grown, unfinished, strict=True):
            forward = rows[self.tree.owner[node]].forward
            forward[node] = _log_add(forward.get(node, IMPOSSIBLE), candidate.log_score)
        for candidate in candidates:
            if candidate.token == END:
                stream = self.tree.owner[candidate.node]
                tokens = self.tree.path(candidate.node, self.root[stream])
                rows[stream].finish(candidate.log_score, self._final_score(candidate), tokens)

    def _final_score(self, candidate: Candidate) -> float:
        """The score by which a finished output is ranked."""
        length = self.tree.length[candidate.node] + 1
        score: float = self.settings.normalise(candidate.log_score, length)
        return score

    def _best_active(self, outputs: dict[int, float]) -> dict[int, float]:
        """The outputs that stay active."""
        best = nlargest(_ACTIVE_PER_BEAM * self.settings.beam, outputs.items(), key=itemgetter(1))
        worst = best[0][1] - self.settings.threshold
        return {node: log_score for node, log_score in best if log_score >= worst}

    def _commit(self, stream: int) -> list[int]:
        """Writes the prefix shared by all outputs within the margin; outputs that begin differently are dropped."""
        outputs = self.active[stream]
        worst = max(outputs.values()) - self.settings.commit_margin
        paths = {node: self.tree.path(node, self.root[stream]) for node in outputs}
        counting = [paths[node] for node, log_score in outputs.items() if log_score >= worst]
        pairs = zip(
            min(counting), max(counting), strict=False
        )  # the first and last in sorted order share what all share
        shared = [one for one, other in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        best = paths[max(outputs, key=outputs.__getitem__)]
        if len(best) - len(shared) > _MAX_PENDING:
            shared = best[:-_MAX_PENDING]
        for token in shared:
            self.root[stream] = self.tree.children[self.root[stream]][token]
        self.active[stream] = {node: outputs[node] for node, path in paths.items() if path[: len(shared)] == shared}
        return shared

    def _needed(self) -> set[int]:
        """Nodes to keep besides the active outputs."""
        return set(self.root)

    def _forget(self) -> None:
        """Drops the nodes that no active output descends from, once half of all nodes may be such."""
        if len(self.tree.owner) <= self._max_nodes():
            return
        needed = self._needed()
        for outputs in self.active:
            for node in outputs:
                while node not in needed:
                    needed.add(node)
                    node = self.tree.parent[node]
        moved = self.tree.keep(sorted(needed))
        self.root = [moved[node] for node in self.root]
        self.active = [{moved[node]: score for node, score in outputs.items()} for outputs in self.active]
        self._nodes_kept = len(moved)

    def _max_nodes(self) -> int:
        """The number of nodes that are kept without looking which are needed."""
        return 2 * self._nodes_kept + _NODES_KEPT


def _log_add(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high + math.log1p(math.exp(low - high))
