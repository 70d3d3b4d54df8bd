"""Online beam search: keeps several outputs for each stream and writes the prefix that they share."""

from abc import abstractmethod
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Any

from antiphon.torch_free.beam_row import BeamRow, Candidate, CellScores
from antiphon.torch_free.online_policy import OnlinePolicy
from antiphon.torch_free.output_tree import OutputTree
from antiphon.torch_free.vocab import END

_ACTIVE_PER_BEAM = 8
"""Active outputs of a stream after a row, per hypothesis of the beam."""
_MIN_PRUNED_NODES = 64
"""Trees of fewer nodes are not pruned."""
_MAX_PENDING = 100
"""Tokens that a stream holds back at most while its outputs disagree."""


class BeamPolicy(OnlinePolicy):
    """Keeps several active outputs for each stream and writes the prefix that they share.

    ``active[s]`` holds the outputs of stream ``s`` with their scores on entering the next row, ``root[s]`` what it has
    written; both are nodes of the tree.
    """

    width: int
    tree: OutputTree
    root: list[int]
    active: list[dict[int, float]]
    _nodes_after_pruning: int

    def _begin(self, tree: OutputTree, width: int) -> None:
        """Starts with an empty output for each root of a tree."""
        self.tree, self.width = tree, width
        self.root = list(range(len(tree.owner)))
        self.active = [{stream: 0.0} for stream in self.root]
        self._nodes_after_pruning = len(self.root)

    def _add_roots(self, count: int, target: Any, state: Any) -> None:
        """Adds streams with empty outputs, given what the decoder computes for the start symbol of each."""
        first = len(self.root)
        self.root += self.tree.add_roots(range(first, first + count), target, state)
        self.active += [{node: 0.0} for node in self.root[first:]]

    def _restart_roots(self, streams: Sequence[int], target: Any, state: Any) -> None:
        """Replaces the outputs of streams by empty ones."""
        for stream, node in zip(streams, self.tree.add_roots(streams, target, state), strict=True):
            self.root[stream], self.active[stream] = node, {node: 0.0}

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """The active outputs."""
        found = self.active[stream].items()
        return [
            (self.tree.path(node, self.root[stream]), score)
            for node, score in nlargest(len(found), found, key=itemgetter(1))
        ]

    def _write(self, streams: list[int], factors: Any, is_last: list[bool]) -> list[list[int]]:
        lengths = [[self.tree.length[node] for node in self.active[stream]] for stream in streams]
        longest = [self._longest_output(stream) for stream in streams]
        row = BeamRow(streams, is_last, [self.active[stream] for stream in streams], lengths, longest)
        while row.next_column():
            self._fill_column(row, self._extend(row, factors))
        for stream, ends, leaving in zip(streams, is_last, row.leaving, strict=True):
            self.active[stream] = {} if ends else self._best_active(leaving)
        written = [
            row.finished[position] if ends else self._commit(stream)
            for position, (stream, ends) in enumerate(zip(streams, is_last, strict=True))
        ]
        self._prune_tree()
        return written

    @abstractmethod
    def _extend(self, row: BeamRow, factors: Any) -> CellScores:
        """What may be written after each output of a row's column, and whether it is."""

    def _fill_column(self, row: BeamRow, cells: CellScores) -> None:
        """Extends the outputs of one column of each stream; each also leaves the row, unless it is the last."""
        row.leave(row.scores + cells.log_shift)
        scores = (row.scores + cells.log_emit)[:, None] + cells.log_probs
        n, k = row.best_extensions(scores, self.settings.threshold, self.width)
        nodes, positions = [row.nodes[index] for index in n.tolist()], row.positions[n].tolist()
        chosen = zip(scores[n, k].tolist(), nodes, cells.tokens[n, k].tolist(), positions, strict=True)
        candidates = [Candidate(*each) for each in chosen]
        self._arrive(row, self._keep(candidates) if candidates else [])

    def _keep(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates of a column that become outputs: all of them."""
        return candidates

    def _arrive(self, row: BeamRow, candidates: list[Candidate]) -> None:
        """Makes candidates outputs of the next column, or finishes them if they end."""
        unfinished = [candidate for candidate in candidates if candidate.token != END]
        grown = self.tree.grow([c.node for c in unfinished], [c.token for c in unfinished])
        for node, candidate in zip(grown, unfinished, strict=True):
            row.arrive(node, candidate.position, candidate.log_score)
        for candidate in candidates:
            if candidate.token == END:
                tokens = self.tree.path(candidate.node, self.root[row.streams[candidate.position]])
                row.finish(candidate, self._final_score(candidate), tokens)

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
        outputs, tree, root = self.active[stream], self.tree, self.root[stream]
        best = max(outputs, key=outputs.__getitem__)
        worst = outputs[best] - self.settings.commit_margin
        shared = tree.shared_prefix([node for node, log_score in outputs.items() if log_score >= worst], root)
        if tree.length[best] - tree.length[shared] > _MAX_PENDING:
            shared = tree.prefix(best, tree.length[best] - _MAX_PENDING)
        if shared != root:
            length = tree.length[shared]
            self.root[stream] = shared
            self.active[stream] = {node: outputs[node] for node in outputs if tree.prefix(node, length) == shared}
        return tree.path(shared, root)

    def _needed(self) -> set[int]:
        """Nodes to keep besides the active outputs."""
        return set(self.root)

    def _prune_tree(self) -> None:
        """Drops the nodes that no active output descends from, once the tree has doubled since the last time."""
        if len(self.tree.owner) <= self._max_nodes():
            return
        needed = self._needed()
        for node in chain.from_iterable(self.active):
            while node not in needed:
                needed.add(node)
                node = self.tree.parent[node]
        moved = self.tree.keep(sorted(needed))
        self.root = [moved[node] for node in self.root]
        self.active = [{moved[node]: score for node, score in outputs.items()} for outputs in self.active]
        self._nodes_after_pruning = len(moved)

    def _max_nodes(self) -> int:
        """The number of nodes above which the tree is pruned."""
        return 2 * self._nodes_after_pruning + _MIN_PRUNED_NODES
