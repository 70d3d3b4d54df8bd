"""Online beam search: keeps several outputs for each stream and writes the prefix that they share."""

import math
from heapq import nlargest
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.vocab import END
from antiphon.decode.hypothesis import BeamSettings, is_no_end
from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors
from antiphon.decode.streaming.prefix_tree import PrefixTree
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors

_ACTIVE_PER_BEAM = 8
"""Outputs of a stream that stay active after a row, for each one kept in a cell."""
_MAX_PENDING = 100
"""Tokens that a stream may hold back at most, however much its outputs disagree."""


class BestOutput:
    """The best finished output of a stream."""

    def __init__(self) -> None:
        self.score, self.tokens = IMPOSSIBLE, list[int]()

    def offer(self, score: float, tokens: list[int]) -> None:
        """Takes an output if it is better."""
        if score > self.score:
            self.score, self.tokens = score, tokens


class Candidate(NamedTuple):
    """A token that may be written in a cell: its log score, all alignments summed, and the node it follows.

    ``value`` is what a combination of models says of it, where there is one.
    """

    log_score: float
    node: int
    token: int
    value: float = 0.0


class BeamDecoder(OnlineDecoder):
    """Every stream keeps several outputs active and writes out what they have in common.

    ``live[s]`` holds the outputs of stream ``s`` with their scores on arriving in the next row, ``root[s]`` what it
    has written out; both are nodes of the tree.
    """

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model, features, settings, emit_bias)
        self.width = settings.beam
        self.tree = PrefixTree(model, features)
        self.root = list(range(len(features)))
        self.live: list[dict[int, float]] = [{stream: 0.0} for stream in self.root]

    def _write(self, streams: list[int], row: CellFactors, *, is_last: bool) -> list[list[int]]:
        finished = {stream: BestOutput() for stream in streams} if is_last else {}
        self._fill_row(streams, row, finished)
        if is_last:
            written = [found.tokens for found in finished.values()]
        else:
            written = [self._commit(stream) for stream in streams]
        self._forget()
        return written

    def _fill_row(self, streams: list[int], row: CellFactors, finished: dict[int, BestOutput]) -> None:
        """Fills the row column by column, from the shortest output of each stream on, and leaves it.

        In the last row outputs finish instead. Columns are counted from the shortest output, so that streams which
        have written much and little go together.
        """
        place = {stream: number for number, stream in enumerate(streams)}
        forward = {stream: self.live[stream] for stream in streams}
        self.live = [{} if stream in place else outputs for stream, outputs in enumerate(self.live)]
        best = dict.fromkeys(streams, IMPOSSIBLE)
        column = {stream: min(self.tree.length[n] for n in outputs) for stream, outputs in forward.items()}
        while nodes := self._nodes_in(column, forward):
            here = select_factors(row, [place[self.tree.owner[node]] for node in nodes])
            log_emit, log_shift = self._log_moves(
                here.transition, self.tree.target.transition[nodes], is_last=bool(finished)
            )
            scores = [forward[self.tree.owner[node]][node] for node in nodes]
            ready = torch.tensor(scores, dtype=torch.float64, device=self.device) + log_emit
            if not finished:
                self._leave(nodes, [s + shift for s, shift in zip(scores, log_shift.tolist(), strict=True)], best)
            for stream, candidates in self._candidates(nodes, ready, here, can_end=bool(finished)).items():
                near = self._near(candidates, best[stream])
                kept = self._keep(near) if near else []
                best[stream] = max([best[stream], *(c.log_score for c in kept if c.token == END)])
                self._arrive(stream, kept, forward[stream], finished.get(stream))
            column = {stream: number + 1 for stream, number in column.items()}
        if not finished:
            for stream in streams:
                self.live[stream] = self._best_active(self.live[stream])

    def _leave(self, nodes: list[int], log_scores: list[float], best: dict[int, float]) -> None:
        """Outputs that read on, and the best of each stream."""
        for node, log_score in zip(nodes, log_scores, strict=True):
            stream = self.tree.owner[node]
            self.live[stream][node] = log_score
            best[stream] = max(best[stream], log_score)

    def _nodes_in(self, column: dict[int, int], forward: dict[int, dict[int, float]]) -> list[int]:
        """The outputs of the current column of each stream; columns without any are skipped."""
        nodes = []
        for stream, outputs in forward.items():
            waiting = [self.tree.length[node] for node in outputs if self.tree.length[node] >= column[stream]]
            if waiting:
                column[stream] = min(waiting)
                nodes += [node for node in outputs if self.tree.length[node] == column[stream]]
        return nodes

    def _candidates(
        self, nodes: list[int], ready: Float[Tensor, " N"], here: CellFactors, *, can_end: bool
    ) -> dict[int, list[Candidate]]:
        """The best tokens of each stream's cell, best first."""
        log_words = self._log_token_probs(here.logits, self.tree.target.logits[nodes], can_end=can_end)
        is_full = [self.tree.length[node] + 2 > self._longest_output(self.tree.owner[node]) for node in nodes]
        log_words[is_full] = log_words[is_full].masked_fill(is_no_end(log_words), IMPOSSIBLE)
        log_words, tokens = log_words.topk(min(self.width, log_words.shape[1]), 1)
        scores = ready[:, None] + log_words
        row, rank = (scores > IMPOSSIBLE).nonzero(as_tuple=True)
        found: dict[int, list[Candidate]] = {}
        for score, number, token in zip(
            scores[row, rank].tolist(), row.tolist(), tokens[row, rank].tolist(), strict=True
        ):
            node = nodes[number]
            found.setdefault(self.tree.owner[node], []).append(Candidate(score, node, token))
        return {stream: nlargest(self.width, candidates) for stream, candidates in found.items()}

    def _near(self, candidates: list[Candidate], best: float) -> list[Candidate]:
        """Candidates not too far behind the best of them, nor behind what has left the row or finished already."""
        worst = max(best, candidates[0].log_score) - self.settings.threshold
        return [candidate for candidate in candidates if candidate.log_score >= worst]

    def _keep(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates of a cell that become outputs: here, all of them."""
        return candidates

    def _arrive(
        self,
        stream: int,
        candidates: list[Candidate],
        forward: dict[int, float],
        finished: BestOutput | None,
    ) -> None:
        """Candidates become outputs of the next column; those that end are finished."""
        going_on = [candidate for candidate in candidates if candidate.token != END]
        grown = self.tree.grow([c.node for c in going_on], [c.token for c in going_on])
        for node, candidate in zip(grown, going_on, strict=True):
            forward[node] = _log_add(forward.get(node, IMPOSSIBLE), candidate.log_score)
        for candidate in candidates:
            if candidate.token == END and finished is not None:
                finished.offer(self._final_score(candidate), self.tree.path(candidate.node, self.root[stream]))

    def _final_score(self, candidate: Candidate) -> float:
        """The score by which a finished output is ranked."""
        length = self.tree.length[candidate.node] + 1
        return self.settings.normalise(torch.tensor(candidate.log_score), length).item()

    def _best_active(self, outputs: dict[int, float]) -> dict[int, float]:
        """The outputs that stay active."""
        best = nlargest(_ACTIVE_PER_BEAM * self.settings.beam, outputs.items(), key=itemgetter(1))
        worst = best[0][1] - self.settings.threshold
        return {node: log_score for node, log_score in best if log_score >= worst}

    def _commit(self, stream: int) -> list[int]:
        """What the outputs that count begin with, written out; those that begin otherwise are dropped."""
        outputs = self.live[stream]
        worst = max(outputs.values()) - self.settings.commit_margin
        paths = {node: self.tree.path(node, self.root[stream]) for node in outputs}
        counting = [paths[node] for node, log_score in outputs.items() if log_score >= worst]
        pairs = zip(min(counting), max(counting), strict=False)  # what first and last in order share, all of them share
        shared = [one for one, other in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        best = paths[max(outputs, key=outputs.__getitem__)]
        if len(best) - len(shared) > _MAX_PENDING:
            shared = best[:-_MAX_PENDING]
        for token in shared:
            self.root[stream] = self.tree.children[self.root[stream]][token]
        self.live[stream] = {node: outputs[node] for node, path in paths.items() if path[: len(shared)] == shared}
        return shared

    def _needed(self) -> set[int]:
        """Nodes to keep whatever outputs are active."""
        return set(self.root)

    def _forget(self) -> None:
        """Drops the nodes that no active output has grown from."""
        needed = self._needed()
        for outputs in self.live:
            for node in outputs:
                while node not in needed:
                    needed.add(node)
                    node = self.tree.parent[node]
        moved = self.tree.keep(sorted(needed))
        self.root = [moved[node] for node in self.root]
        self.live = [{moved[node]: score for node, score in outputs.items()} for outputs in self.live]


def _log_add(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high + math.log1p(math.exp(low - high))
