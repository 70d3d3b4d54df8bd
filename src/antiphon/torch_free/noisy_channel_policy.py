"""Online decoding with a noisy channel: which outputs are kept, without tensors.

The active outputs form a tree. The channel's lattice (``channel_lattice.py``) has a row for every node of the tree and
a column for every input token read. A node above what is written is dropped once almost no channel probability passes
through it, and so is a column that no active output depends on: memory does not grow with the length of the input.
Outputs of one cell are ranked by the objective; those of different lengths are compared by only the direct model, since
a language model would always prefer the output that has written less.

Thesis: section 6.2, with a unidirectional proposer.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.beam_policy import BeamPolicy
from antiphon.torch_free.beam_row import Candidate
from antiphon.torch_free.output_tree import OutputTree


class ScoredTree(OutputTree):
    """The active outputs of one stream, with their channel and language model scores."""

    @abstractmethod
    def read(self, token: int) -> None:
        """One more input token, for the channel to write."""

    @abstractmethod
    def values(self, candidates: list[Candidate]) -> list[float]:
        """The objective of candidates, divided by the largest weight."""

    @abstractmethod
    def passes(self, node: int, below: int) -> bool:
        """Whether channel probability still passes through a node above another one."""

    def levels(self) -> list[list[int]]:
        """The nodes of each length, shortest first."""
        by_length: dict[int, list[int]] = {}
        for node, length in enumerate(self.length):
            by_length.setdefault(length, []).append(node)
        return [by_length[length] for length in sorted(by_length)]


class NoisyChannelPolicy(BeamPolicy):
    """Decodes one stream: the direct model proposes, the objective selects."""

    tree: ScoredTree

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None = None) -> Any:
        row = super()._read(streams, tokens, copied)  # type: ignore[safe-super]  # what computes comes after this class
        self.tree.read(tokens[0])
        return row

    def _keep(self, candidates: list[Candidate]) -> list[Candidate]:
        """The proposals with the best objective."""
        values = self.tree.values(candidates)
        scored = [candidate._replace(value=value) for candidate, value in zip(candidates, values, strict=True)]
        best = nlargest(self.settings.beam, scored, key=attrgetter("value"))
        worst = best[0].value - self.settings.threshold
        return [candidate for candidate in best if candidate.value >= worst]

    def _final_score(self, candidate: Candidate) -> float:
        return candidate.value

    def _max_nodes(self) -> int:
        """0: the tree is pruned after every row, so that the channel can drop the columns that no node needs."""
        return 0

    def _needed(self) -> set[int]:
        """Also the nodes above what is written through which channel probability still passes."""
        needed, node = super()._needed(), self.root[0]
        while (node := self.tree.parent[node]) >= 0 and self.tree.passes(node, self.root[0]):
            needed.add(node)
        return needed


class SeparateStreams:
    """Several streams, each decoded separately; ``start`` gives the decoder of one, from its features and bias."""

    writes_at_once = False

    def __init__(
        self, start: Callable[[NDArray[np.int64], float], Any], features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        self._start = start
        self._streams = [start(ids[None], emit_bias) for ids in features]

    def add(self, features: NDArray[np.int64]) -> None:
        """Adds streams, one for each row of ``features``."""
        self._streams += [self._start(ids[None], 0.0) for ids in features]

    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs in the slots of streams; the output of each must begin with the tokens of its prefix."""
        for stream, ids, bias, prefix in zip(streams, features, emit_bias, prefixes, strict=True):
            self._streams[stream] = self._start(ids[None], bias)
            self._streams[stream].prefixes[0] = tuple(prefix)

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """What a stream may write next."""
        found: list[tuple[list[int], float]] = self._streams[stream].outputs(0)
        return found

    def advance(
        self,
        streams: Sequence[int],
        tokens: Sequence[int],
        copied: Sequence[int] | None = None,
        ending: Sequence[int] = (),
    ) -> list[list[int]]:
        """One more input token of some streams, and the end of others; the tokens that each of them now writes."""
        words = [None] * len(streams) if copied is None else [[word] for word in copied]
        each = zip(streams, tokens, words, strict=True)
        written = [self._streams[stream].read([0], [token], word)[0] for stream, token, word in each]
        return written + [self._streams[stream].finish([0])[0] for stream in ending]
