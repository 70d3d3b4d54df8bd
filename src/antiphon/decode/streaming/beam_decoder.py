"""Online beam search: keeps several outputs for each stream and writes the prefix that they share."""

import math
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.vocab import END
from antiphon.decode.allowed_tokens import is_no_end
from antiphon.decode.hypothesis import BeamSettings
from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors, start_decoder
from antiphon.decode.streaming.prefix_tree import PrefixTree
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors

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


class BeamDecoder(OnlineDecoder):
    """Keeps several active outputs for each stream and writes the prefix that they share.

    ``active[s]`` holds the outputs of stream ``s`` with their scores on entering the next row, ``root[s]`` what it has
    written; both are nodes of the tree.
    """

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model, features, settings, emit_bias)
        self.width = settings.beam
        self.tree = PrefixTree(model, features)
        self.root = list(range(len(features)))
        self.active: list[dict[int, float]] = [{stream: 0.0} for stream in self.root]
        self._nodes_kept = len(self.root)

    def _add_targets(self, features: Int[Tensor, "M F"]) -> None:
        first = len(self.root)
        self.root += self.tree.add_roots(range(first, first + len(features)), *start_decoder(self.model, features))
        self.active += [{node: 0.0} for node in self.root[first:]]

    def _restart_target(self, stream: int, features: Int[Tensor, "1 F"]) -> None:
        (self.root[stream],) = self.tree.add_roots([stream], *self._start_target(features))
        self.active[stream] = {self.root[stream]: 0.0}

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """The active outputs."""
        found = self.active[stream].items()
        return [
            (self.tree.path(node, self.root[stream]), score)
            for node, score in nlargest(len(found), found, key=itemgetter(1))
        ]

    def _write(self, streams: list[int], factors: CellFactors, *, is_last: bool) -> list[list[int]]:
        rows = {stream: StreamRow(index, self.active[stream]) for index, stream in enumerate(streams)}
        while nodes := [node for row in rows.values() for node in row.next_column(self.tree.length)]:
            self._fill_column(nodes, rows, factors, is_last=is_last)
        for stream, row in rows.items():
            self.active[stream] = {} if is_last else self._best_active(row.left)
        written = [row.finished if is_last else self._commit(stream) for stream, row in rows.items()]
        self._forget()
        return written

    def _fill_column(
        self, nodes: list[int], rows: dict[int, StreamRow], factors: CellFactors, *, is_last: bool
    ) -> None:
        """Extends the outputs of one column of each stream; each also leaves the row, unless it is the last."""
        own_rows = [rows[self.tree.owner[node]] for node in nodes]
        here = select_factors(factors, torch.tensor([row.index for row in own_rows], device=self.device))
        owners = [self.tree.owner[node] for node in nodes]
        of_target = self.tree.target.transition.index_select(0, torch.tensor(nodes, device=self.device))
        log_emit, log_shift = self._log_moves(here.transition, of_target, owners, is_last=is_last)
        scores = [row.forward[node] for row, node in zip(own_rows, nodes, strict=True)]
        if not is_last:
            for row, node, score, shift in zip(own_rows, nodes, scores, log_shift.tolist(), strict=True):
                row.leave(node, score + shift)
        ready = torch.tensor(scores, dtype=torch.float64, device=self.device) + log_emit
        kept = [
            candidate
            for stream, candidates in self._candidates(nodes, ready, here, can_end=is_last).items()
            if (near := self._near(candidates, rows[stream].best))
            for candidate in self._keep(near)
        ]
        self._arrive(rows, kept)

    def _candidates(
        self, nodes: list[int], ready: Float[Tensor, " N"], here: CellFactors, *, can_end: bool
    ) -> dict[int, list[Candidate]]:
        """The best tokens of each stream's cell, best first."""
        streams = [self.tree.owner[node] for node in nodes]
        of_target = self.tree.target.logits.index_select(0, torch.tensor(nodes, device=self.device))
        log_probs = self._log_token_probs(here.logits, of_target, streams, can_end=can_end)
        is_full = [
            self.tree.length[node] + 2 > self._longest_output(stream)
            for node, stream in zip(nodes, streams, strict=True)
        ]
        if any(is_full):
            log_probs[is_full] = log_probs[is_full].masked_fill(is_no_end(log_probs), IMPOSSIBLE)
        self._keep_to_prefixes(log_probs, streams, [self.tree.length[node] for node in nodes])
        log_probs, tokens = log_probs.topk(min(self.width, log_probs.shape[1]), 1)
        tokens = self._ids(tokens, streams)
        scores = ready[:, None] + log_probs
        row, rank = self._possible(scores, streams).nonzero(as_tuple=True)
        found: dict[int, list[Candidate]] = {}
        for score, index, token in zip(
            scores[row, rank].tolist(), row.tolist(), tokens[row, rank].tolist(), strict=True
        ):
            node = nodes[index]
            found.setdefault(self.tree.owner[node], []).append(Candidate(score, node, token))
        return {stream: nlargest(self.width, candidates) for stream, candidates in found.items()}

    def _possible(self, scores: Float[Tensor, "N K"], streams: list[int]) -> Bool[Tensor, "N K"]:
        """Which scores are within ``threshold`` of the best of their stream: few, so that only those are compared."""
        index = torch.tensor(streams, device=self.device)
        best = scores.new_full((len(self.root),), IMPOSSIBLE).scatter_reduce(0, index, scores.amax(1), "amax")
        return (scores > IMPOSSIBLE) & (scores >= (best[index] - self.settings.threshold)[:, None])

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
