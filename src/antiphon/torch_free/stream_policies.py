"""Policies of online decoding: what a unidirectional transducer writes before its input has ended.

Row ``i`` of the lattice holds all tokens written between reading token ``i`` and reading the next one, so rows are
processed one by one as tokens arrive, for many streams at a time. With an ``emit_bias`` the log odds of writing are
raised or lowered in every cell, which trades delay for quality. Two policies decide what is written:

greedy   write the most probable token as long as writing is more probable than reading;
beam     keep in every row the best outputs of each length, scored by the sum over all alignments; after each row,
         write the prefix shared by all outputs at most ``commit_margin`` nats behind the best, and prune outputs that
         begin differently. A wide beam with an infinite margin and no limits ends with the output that a search of the
         whole input finds.

After a row, the score of an output is the log probability of having written exactly this output and reading on.
Outputs ``threshold`` nats behind the best are pruned, and at most a hundred tokens are held back, so the work per row
does not grow with the length of input and output.

A policy has no tensors: its network computes, with PyTorch (``decode/streams.py``) or without. How a noisy channel
streams, see ``decode/noisy_channel_streams.py``.

Thesis: chapter 4, online generation.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import RunError
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.stream_beam import BeamRow, Cells, CellScores, Extension, OutputTree
from antiphon.torch_free.vocab import END, NOT_COPIED

Forced = Sequence[tuple[int, int]]
"""Cells, by index, in which only one token may be written: the next one of the prefix of their stream."""
_ACTIVE_PER_BEAM = 8
"""Active outputs of a stream after a row, per hypothesis of the beam."""
_MIN_PRUNED_NODES = 64
"""Trees of fewer nodes are not pruned."""
_MAX_PENDING = 100
"""Tokens that a stream holds back at most while its outputs disagree."""


class StreamNetwork(Protocol):
    """What a unidirectional transducer computes for streams.

    The source has a state for every stream, and the decoder one for every slot: a stream of the policy greedy, a node
    of the tree of outputs of the policy beam. Slots given as a range are new ones after all others.
    """

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        ...

    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        ...

    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> Any:
        """The source's contribution to the row of each token, the last that its stream has read."""
        ...

    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        ...

    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        ...

    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, in place of all others."""
        ...

    def choose(self, row: Any, cells: Cells, forced: Forced) -> list[int | None]:
        """The token that is written in each cell, at most one for each stream; None where it reads or ends."""
        ...

    def extend(self, row: Any, cells: Cells, width: int, forced: Forced) -> CellScores:
        """What may be written in cells of a row, the best ``width`` tokens at least, and whether it is."""
        ...


class StreamPolicy(ABC):
    """Decodes inputs that arrive token by token, at first one for each row of ``features``.

    Every stream has an ``emit_bias``, and the tokens that its output must begin with, usually none.
    ``writes_at_once``: tokens written after reading a token are always aligned to that token.
    """

    writes_at_once = False

    def __init__(
        self, network: StreamNetwork, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        self.network, self.settings = network, settings
        self.prefixes: list[Sequence[int]] = []
        self.tokens_read: list[int] = []
        self.add(features, emit_bias)

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``, after the existing ones."""
        streams = range(len(self.prefixes), len(self.prefixes) + len(features))
        self.prefixes += [()] * len(features)
        self.tokens_read += [0] * len(features)
        self.network.add(features, emit_bias)
        self._begin(streams, features)

    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs of streams; the output of each must begin with the tokens of its prefix."""
        for stream, prefix in zip(streams, prefixes, strict=True):
            self.prefixes[stream], self.tokens_read[stream] = tuple(prefix), 0
        self.network.restart(streams, features, emit_bias)
        self._begin(streams, features)

    def advance(
        self,
        streams: Sequence[int],
        tokens: Sequence[int],
        copied: Sequence[int] | None = None,
        ending: Sequence[int] = (),
    ) -> list[list[int]]:
        """One more input token of some streams, and the end of others; the tokens that each of them now writes.

        ``copied`` has the target ids of the input tokens, for models that copy words. The end symbol is not written.
        """
        everyone = [*streams, *ending]
        if not everyone:
            return []
        words = None if copied is None else [*copied, *[NOT_COPIED] * len(ending)]
        row = self._read(everyone, [*tokens, *[END] * len(ending)], words)
        return self._write(everyone, row, [False] * len(streams) + [True] * len(ending))

    @abstractmethod
    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """What a stream may write next: tokens that are not written yet, with their log scores, best first."""

    @abstractmethod
    def _begin(self, streams: Sequence[int], features: NDArray[np.int64]) -> None:
        """Gives streams empty outputs; a range stands for new ones after all others."""

    @abstractmethod
    def _write(self, streams: list[int], row: Any, is_last: list[bool]) -> list[list[int]]:
        """The tokens that each stream writes in a row, which may be its last."""

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> Any:
        for stream in streams:
            self.tokens_read[stream] += 1
        return self.network.read(streams, tokens, copied)

    def _longest_output(self, stream: int) -> int:
        """Tokens, end symbol counted, that the output may have by now."""
        return int(self.tokens_read[stream] * self.settings.max_length_ratio) + self.settings.max_length_extra

    def _forced(self, streams: Iterable[int], lengths: Iterable[int]) -> Forced:
        """The forced tokens of cells, given their streams and how many tokens are written before them."""
        if not any(self.prefixes):
            return ()
        cells = enumerate(zip(streams, lengths, strict=True))
        prefixes = self.prefixes
        return [(n, prefixes[stream][length]) for n, (stream, length) in cells if length < len(prefixes[stream])]


class GreedyPolicy(StreamPolicy):
    """Keeps one output for each stream, which grows while writing is more probable than reading."""

    writes_at_once = True

    def __init__(
        self, network: StreamNetwork, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        self._lengths: dict[int, int] = {}
        super().__init__(network, settings, features, emit_bias)

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """One, without tokens: what is decided is written at once."""
        return [([], 0.0)]

    def _begin(self, streams: Sequence[int], features: NDArray[np.int64]) -> None:
        self._lengths.update(dict.fromkeys(streams, 0))
        self.network.start(streams, features)

    def _write(self, streams: list[int], row: Any, is_last: list[bool]) -> list[list[int]]:
        written: list[list[int]] = [[] for _ in streams]
        positions = list(range(len(streams)))
        while positions := [position for position in positions if self._has_room(streams[position])]:
            own = [streams[position] for position in positions]
            forced = self._forced(own, (self._lengths[stream] for stream in own))
            held, last = np.array(own), np.array([is_last[position] for position in positions])
            cells = Cells(np.array(positions), held, held, last, np.zeros(len(own), bool))
            chosen = zip(positions, self.network.choose(row, cells, forced), strict=True)
            writing = [(position, token) for position, token in chosen if token is not None]
            for position, token in writing:
                written[position].append(token)
                self._lengths[streams[position]] += 1
            positions = [position for position, _ in writing]
            if writing:
                slots = [streams[position] for position in positions]
                self.network.step(slots, slots, [token for _, token in writing])
        return written

    def _has_room(self, stream: int) -> bool:
        return self._lengths[stream] + 1 < self._longest_output(stream)


class BeamPolicy(StreamPolicy):
    """Keeps several active outputs for each stream and writes the prefix that they share.

    ``active[s]`` holds the outputs of stream ``s`` with their scores on entering the next row, ``root[s]`` what it has
    written; both are nodes of the tree.
    """

    def __init__(
        self, network: StreamNetwork, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        self.tree, self.width = OutputTree(), settings.beam
        self.root: list[int] = []
        self.active: list[dict[int, float]] = []
        self._nodes_after_pruning = len(features)
        super().__init__(network, settings, features, emit_bias)

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """The active outputs."""
        found = sorted(self.active[stream].items(), key=itemgetter(1), reverse=True)
        return [(self.tree.path(node, self.root[stream]), score) for node, score in found]

    def _begin(self, streams: Sequence[int], features: NDArray[np.int64]) -> None:
        nodes = self.tree.add_roots(streams)
        missing = max(streams) + 1 - len(self.root)
        self.root += [0] * missing
        self.active += [{}] * missing
        for stream, node in zip(streams, nodes, strict=True):
            self.root[stream], self.active[stream] = node, {node: 0.0}
        self.network.start(nodes, features)

    def _write(self, streams: list[int], row: Any, is_last: list[bool]) -> list[list[int]]:
        lengths = [[self.tree.length[node] for node in self.active[stream]] for stream in streams]
        longest = [self._longest_output(stream) for stream in streams]
        column = BeamRow(streams, is_last, [self.active[stream] for stream in streams], lengths, longest)
        while column.next_column():
            forced = self._forced(column.streams[column.positions].tolist(), column.lengths.tolist())
            self._fill_column(column, self.network.extend(row, column.cells(), self.width, forced))
        for stream, ends, reading in zip(streams, is_last, column.reading, strict=True):
            self.active[stream] = {} if ends else self._best_active(reading)
        written = [
            column.finished[position] if ends else self._commit(stream)
            for position, (stream, ends) in enumerate(zip(streams, is_last, strict=True))
        ]
        self._prune_tree()
        return written

    def _fill_column(self, row: BeamRow, cells: CellScores) -> None:
        """Extends the outputs of one column of each stream; each also reads, unless the row is the last."""
        scores = (row.scores + cells.log_emit)[:, None] + cells.log_probs
        if np.isnan(scores).any():
            raise RunError("stream: scores that are no numbers, expected a run whose weights do not overflow")
        row.read(row.scores + cells.log_read)
        n, k = row.best_extensions(scores, self.settings.threshold, self.width)
        nodes, positions = [row.nodes[index] for index in n.tolist()], row.positions[n].tolist()
        chosen = zip(scores[n, k].tolist(), nodes, cells.tokens[n, k].tolist(), positions, strict=True)
        extensions = [Extension(*each) for each in chosen]
        self._arrive(row, self._keep(extensions) if extensions else [])

    def _keep(self, extensions: list[Extension]) -> list[Extension]:
        """The extensions of a column that become outputs: all of them."""
        return extensions

    def _arrive(self, row: BeamRow, extensions: list[Extension]) -> None:
        """Makes extensions outputs of the next column, or finishes them if they end."""
        unfinished = [each for each in extensions if each.token != END]
        grown = self._grow([(each.node, each.token) for each in unfinished])
        for node, each in zip(grown, unfinished, strict=True):
            row.arrive(node, each.position, each.log_score)
        for each in extensions:
            if each.token == END:
                tokens = self.tree.path(each.node, self.root[row.streams[each.position]])
                row.finish(each, self._search_score(each), tokens)

    def _grow(self, grown: list[tuple[int, int]]) -> list[int]:
        """The nodes after one more token of each parent; missing ones are added."""
        children = self.tree.children
        new = [each for each in grown if each not in children]
        if new:
            self._decode(self.tree.add(new), [parent for parent, _ in new], [token for _, token in new])
        return [children[each] for each in grown]

    def _decode(self, nodes: range, parents: list[int], tokens: list[int]) -> None:
        """Computes what belongs to new nodes."""
        self.network.step(nodes, parents, tokens)

    def _search_score(self, extension: Extension) -> float:
        """The score by which a finished output is ranked."""
        length = self.tree.length[extension.node] + 1
        score: float = self.settings.search_score(extension.log_score, length)
        return score

    def _best_active(self, outputs: dict[int, float]) -> dict[int, float]:
        """The outputs that stay active."""
        best = nlargest(_ACTIVE_PER_BEAM * self.settings.beam, outputs.items(), key=itemgetter(1))
        worst = best[0][1] - self.settings.threshold
        return {node: log_score for node, log_score in best if log_score >= worst}

    def _commit(self, stream: int) -> list[int]:
        """Writes the prefix shared by all outputs within the margin; outputs that begin differently are pruned."""
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

    def _prune_tree(self) -> None:
        """Drops the nodes that no active output descends from, once the tree has doubled since the last time."""
        if len(self.tree.owner) <= self._max_nodes():
            return
        needed = self._needed()
        for node in chain.from_iterable(self.active):
            while node not in needed:
                needed.add(node)
                node = self.tree.parent[node]
        self._keep_nodes(sorted(needed))
        self._nodes_after_pruning = len(needed)

    def _max_nodes(self) -> int:
        """The number of nodes above which the tree is pruned."""
        return 2 * self._nodes_after_pruning + _MIN_PRUNED_NODES

    def _needed(self) -> set[int]:
        """Nodes to keep besides the active outputs."""
        return set(self.root)

    def _keep_nodes(self, nodes: list[int]) -> None:
        """Drops all other nodes."""
        moved = self.tree.keep(nodes)
        self.network.keep(nodes)
        self.root = [moved[node] for node in self.root]
        self.active = [{moved[node]: score for node, score in outputs.items()} for outputs in self.active]


POLICIES: dict[str, type[StreamPolicy]] = {"greedy": GreedyPolicy, "beam": BeamPolicy}
"""The policies by their names in options."""
