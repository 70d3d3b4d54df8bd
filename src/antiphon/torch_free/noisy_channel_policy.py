"""Online decoding with a noisy channel: the policy beam, whose outputs are selected by the objective.

Outputs of one cell are ranked by the objective; those of different lengths are compared by only the direct model, since
a language model would always prefer the output that has written less. The channel's lattice has a row for every node of
the tree of outputs and a column for every input token read. A node above what is written is pruned once almost no
channel probability passes through it, and so is a column that no active output depends on: memory does not grow with
the length of the input.

Thesis: section 5.3, with a unidirectional proposer.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.stream_beam import Extension, OutputTree
from antiphon.torch_free.stream_policies import BeamPolicy, StreamNetwork, StreamPolicy


class ObjectiveScores(Protocol):
    """Channel model and language model after every node of the tree of one stream."""

    def read(self, token: int, tree: OutputTree) -> None:
        """One more input token, for the channel to write."""
        ...

    def values(self, extensions: list[Extension], lengths: list[int]) -> list[float]:
        """The objective of extensions, which have these lengths, divided by the largest weight."""
        ...

    def step(self, parents: list[int], tokens: list[int]) -> None:
        """Adds nodes, each after one more token of a parent."""
        ...

    def keep(self, nodes: list[int]) -> None:
        """Drops all other nodes."""
        ...

    def passes(self, node: int, below: int) -> bool:
        """Whether channel probability still passes through a node above another one."""
        ...


class NoisyChannelPolicy(BeamPolicy):
    """Decodes one stream: the direct model proposes, the objective selects."""

    def __init__(
        self,
        network: StreamNetwork,
        objective: ObjectiveScores,
        settings: BeamSettings,
        features: NDArray[np.int64],
        emit_bias: float = 0.0,
    ) -> None:
        super().__init__(network, settings, features, emit_bias)
        self.objective, self.width = objective, max(settings.proposals, settings.beam)

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> Any:
        self.objective.read(tokens[0], self.tree)
        return super()._read(streams, tokens, copied)

    def _keep(self, extensions: list[Extension]) -> list[Extension]:
        """The proposals with the best objective."""
        lengths = [self.tree.length[each.node] + 1 for each in extensions]
        values = self.objective.values(extensions, lengths)
        scored = [each._replace(value=value) for each, value in zip(extensions, values, strict=True)]
        best = nlargest(self.settings.beam, scored, key=attrgetter("value"))
        worst = best[0].value - self.settings.threshold
        return [each for each in best if each.value >= worst]

    def _decode(self, nodes: range, parents: list[int], tokens: list[int]) -> None:
        self.objective.step(parents, tokens)
        super()._decode(nodes, parents, tokens)

    def _search_score(self, extension: Extension) -> float:
        return extension.value

    def _max_nodes(self) -> int:
        """0: the tree is pruned after every row, so that the channel can prune the columns that no node needs."""
        return 0

    def _needed(self) -> set[int]:
        """Also the nodes above what is written through which channel probability still passes."""
        needed, node = super()._needed(), self.root[0]
        while (node := self.tree.parent[node]) >= 0 and self.objective.passes(node, self.root[0]):
            needed.add(node)
        return needed

    def _keep_nodes(self, nodes: list[int]) -> None:
        self.objective.keep(nodes)
        super()._keep_nodes(nodes)


class SeparateStreams:
    """Several streams, each decoded by a policy of its own; ``start`` gives that of one, from its features and bias."""

    writes_at_once = False

    def __init__(
        self,
        start: Callable[[NDArray[np.int64], float], StreamPolicy],
        features: NDArray[np.int64],
        emit_bias: float = 0.0,
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
        """Begins new inputs of streams; the output of each must begin with the tokens of its prefix."""
        for stream, ids, bias, prefix in zip(streams, features, emit_bias, prefixes, strict=True):
            self._streams[stream] = self._start(ids[None], bias)
            self._streams[stream].prefixes[0] = tuple(prefix)

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """What a stream may write next."""
        return self._streams[stream].outputs(0)

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
