"""Noisy-channel beam search: ``decode/noisy_channel.py``, which has the equations, in numpy.

A step of the channel model is a graph that appends one row to its lattice (``decode/channel_lattice.py``).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.ensemble import IdMaps
from antiphon.lite.graphs import IMPOSSIBLE, Array, GraphModel, State
from antiphon.lite.search import Beam, BeamSearch, Extensions, top_k
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.hypothesis import (
    UNFINISHED_FACTOR,
    BeamSettings,
    Hypothesis,
    Weights,
    merge_outputs,
    padded_tokens,
    with_scores,
)
from antiphon.torch_free.vocab import END, START

_ANYWHERE = "state_scores_anywhere"
"""In the state of a channel, the probability of inputs whose last token is written in any row so far."""


class Part(NamedTuple):
    """Channel model or language model, and the maps from the direct model's ids to its own."""

    model: GraphModel
    ids: IdMaps


class NoisyChannel(NamedTuple):
    """Direct model, channel model and language model with their weights; any but the direct one may be missing."""

    direct: Any
    channel: Part | None
    language: Part | None
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
    if model.weights.only_direct:
        return rescorer.rescore(BeamSearch(direct, pairs, settings).run())
    found = BeamSearch(direct, pairs, wide, rescorer).run()
    if not settings.direct_outputs:
        return [outputs[: settings.nbest] for outputs in found]
    by_direct = BeamSearch(direct, pairs, replace(settings, nbest=settings.direct_outputs)).run()
    return merge_outputs(found, rescorer.rescore(by_direct), settings.nbest)


class RescorerState(NamedTuple):
    """Channel and language model after each of ``N`` prefixes; the language model has not read the last token yet.

    ``log_last`` are log probabilities of the inputs up to every token, if it is written after the whole prefix.
    """

    channel: State
    log_last: Array
    language: State
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
        (self.channel_memory, channel), (self.language_memory, language) = (
            ({}, {}) if part is None else part.model.start(part.ids.pairs(pairs))
            for part in (model.channel, model.language)
        )
        B = len(pairs.source)
        self.first = RescorerState(channel, np.zeros((B, self.I)), language, np.zeros(B))

    def rescore(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Outputs of the direct model with their features, scored by the objective.

        Where only the direct model weighs, outputs keep its own score, which may be normalised by length.
        """
        tokens = np.array(padded_tokens(found))
        log_channel, log_language = self._score_outputs(tokens)
        lengths = (tokens == END).argmax(2) + 1.0
        log_direct = np.zeros_like(log_language)
        for b, outputs in enumerate(found):
            log_direct[b, : len(outputs)] = [each.log_prob for each in outputs]
        features = np.stack([log_direct, log_channel, log_language, lengths], 2)
        scores = self.model.weigh(tuple(np.moveaxis(features, -1, 0))).tolist()
        if self.model.weights.only_direct:
            scores = [[each.score for each in outputs] for outputs in found]
        return with_scores(found, scores, features.tolist())

    def _score_outputs(self, tokens: Array) -> tuple[Array, Array]:
        """``log p(x | y)`` and ``log p(y)`` of outputs, padded by end symbols; a prefix of several is read once."""
        B, K, _ = tokens.shape
        outputs, size = tokens.reshape(B * K, -1), int(tokens.max()) + 1
        log_channel, log_language = np.zeros((2, B * K))
        unfinished, sentence = np.arange(B * K), np.arange(B)
        prefix, state, last = unfinished // K, self.first, np.full(B, START)
        for token in outputs.T:
            token = token[unfinished]
            extended, prefix = np.unique(prefix * size + token, return_inverse=True)
            parent, token = extended // size, extended % size
            log_next, language = self._step_language(state.language, last, sentence)
            sentence, log_language_now = sentence[parent], state.log_language[parent]
            if self.model.language is not None:
                log_language_now = log_language_now + log_next[parent, self.model.language.ids.outputs(token)]
            state = self._append(state, parent, token, sentence, language, log_language_now)
            ends = token[prefix] == END
            log_language[unfinished[ends]] = state.log_language[prefix[ends]]
            log_channel[unfinished[ends]] = self._whole_inputs(state, sentence)[prefix[ends]]
            unfinished, prefix, last = unfinished[~ends], prefix[~ends], token
            if not len(unfinished):
                break
        return log_channel.reshape(B, K), log_language.reshape(B, K)

    def start(self) -> Pending:
        """Channel and language model before the first token."""
        return Pending(self.first, np.arange(len(self.lengths)))

    def select(self, after: Pending | RescorerState, index: Array) -> RescorerState:
        """The states of some extensions, or of some hypotheses."""
        state, chosen = (after.state, after.state_index[index]) if isinstance(after, Pending) else (after, index)
        channel, log_last, language, log_language = state
        return RescorerState(
            self._select(self.model.channel, channel, chosen),
            log_last[chosen],
            self._select(self.model.language, language, chosen),
            log_language[chosen],
        )

    def _select(self, part: Part | None, state: State, index: Array) -> State:
        return {} if part is None else part.model.select(state, index)

    def choose(self, extensions: Extensions, beam: Beam, memory: Any, state: Any) -> tuple[Extensions, Pending]:
        """The best ``proposals`` extensions of each sentence, rescored."""
        before: RescorerState = beam.rescorer_state
        length = beam.length + 1.0
        log_next, language = self._step_language(before.language, beam.token, beam.sentence)
        log_language = np.zeros_like(extensions.log_prob)
        if self.model.language is not None:
            log_token = log_next[extensions.parent, self.model.language.ids.outputs(extensions.token)]
            log_language = before.log_language[extensions.parent] + log_token
        proposals, log_language = self._propose(extensions, log_language, length)
        E = proposals.token.shape[1]
        active = np.flatnonzero(proposals.value > IMPOSSIBLE)
        sentence, parent, token = active // E, proposals.parent.ravel()[active], proposals.token.ravel()[active]
        after = self._append(before, parent, token, sentence, language, log_language.ravel()[active])
        channel, state_index = np.zeros((2, *proposals.token.shape)), np.zeros(proposals.token.size, np.int64)
        channel.reshape(2, -1)[:, active] = self._channel_scores(after, memory, state, parent, token, sentence)
        compared, log_channel = channel
        state_index[active] = np.arange(len(active))
        value = self._value(proposals.value, (proposals.log_prob, compared, log_language, length))
        features = np.stack([proposals.log_prob, log_channel, log_language, np.full_like(compared, length)], -1)
        return proposals._replace(value=value, features=features), Pending(after, state_index)

    def _step_language(self, state: State, tokens: Array, sentence: Array) -> tuple[Array, State]:
        """The language model after tokens: log probabilities of the next one, and its state."""
        if self.model.language is None:
            return np.zeros((len(tokens), 0)), {}
        language, ids = self.model.language
        return language.step(self.language_memory, state, ids.outputs(tokens), sentence)

    def _append(
        self, before: RescorerState, parent: Array, tokens: Array, sentence: Array, language: State, log_language: Array
    ) -> RescorerState:
        """The state after one more token of each parent, given the language model's, which is that of the parents."""
        language = self._select(self.model.language, language, parent)
        if self.model.channel is None:
            return RescorerState({}, before.log_last[parent], language, log_language)
        channel, ids = self.model.channel
        state = channel.select(before.channel, parent)
        log_last, state = channel.step(self.channel_memory, state, ids.outputs(tokens), sentence)
        return RescorerState(state, log_last, language, log_language)

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

    def _channel_scores(
        self, after: RescorerState, memory: Any, state: Any, parent: Array, token: Array, sentence: Array
    ) -> tuple[Array, Array]:
        """``c`` of each extension, to be compared, and as its feature ``log p(x | y)`` if it ends, else ``c`` again."""
        if self.model.channel is None or not len(token):
            return np.zeros(len(token)), np.zeros(len(token))
        arrive = np.exp(self.model.direct.log_rows(memory, state, parent, token, sentence))
        whole = self._whole_inputs(after, sentence)
        so_far = after.log_last if self.model.reading == "last" else after.channel[_ANYWHERE]
        with np.errstate(invalid="ignore"):  # 0 times infinity
            explained = np.where(arrive > 0, arrive * so_far, 0.0).sum(1)
        explained = np.where(token == END, whole, explained)
        cell = sentence * self.I + np.where(token == END, self.lengths[sentence] - 1, arrive.argmax(1))
        best = np.full(len(self.lengths) * self.I, IMPOSSIBLE)
        np.maximum.at(best, cell, explained)
        compared = UNFINISHED_FACTOR * (explained - best[cell])
        return compared, np.where(token == END, whole, compared)

    def _whole_inputs(self, state: RescorerState, sentence: Array) -> Array:
        """``log p(x | y)`` of whole inputs, if outputs end here."""
        return np.asarray(state.log_last[np.arange(len(sentence)), self.lengths[sentence] - 1])

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
