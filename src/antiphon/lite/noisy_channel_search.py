"""Noisy-channel beam search: ``decode/rescoring.py``, which has the equations, in numpy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.channel_rows import ChannelLattice, ChannelRows
from antiphon.lite.copied_positions import copies_as_unknown
from antiphon.lite.log_space import IMPOSSIBLE, Array, top_k
from antiphon.lite.output_search import Beam, Extensions, OutputSearch
from antiphon.lite.step_model import GraphModel
from antiphon.lite.transducer_graphs import TransducerGraphs
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.channel_weights import UNFINISHED_FACTOR, Weights
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, merge_outputs, padded_tokens, with_scores
from antiphon.torch_free.vocab import END, START


class Channel(NamedTuple):
    """A channel model, and the maps from the direct model's ids of outputs, inputs and features to its own."""

    graphs: TransducerGraphs
    outputs: Array
    inputs: Array
    features: Array

    @classmethod
    def of(cls, graphs: TransducerGraphs, theirs: PairCodec, ours: PairCodec) -> "Channel":
        """A channel model with the maps of its vocabularies."""
        outputs, inputs = ours.target.vocab.ids_in(theirs.source.vocab), ours.source.vocab.ids_in(theirs.target.vocab)
        return cls(graphs, outputs, inputs, ours.features.ids_in(theirs.features))

    def ids(self, outputs: Array) -> Array:
        """Its ids of output tokens; it does not know copied words."""
        return np.asarray(self.outputs[copies_as_unknown(outputs, len(self.outputs))])

    def lattice(self, pairs: PaddedPairs) -> ChannelLattice:
        """The lattice of some inputs."""
        return ChannelLattice(self.graphs, self.inputs[pairs.source], self.features[pairs.features])


class Language(NamedTuple):
    """A language model, and the maps from the direct model's ids of outputs and features to its own."""

    model: GraphModel
    outputs: Array
    features: Array

    @classmethod
    def of(cls, model: GraphModel, theirs: PairCodec, ours: PairCodec) -> "Language":
        """A language model with the maps of its vocabularies."""
        return cls(model, ours.target.vocab.ids_in(theirs.target.vocab), ours.features.ids_in(theirs.features))

    def ids(self, outputs: Array) -> Array:
        """Its ids of output tokens; it does not know copied words."""
        return np.asarray(self.outputs[copies_as_unknown(outputs, len(self.outputs))])

    def start(self, pairs: PaddedPairs) -> tuple[Any, Any]:
        """Memory and state before the start symbol."""
        return self.model.start(pairs._replace(features=self.features[pairs.features]))


class NoisyChannel(NamedTuple):
    """Direct model, channel model and language model with their weights; any but the direct one may be missing."""

    direct: Any
    channel: Channel | None
    language: Language | None
    weights: Weights
    reading: str

    @property
    def copies_unknown(self) -> bool:
        """Whether the direct model writes the unknown token to copy an input token."""
        return bool(self.direct.copies_unknown)

    def weigh(self, features: Sequence[Array | float | None]) -> Array:
        """The weighted sum of direct, channel, language model and length; what is missing or has weight 0 is 0."""
        parts = zip(self.weights, features, strict=True)
        nothing = np.zeros_like(features[0])
        return np.asarray(sum((weight * part for weight, part in parts if weight and part is not None), nothing))


def search_noisy_channel(
    model: NoisyChannel, direct: Any, pairs: PaddedPairs, settings: BeamSettings
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source, each with its four features.

    ``direct`` is the direct model, or what keeps it to a prefix.
    """
    wide = settings.for_rescoring()
    rescorer = NoisyChannelRescorer(model, pairs, wide)
    found = OutputSearch(direct, pairs, wide, rescorer).run()
    if not settings.direct_outputs:
        return [outputs[: settings.nbest] for outputs in found]
    by_direct = OutputSearch(direct, pairs, replace(settings, nbest=settings.direct_outputs)).run()
    return merge_outputs(found, rescorer.rescore(by_direct), settings.nbest)


class RescorerState(NamedTuple):
    """Channel and language model after each of ``N`` prefixes; the language model has not read the last token yet."""

    rows: ChannelRows | None
    language: Any
    log_language: Array


class Pending(NamedTuple):
    """The states of the active extensions; ``state_index`` maps all extensions to them."""

    state: RescorerState
    state_index: Array


class NoisyChannelRescorer:
    """Rescores a beam search of the direct model by channel model, language model and length."""

    features = 4

    def __init__(self, model: NoisyChannel, pairs: PaddedPairs, settings: BeamSettings) -> None:
        self.model, self.settings, self.lengths = model, settings, pairs.source_lengths
        self.I = pairs.source.shape[1]
        self.lattice = None if model.channel is None else model.channel.lattice(pairs)
        nothing: tuple[Any, Any] = (None, None)
        self.memory, self.first_language = nothing if model.language is None else model.language.start(pairs)

    def rescore(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Outputs of the direct model with their features, scored by the objective."""
        tokens = np.array(padded_tokens(found))
        log_channel, log_language = self._score_outputs(tokens)
        lengths = (tokens == END).argmax(2) + 1.0
        log_direct = np.zeros_like(log_language)
        for b, outputs in enumerate(found):
            log_direct[b, : len(outputs)] = [each.log_prob for each in outputs]
        features = np.stack([log_direct, log_channel, log_language, lengths], 2)
        scores = self.model.weigh(tuple(np.moveaxis(features, -1, 0)))
        return with_scores(found, scores.tolist(), features.tolist())

    def _score_outputs(self, tokens: Array) -> tuple[Array, Array]:
        """``log p(x | y)`` and ``log p(y)`` of outputs, padded by end symbols; a prefix of several is read once."""
        B, K, _ = tokens.shape
        outputs, size = tokens.reshape(B * K, -1), int(tokens.max()) + 1
        log_channel, log_language = np.zeros((2, B * K))
        unfinished, sentence = np.arange(B * K), np.arange(B)
        prefix, state, last = unfinished // K, self.select(self.start(), sentence), np.full(B, START)
        for token in outputs.T:
            token = token[unfinished]
            extended, prefix = np.unique(prefix * size + token, return_inverse=True)
            parent = extended // size
            state = self._extend(state, last, parent, extended % size, sentence)
            sentence, last, ends = sentence[parent], extended % size, token == END
            log_language[unfinished[ends]] = state.log_language[prefix[ends]]
            if state.rows is not None:
                whole = state.rows.last[np.arange(len(parent)), self.lengths[sentence] - 1]
                log_channel[unfinished[ends]] = whole[prefix[ends]]
            unfinished, prefix = unfinished[~ends], prefix[~ends]
            if not len(unfinished):
                break
        return log_channel.reshape(B, K), log_language.reshape(B, K)

    def _extend(self, state: RescorerState, last: Array, parent: Array, token: Array, sentence: Array) -> RescorerState:
        """The state after prefixes that extend ``parent`` by a token; ``last`` and ``sentence`` are the parents'."""
        rows, log_language = self._append(state, parent, token, sentence[parent]), state.log_language[parent]
        if self.model.language is None:
            return RescorerState(rows, None, log_language)
        log_next, after = self._step_language(state.language, last, sentence)
        log_token = log_next[parent, self.model.language.ids(token)]
        return RescorerState(rows, self._select_language(after, parent), log_language + log_token)

    def start(self) -> Pending:
        """Channel and language model before the first token."""
        rows = None if self.lattice is None else self.lattice.start()
        B = len(self.lengths)
        return Pending(RescorerState(rows, self.first_language, np.zeros(B)), np.arange(B))

    def select(self, pending: Pending, index: Array) -> RescorerState:
        """The states of some extensions."""
        chosen, (rows, language, log_language) = pending.state_index[index], pending.state
        return RescorerState(
            None if rows is None else rows.select(chosen), self._select_language(language, chosen), log_language[chosen]
        )

    def _select_language(self, state: Any, index: Array) -> Any:
        return None if self.model.language is None else self.model.language.model.select(state, index)

    def choose(self, extensions: Extensions, beam: Beam, memory: Any, state: Any) -> tuple[Extensions, Pending]:
        """The best ``proposals`` extensions of each sentence, rescored."""
        before: RescorerState = beam.rescorer_state
        length = float(beam.length + 1)
        language, log_language = self._language_scores(before, extensions, beam)
        proposals, log_language = self._propose(extensions, log_language, length)
        E = proposals.token.shape[1]
        active = np.flatnonzero(proposals.value > IMPOSSIBLE)
        sentence, parent, token = active // E, proposals.parent.ravel()[active], proposals.token.ravel()[active]
        rows = self._append(before, parent, token, sentence)
        channel, state_index = np.zeros((2, *proposals.token.shape)), np.zeros(proposals.token.size, np.int64)
        channel.reshape(2, -1)[:, active] = self._channel_scores(rows, memory, state, parent, token, sentence)
        compared, log_channel = channel
        state_index[active] = np.arange(len(active))
        value = self._value(proposals.value, (proposals.log_prob, compared, log_language, length))
        features = np.stack([proposals.log_prob, log_channel, log_language, np.full_like(compared, length)], -1)
        after = RescorerState(rows, self._select_language(language, parent), log_language.ravel()[active])
        return proposals._replace(value=value, features=features), Pending(after, state_index)

    def _language_scores(self, before: RescorerState, extensions: Extensions, beam: Beam) -> tuple[Any, Array]:
        """The state of the language model, and its log probability of every extension."""
        language = self.model.language
        if language is None:
            return None, np.zeros_like(extensions.log_prob)
        log_next, state = self._step_language(before.language, beam.token, beam.sentence)
        log_token = log_next[extensions.parent, language.ids(extensions.token)]
        return state, before.log_language[extensions.parent] + log_token

    def _step_language(self, state: Any, tokens: Array, sentence: Array) -> tuple[Array, Any]:
        """The language model after tokens: log probabilities of the next one, and its state."""
        assert self.model.language is not None
        return self.model.language.model.step(self.memory, state, self.model.language.ids(tokens), sentence)

    def _propose(self, extensions: Extensions, log_language: Array, length: float) -> tuple[Extensions, Array]:
        """The best ``proposals`` by direct model and language model together, and the language model's part.

        If the weight of the direct model is 0, it still proposes, by its own score only.
        """
        value = extensions.log_prob
        if self.model.weights.direct:
            value = self._value(value, (value, None, log_language, length))
        value = np.where(value < value.max(1, keepdims=True) - self.settings.threshold, IMPOSSIBLE, value)
        value, chosen = top_k(value, min(max(self.settings.proposals, self.settings.beam), value.shape[1]))
        return extensions.take(chosen, value), np.take_along_axis(log_language, chosen, 1)

    def _append(self, before: RescorerState, parent: Array, token: Array, sentence: Array) -> ChannelRows | None:
        if self.lattice is None or self.model.channel is None or before.rows is None:
            return None
        return self.lattice.append_rows(before.rows, parent, self.model.channel.ids(token), sentence)

    def _channel_scores(
        self, rows: ChannelRows | None, memory: Any, state: Any, parent: Array, token: Array, sentence: Array
    ) -> tuple[Array, Array]:
        """``c`` of each extension, to be compared, and as its feature ``log p(x | y)`` if it ends, else ``c`` again."""
        if rows is None:
            return np.zeros(len(token)), np.zeros(len(token))
        first_row, log_arrive = self.model.direct.log_rows(memory, state, parent, token, sentence)
        last_row = self.lengths[sentence] - 1
        whole = rows.last[np.arange(len(token)), last_row]
        explained = np.where(token == END, whole, self._explained(rows, first_row, np.exp(log_arrive)))
        cell = sentence * self.I + np.where(token == END, last_row, first_row + log_arrive.argmax(1))
        best = np.full(len(self.lengths) * self.I, IMPOSSIBLE)
        np.maximum.at(best, cell, explained)
        compared = UNFINISHED_FACTOR * (explained - best[cell])
        return compared, np.where(token == END, whole, compared)

    def _explained(self, rows: ChannelRows, first_row: int, arrive: Array) -> Array:
        """``e`` of each extension."""
        scores = rows.last if self.model.reading == "last" else rows.anywhere
        so_far = scores[:, first_row : first_row + arrive.shape[1]]
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(arrive > 0, arrive * so_far, 0.0).sum(1))

    def _value(self, before: Array, features: Sequence[Array | float | None]) -> Array:
        """The objective divided by the largest weight; impossible extensions stay impossible."""
        with np.errstate(invalid="ignore"):
            return np.where(before == IMPOSSIBLE, IMPOSSIBLE, self.model.weigh(features) / self.model.weights.scale)

    def final_score(self, extensions: Extensions, length: int) -> Array:
        """The objective."""
        return self.model.weigh(tuple(np.moveaxis(extensions.features, -1, 0)))

    def upper_bound(self, extensions: Extensions, length: int, limits: Array) -> Array:
        """The best objective that can still be reached, infinite if a model has a negative weight."""
        weights = self.model.weights
        if min(weights[:3]) < 0:
            return np.full_like(extensions.value, np.inf)
        direct, _, language, _ = np.moveaxis(extensions.features, -1, 0)
        return self.model.weigh((direct, None, language, limits if weights.length > 0 else float(length)))
