"""Online decoding with a noisy channel in numpy: ``torch_free/noisy_channel_policy.py`` has the policy."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.growing_channel import GrowingLattice
from antiphon.lite.log_space import Array
from antiphon.lite.noisy_channel_search import Language, NoisyChannel
from antiphon.lite.stream_decoders import LiteBeamDecoder, LiteTree
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.beam_row import Candidate
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.noisy_channel_policy import NoisyChannelPolicy, ScoredTree
from antiphon.torch_free.vocab import END, START


class LanguageState(NamedTuple):
    """The language model after each of ``N`` output prefixes."""

    state: Any
    log_prob: Array
    log_next: Array


class LanguageScores:
    """The language model after every node of a tree."""

    def __init__(self, language: Language, features: NDArray[np.int64]) -> None:
        self.language = language
        nothing = PaddedPairs.of([np.zeros(0, np.int32)])
        self._memory, state = language.start(nothing._replace(features=features))
        self._after = self._step(state, np.array([START]), np.zeros(1))

    def _step(self, state: Any, ids: Array, log_prob: Array) -> LanguageState:
        log_next, state = self.language.model.step(self._memory, state, ids, np.zeros(len(ids), np.int64))
        return LanguageState(state, log_prob, log_next)

    def of(self, parent: Array, tokens: Array) -> Array:
        """The log probability of outputs that extend nodes by one token each."""
        return np.asarray(self._after.log_prob[parent] + self._after.log_next[parent, self.language.ids(tokens)])

    def extend(self, parent: Array, tokens: Array) -> None:
        """Adds the nodes that extend others by one token each."""
        model, before = self.language.model, self._after
        new = self._step(model.select(before.state, parent), self.language.ids(tokens), self.of(parent, tokens))
        rest = map(np.concatenate, zip(before[1:], new[1:], strict=True))
        self._after = LanguageState(model.join(before.state, new.state), *rest)

    def keep(self, nodes: Array) -> None:
        """Drops all other nodes."""
        state, log_prob, log_next = self._after
        self._after = LanguageState(self.language.model.select(state, nodes), log_prob[nodes], log_next[nodes])


class LiteScoredTree(LiteTree, ScoredTree):
    """The active outputs of one stream, with their channel and language model scores."""

    def __init__(self, model: NoisyChannel, features: NDArray[np.int64]) -> None:
        super().__init__(model.direct.graphs, features)
        self.model = model
        self.language = None if model.language is None else LanguageScores(model.language, features)
        self.lattice: GrowingLattice | None = None
        self.empty_output: int | None = 0
        """The node without tokens, until it is dropped."""
        if model.channel is not None:
            self.lattice = GrowingLattice(model.channel.graphs, model.channel.features[features])
            self.rows = self.lattice.first_row()

    def read(self, token: int) -> None:
        """One more input token, for the channel to write."""
        if self.lattice is not None and self.model.channel is not None:
            ids = int(self.model.channel.inputs[token])
            self.rows = self.lattice.append_column(self.rows, ids, self.parent, self.levels(), self.empty_output)

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes, here and in channel and language model."""
        index = np.array(nodes)
        if self.lattice is not None:
            self.empty_output = nodes.index(self.empty_output) if self.empty_output in nodes else None
            self.rows = self.lattice.drop_columns(self.rows.select(index))
        if self.language is not None:
            self.language.keep(index)
        return super().keep(nodes)

    def passes(self, node: int, below: int) -> bool:
        """Whether channel probability still passes through a node above another one."""
        return self.lattice is not None and self.lattice.passes(self.rows, node, below)

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        index, given = np.array(parents), np.array(tokens)
        if self.lattice is not None and self.model.channel is not None:
            self.rows = self.rows.join(self.lattice.extend(self.rows, index, self.model.channel.ids(given)))
        if self.language is not None:
            self.language.extend(index, given)
        super()._add(parents, tokens)

    def values(self, candidates: list[Candidate]) -> list[float]:
        """The objective of candidates, divided by the largest weight."""
        direct, parent, tokens = (np.array(part) for part in zip(*(each[:3] for each in candidates), strict=True))
        lengths = np.array([self.length[node] + 1 for node in parent], np.float64)
        language = None if self.language is None else self.language.of(parent, tokens)
        objective = self.model.weigh((direct, self._channel_scores(parent, tokens), language, lengths))
        nats: list[float] = np.broadcast_to(objective / self.model.weights.scale, direct.shape).tolist()
        return nats

    def _channel_scores(self, parent: Array, tokens: Array) -> Array | None:
        """``log p(x | y)`` of the input read so far, given each extended output."""
        if self.lattice is None or self.model.channel is None:
            return None
        rows = self.lattice.extend(self.rows, parent, self.model.channel.ids(tokens)).rows
        reads_last = (tokens == END) | (self.model.reading == "last")
        return np.where(reads_last, rows.last[:, -1], rows.anywhere[:, -1])


class LiteNoisyChannelDecoder(NoisyChannelPolicy, LiteBeamDecoder):
    """Decodes one stream: the direct model proposes, the objective selects."""

    tree: LiteScoredTree

    def __init__(
        self, model: NoisyChannel, features: NDArray[np.int64], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model.direct.graphs, features, settings, emit_bias)
        self._begin(LiteScoredTree(model, features), max(settings.proposals, settings.beam))
