"""Writing while reading: what a unidirectional transducer writes before its input has ended.

Row ``i`` of the lattice holds all that is written between reading token ``i`` and reading the next one, so the rows
are taken one by one as tokens arrive, many streams at a time. With an ``emit_bias`` the log odds of writing are raised
or lowered in every cell, which trades delay for quality. Two policies decide what is written:

greedy   write the most probable token as long as writing is more probable than reading on;
beam     keep in every row the best outputs of each length, the sum over all alignments as the score of each; after
         each row, write what all outputs begin with that are at most ``commit_margin`` nats behind the best, and drop
         those that begin otherwise. Without a margin all active outputs count, and what is written is never
         regretted: at the end, the answer is the one that a search of the whole input finds.

After a row, the score of an output is that of leaving the row: the probability of having read so far and written
exactly this. Whatever is ``threshold`` nats behind the best is dropped, and no more than a hundred tokens are held
back, so the work of a row does not grow with what was read and written before.

Thesis: chapter 5, online generation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from heapq import nlargest
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.vocab import END, START
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.lattice_sides import CellFactors, SideState
from antiphon.search.hypothesis import BeamSettings, is_no_end, never_written

_LIVE_PER_BEAM = 8
"""Outputs of a stream that stay active after a row, for each one kept in a cell."""
_LONGEST_WAIT = 100
"""Tokens that a stream may hold back at most, however much its outputs disagree."""


class BestOutput:
    """The best finished output of a stream."""

    def __init__(self) -> None:
        self.score, self.tokens = IMPOSSIBLE, list[int]()

    def offer(self, score: float, tokens: list[int]) -> None:
        """Takes an output if it is better."""
        if score > self.score:
            self.score, self.tokens = score, tokens


class Streams(ABC):
    """A number of inputs that arrive token by token, and their outputs; there is one for each row of ``features``."""

    writes_at_once = False

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        self.model, self.settings, self.emit_bias = model, settings, emit_bias
        self.device = model.source_logits.weight.device
        self.tokens_read = [0] * len(features)
        self._source = model.source_state(features.to(self.device))

    @torch.inference_mode()
    def read(self, streams: Sequence[int], tokens: Sequence[int]) -> list[list[int]]:
        """One more input token of some streams; what each of them has newly decided to write."""
        return self._write(list(streams), self._read(streams, tokens), is_last=False)

    @torch.inference_mode()
    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the rest of what each of them writes, without the end symbol."""
        return self._write(list(streams), self._read(streams, [END] * len(streams)), is_last=True)

    def _read(self, streams: Sequence[int], tokens: Sequence[int]) -> CellFactors:
        """The input's part of the row that the tokens begin."""
        index = torch.tensor(list(streams), device=self.device)
        given = torch.tensor(list(tokens), device=self.device)
        side, state = self.model.encode_step(given, self._source.select(index))
        self._source.put(index, state)
        for stream in streams:
            self.tokens_read[stream] += 1
        return side

    @abstractmethod
    def _write(self, streams: list[int], row: CellFactors, *, is_last: bool) -> list[list[int]]:
        """What is written in a row."""

    def _longest_output(self, stream: int) -> int:
        """How many tokens, end symbol counted, the output may have by now."""
        return int(self.tokens_read[stream] * self.settings.max_length_ratio) + self.settings.max_length_extra

    def _log_moves(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], *, is_last: bool
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Log probabilities of writing and of reading on, with the bias."""
        log_odds = self.model.transition.log_odds(source, target) + self.emit_bias
        return self.model.split_odds(log_odds, torch.full_like(log_odds, is_last, dtype=torch.bool))

    def _log_words(
        self, source: Float[Tensor, "N V"], target: Float[Tensor, "N V"], *, can_end: bool
    ) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens that may be written."""
        log_words = (source + target).log_softmax(1)
        log_words[:, [*never_written(self.model), *([] if can_end else [END])]] = IMPOSSIBLE
        return log_words


class GreedyStreams(Streams):
    """Every stream has one output, which grows whenever writing is more probable than reading on."""

    writes_at_once = True

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model, features, settings, emit_bias)
        self.tokens_written = [0] * len(features)
        self._target, self._state = _start(model, features)

    def _write(self, streams: list[int], row: CellFactors, *, is_last: bool) -> list[list[int]]:
        written: list[list[int]] = [[] for _ in streams]
        places = list(range(len(streams)))
        while places := [place for place in places if self._has_room(streams[place])]:
            tokens = self._choose([streams[place] for place in places], _at(row, places), is_last=is_last)
            writing = [(place, token) for place, token in zip(places, tokens, strict=True) if token is not None]
            for place, token in writing:
                written[place].append(token)
                self.tokens_written[streams[place]] += 1
            places = [place for place, _ in writing]
            self._go_on([streams[place] for place in places], [token for _, token in writing])
        return written

    def _has_room(self, stream: int) -> bool:
        return self.tokens_written[stream] + 1 < self._longest_output(stream)

    def _choose(self, streams: list[int], row: CellFactors, *, is_last: bool) -> list[int | None]:
        """The token that each stream writes next; nothing if it reads on, or ends."""
        target = _at(self._target, streams)
        log_emit, log_shift = self._log_moves(row.transition, target.transition, is_last=is_last)
        best = self._log_words(row.logits, target.logits, can_end=is_last).argmax(1)
        writes = ((log_emit > log_shift) | is_last) & (best != END)
        return [token if does else None for token, does in zip(best.tolist(), writes.tolist(), strict=True)]

    def _go_on(self, streams: list[int], tokens: list[int]) -> None:
        """The decoders after the tokens that streams have written."""
        if not streams:
            return
        index = torch.tensor(streams, device=self.device)
        given = torch.tensor(tokens, device=self.device)
        target, state = _follow(self.model, given, self._state.select(index))
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self._state.put(index, state)


class PrefixTree:
    """The active outputs and what they grew from: a node for each, and what the decoder says after it."""

    def __init__(self, model: Transducer, features: Int[Tensor, "N F"]) -> None:
        self.model, count = model, len(features)
        self.owner = list(range(count))
        self.parent, self.token, self.length = [-1] * count, [START] * count, [0] * count
        self.children: list[dict[int, int]] = [{} for _ in range(count)]
        self.target, self.state = _start(model, features)

    def grow(self, parents: list[int], tokens: list[int]) -> list[int]:
        """The nodes after one more token each; those that are not there yet are added."""
        grown = list(zip(parents, tokens, strict=True))
        new = [(parent, token) for parent, token in grown if token not in self.children[parent]]
        if new:
            self._add(*map(list, zip(*new, strict=True)))
        return [self.children[parent][token] for parent, token in grown]

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        index, given = (torch.tensor(part, device=self.target.logits.device) for part in (parents, tokens))
        target, state = _follow(self.model, given, self.state.select(index))
        for node, (parent, token) in enumerate(zip(parents, tokens, strict=True), len(self.owner)):
            self.children[parent][token] = node
            self.children.append({})
            self.owner.append(self.owner[parent])
            self.parent.append(parent)
            self.token.append(token)
            self.length.append(self.length[parent] + 1)
        self.target = CellFactors(*(torch.cat(parts) for parts in zip(self.target, target, strict=True)))
        self.state = self.state.join(state)

    def path(self, node: int, above: int) -> list[int]:
        """The tokens below one node, down to another."""
        tokens = []
        while node != above:
            tokens.append(self.token[node])
            node = self.parent[node]
        return tokens[::-1]

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes and renumbers these, in order; the new index of each."""
        moved = {node: number for number, node in enumerate(nodes)}
        self.owner = [self.owner[node] for node in nodes]
        self.parent = [moved.get(self.parent[node], -1) for node in nodes]
        self.token = [self.token[node] for node in nodes]
        self.length = [self.length[node] for node in nodes]
        self.children = [
            {token: moved[child] for token, child in self.children[node].items() if child in moved} for node in nodes
        ]
        self.target = _at(self.target, nodes)
        self.state = self.state.select(torch.tensor(nodes, device=self.target.logits.device))
        return moved


class Candidate(NamedTuple):
    """A token that may be written in a cell: its log score, all alignments summed, and the node it follows.

    ``value`` is what a combination of models says of it, where there is one.
    """

    log_score: float
    node: int
    token: int
    value: float = 0.0


class BeamStreams(Streams):
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
            here = _at(row, [place[self.tree.owner[node]] for node in nodes])
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
                self.live[stream] = self._best_live(self.live[stream])

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
        log_words = self._log_words(here.logits, self.tree.target.logits[nodes], can_end=can_end)
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

    def _best_live(self, outputs: dict[int, float]) -> dict[int, float]:
        """The outputs that stay active."""
        best = nlargest(_LIVE_PER_BEAM * self.settings.beam, outputs.items(), key=itemgetter(1))
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
        if len(best) - len(shared) > _LONGEST_WAIT:
            shared = best[:-_LONGEST_WAIT]
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


def _start(model: Transducer, features: Int[Tensor, "N F"]) -> tuple[CellFactors, SideState]:
    """The output's part after the start symbol."""
    features = features.to(model.source_logits.weight.device)
    start = torch.full((len(features),), START, device=features.device)
    return _follow(model, start, model.target_state(features))


def _follow(model: Transducer, tokens: Tensor, state: SideState) -> tuple[CellFactors, SideState]:
    """The output's part after one more token of each output."""
    target, state = model.decode_prefix(tokens[:, None], state)
    return CellFactors(target.logits[:, 0], target.transition[:, 0]), state


def _at(side: CellFactors, places: list[int]) -> CellFactors:
    return CellFactors(side.logits[places], side.transition[places])
