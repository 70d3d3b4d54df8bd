"""Noisy-channel beam search: the direct model proposes extensions, all models together rescore them.

Of the extensions of each sentence, the best ``proposals`` by direct model and language model are rescored:

    O = l1 log p(y_1^j | x) + l2 c + l3 log p(y_1^j) + l4 j

Finished outputs are ranked with ``c = log p(x | y)``, by the objective of ``models/noisy_channel.py`` with the
marginals of both transducers. While outputs of one length compete, ended or not, some have read only part of the input,
and one that has read less has less to explain. So the channel compares only those whose last token was written in the
same row of the direct model, and its weight is halved, since later tokens may explain what is badly explained so far:

    e = sum_i arrive(i) log p(x_1^i | y_1^j)            arrive(i): the direct model wrote y_j in row i
    c = (e - max of e over the proposals of the same row) / 2

Such a search can miss outputs that the direct model finds by itself and that all models together prefer. So the best
``direct_outputs`` of the direct model are scored too, and ranked with those that were found. If nothing but the direct
model has a weight, its own search is the whole search: the answers are those of the direct model alone.

Thesis: section 5.3; ``thesis_searches.py`` has its Algorithm 2, with a beam for every cell and best paths.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import (
    Beam,
    BeamSearch,
    Extensions,
    Pruned,
    Rescorer,
    scatter_to_slots,
    search_outputs,
)
from antiphon.decode.channel_lattice import ChannelLattice, ChannelRows
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import AlignedModel, LeftToRight, output_scorer, select
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.nn.recurrent import LSTMState
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, mean_of_both
from antiphon.torch_free.vocab import END, START

_UNFINISHED_FACTOR = 0.5
"""Factor on the channel score where outputs are compared that may not have ended."""


class RescorerState(NamedTuple):
    """Channel and language model after each of ``N`` prefixes; the language model has not read the last token yet."""

    rows: ChannelRows | None
    language: LSTMState | None
    log_language: Float[Tensor, " N"]


class LanguageStep(NamedTuple):
    """The language model after each of ``N`` prefixes: log probabilities of the next token, and its state."""

    log_next: Float[Tensor, "N V"]
    state: LSTMState


class ActiveExtensions(NamedTuple):
    """The extensions of all sentences that are rescored, one after the other; with static shapes, not all exist."""

    parent: Int[Tensor, " M"]
    token: Int[Tensor, " M"]
    sentence: Int[Tensor, " M"]
    exists: Bool[Tensor, " M"]


class Pending(NamedTuple):
    """The states of the active extensions; ``state_index`` maps all extensions to them."""

    state: RescorerState
    state_index: Int[Tensor, " E"]


@torch.inference_mode()
def search_noisy_channel(
    model: NoisyChannel,
    batch: Batch,
    settings: BeamSettings,
    prefix: Sequence[int] = (),
    *,
    static_shapes: bool | None = None,
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, each with its four features.

    All outputs begin with the tokens of ``prefix``.
    """
    direct, wide = cast(LeftToRight, model.direct), settings.for_rescoring()
    rescorer = NoisyChannelRescorer(model, batch, wide)
    if model.weights.only_direct:
        return rescorer.rescore(search_outputs(direct, batch, settings, prefix))
    found = BeamSearch(direct, batch, wide, rescorer, prefix=prefix, static_shapes=static_shapes).run()
    if direct.twin is not None and not prefix:  # found by one half, judged by both
        found = rescorer.rescore(mean_of_both(found, output_scorer(direct, batch)))
    by_direct: list[list[Hypothesis]] = [[] for _ in found]
    if settings.direct_outputs:
        width = replace(settings, nbest=settings.direct_outputs)
        by_direct = rescorer.rescore(search_outputs(direct, batch, width, prefix))
    return _merge_outputs(found, by_direct, settings.nbest)


def _merge_outputs(
    one: Sequence[Sequence[Hypothesis]], other: Sequence[Sequence[Hypothesis]], nbest: int
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of two searches for every sentence, best first; each output once."""
    merged = []
    for outputs in zip(one, other, strict=True):
        unique = {each.tokens: each for each in (*outputs[1], *outputs[0])}
        merged.append(sorted(unique.values(), key=lambda each: -each.score)[:nbest])
    return merged


@torch.inference_mode()
def rescore_outputs(
    model: NoisyChannel, batch: Batch, settings: BeamSettings, found: list[list[Hypothesis]]
) -> list[list[Hypothesis]]:
    """Outputs of the direct model with the scores of all models."""
    return NoisyChannelRescorer(model, batch, settings).rescore(found)


@torch.inference_mode()
def search_with_pruned(
    model: LeftToRight | NoisyChannel, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> tuple[list[Hypothesis], list[Pruned]]:
    """The best outputs of a single source, and the hypotheses that the beam pruned, the most probable first.

    A noisy channel ranks none of its ``direct_outputs`` here: they are found by a search of their own.
    """
    searched, rescorer, width = model, None, settings
    if isinstance(model, NoisyChannel):
        width = settings.for_rescoring()
        searched, rescorer = cast(LeftToRight, model.direct), NoisyChannelRescorer(model, batch, width)
    search = BeamSearch(cast(LeftToRight, searched), batch, width, rescorer, prefix=prefix, static_shapes=False)
    (found,) = search.run()
    return found[: settings.nbest], search.pruned()


class NoisyChannelRescorer(Rescorer):
    """Rescores a beam search of the direct model by channel model, language model and length."""

    features = 4

    def __init__(self, model: NoisyChannel, batch: Batch, settings: BeamSettings) -> None:
        super().__init__(settings)
        self.model, self.lengths = model, batch.source_lengths
        self.static_shapes = False
        self.device, self.rows = batch.source.device, batch.source.shape[1]
        self.channel: ChannelLattice | None = None
        self.language_memory, self.first_language = None, None
        if model.channel is not None:
            inputs, features = model.input_in_channel[batch.source], model.features_in_channel[batch.features]
            self.channel = ChannelLattice(model.channel, inputs, features)
        if model.language_model is not None:
            theirs = batch._replace(features=model.features_in_language_model[batch.features])
            self.language_memory, self.first_language = model.language_model.start(theirs)

    def rescore(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Outputs of the direct model with their features, scored by the objective.

        Where only the direct model weighs, outputs keep its own score, which may be normalised by length.
        """
        outputs = [each for some in found for each in some]
        if not outputs:
            return found
        sentence = torch.tensor([b for b, some in enumerate(found) for _ in some], device=self.device)
        log_channel, log_language = self._score_outputs([each.tokens for each in outputs], sentence)
        log_direct, lengths = log_language.new_tensor([(each.log_prob, len(each.tokens)) for each in outputs]).unbind(1)
        features = torch.stack([log_direct, log_channel, log_language, lengths], 1)
        keeps_score, scores = self.model.weights.only_direct, self.model.objective(features).tolist()
        scored = (
            replace(each, score=each.score if keeps_score else score, features=tuple(row))
            for each, score, row in zip(outputs, scores, features.tolist(), strict=True)
        )
        return [[next(scored) for _ in some] for some in found]

    def _score_outputs(
        self, outputs: Sequence[Sequence[int]], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """``log p(x | y)`` and ``log p(y)`` of outputs; a prefix that several share is read once."""
        tokens = pad_sequence(list(map(torch.tensor, outputs)), True, END).to(self.device)
        log_channel, log_language = torch.zeros(2, len(outputs), dtype=torch.float64, device=self.device)
        unfinished, prefix = torch.arange(len(outputs), device=self.device), sentence
        sentence, size = torch.arange(len(self.lengths), device=self.device), int(tokens.max()) + 1
        state = self.select(self.start(static_shapes=self.static_shapes), sentence)
        last = torch.full_like(sentence, START)
        for token in tokens.unbind(1):
            token = token[unfinished]
            extended, prefix = (prefix * size + token).unique(return_inverse=True)
            parent = extended // size
            state = self.extend(state, last, parent, extended % size, sentence)
            sentence, last, ends = sentence[parent], extended % size, token == END
            log_language[unfinished[ends]] = state.log_language[prefix[ends]]
            if state.rows is not None:
                log_channel[unfinished[ends]] = self.whole_inputs(state.rows, sentence)[prefix[ends]]
            unfinished, prefix = unfinished[~ends], prefix[~ends]
        return log_channel, log_language

    def extend(
        self,
        state: RescorerState,
        last: Int[Tensor, " N"],
        parent: Int[Tensor, " M"],
        token: Int[Tensor, " M"],
        sentence: Int[Tensor, " N"],
    ) -> RescorerState:
        """The state after prefixes that extend ``parent`` by a token; ``last`` and ``sentence`` are the parents'."""
        rows, log_language = self._append(state, parent, token, sentence[parent]), state.log_language[parent]
        language = self._step_language(state.language, last, sentence)
        if language is None:
            return RescorerState(rows, None, log_language)
        log_token = language.log_next[parent, self.model.language_model_ids(token)]
        return RescorerState(rows, select(language.state, parent), log_language + log_token)

    def start(self, *, static_shapes: bool) -> Pending:
        """Channel and language model before the first token; ``static_shapes`` holds for all steps that follow."""
        self.static_shapes = static_shapes
        sentence = torch.arange(len(self.lengths), device=self.device)
        rows = None if self.channel is None else self.channel.start()
        nothing = torch.zeros_like(sentence, dtype=torch.float64)
        return Pending(RescorerState(rows, self.first_language, nothing), sentence)

    def select(self, after: Pending | RescorerState, index: Int[Tensor, " N"]) -> RescorerState:
        """The states of some extensions, or of some hypotheses."""
        state, state_index = (after.state, after.state_index[index]) if isinstance(after, Pending) else (after, index)
        return select(state, state_index)

    def prepare(self, beam: Beam) -> LanguageStep | None:
        """The language model after the hypotheses of the beam, if there is one."""
        return self._step_language(beam.rescorer_state.language, beam.token, beam.sentence)

    def _step_language(
        self, state: LSTMState | None, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> LanguageStep | None:
        if self.model.language_model is None or state is None:
            return None
        ids = self.model.language_model_ids(tokens)
        return LanguageStep(*self.model.language_model.step(self.language_memory, state, ids, sentence))

    def choose(
        self, extensions: Extensions, beam: Beam, memory: Any, state: Any, prepared: LanguageStep | None
    ) -> tuple[Extensions, Pending]:
        """The best ``proposals`` extensions of each sentence, rescored."""
        before: RescorerState = beam.rescorer_state
        length = beam.length + 1
        log_language = self._language_scores(before, extensions, prepared)
        proposals, log_language = self._propose(extensions, log_language, length)
        B, E = proposals.token.shape
        exists = proposals.value > IMPOSSIBLE
        index = self._active_index(exists)
        parent, token, is_real = (part.flatten()[index] for part in (proposals.parent, proposals.token, exists))
        active = ActiveExtensions(parent, token, index // E, is_real)
        rows = self._append(before, parent, token, active.sentence)
        scores = self._channel_scores(rows, active, memory, state)
        compared, log_channel = (scatter_to_slots(each, index, B * E).view(B, E) for each in scores)
        value = self._value(proposals.value, proposals.log_prob, compared, log_language, length)
        features = torch.stack([proposals.log_prob, log_channel, log_language, length.expand(B, E)], -1)
        language = None if prepared is None else select(prepared.state, parent)
        after = RescorerState(rows, language, log_language.flatten()[index])
        state_index = scatter_to_slots(torch.arange(len(index), device=self.device), index, B * E)
        return proposals._replace(value=value, features=features), Pending(after, state_index)

    def _language_scores(
        self, before: RescorerState, extensions: Extensions, language: LanguageStep | None
    ) -> Float[Tensor, "B E"]:
        """The language model's log probability of every extension, 0 if there is none."""
        if language is None:
            return torch.zeros_like(extensions.log_prob)
        log_token = language.log_next[extensions.parent, self.model.language_model_ids(extensions.token)]
        return before.log_language[extensions.parent] + log_token

    def _propose(
        self, extensions: Extensions, log_language: Float[Tensor, "B E"], length: Float[Tensor, ""]
    ) -> tuple[Extensions, Float[Tensor, "B P"]]:
        """The best ``proposals`` by direct model and language model together, and the language model's part.

        If the weight of the direct model is 0, it still proposes, by its own score only.
        """
        value = extensions.log_prob
        if self.model.weights.direct:
            value = self._value(value, value, None, log_language, length)
        value = value.masked_fill(value < value.amax(1, keepdim=True) - self.settings.threshold, IMPOSSIBLE)
        value, chosen = value.topk(min(max(self.settings.proposals, self.settings.beam), value.shape[1]), 1)
        return extensions.take(chosen, value), log_language.gather(1, chosen)

    def _active_index(self, exists: Bool[Tensor, "B E"]) -> Int[Tensor, " M"]:
        """Flat indices of the extensions that exist; with static shapes, all of them."""
        if self.static_shapes:
            return torch.arange(exists.numel(), device=self.device)
        return exists.flatten().nonzero()[:, 0]

    def _append(
        self, before: RescorerState, parent: Int[Tensor, " M"], token: Int[Tensor, " M"], sentence: Int[Tensor, " M"]
    ) -> ChannelRows | None:
        if self.channel is None or before.rows is None:
            return None
        return self.channel.append_rows(before.rows, parent, self.model.channel_ids(token), sentence)

    def _channel_scores(
        self, rows: ChannelRows | None, active: ActiveExtensions, memory: Any, state: Any
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
        """``c`` of each extension, to be compared, and as its feature ``log p(x | y)`` if it ends, else ``c`` again.

        ``memory`` and ``state`` are the direct model's.
        """
        parent, token, sentence, exists = active
        if rows is None:
            nothing = torch.zeros_like(token, dtype=torch.float64)
            return nothing, nothing
        log_arrive = cast(AlignedModel, self.model.direct).log_rows(memory, state, parent, token, sentence)
        last_row = self.lengths[sentence] - 1
        whole = self.whole_inputs(rows, sentence)
        explained = torch.where(token == END, whole, self._explained(rows, log_arrive.exp()))
        row = torch.where(token == END, last_row, log_arrive.argmax(1))
        cell = sentence * self.rows + row
        best = torch.full((len(self.lengths) * self.rows,), IMPOSSIBLE, dtype=explained.dtype, device=self.device)
        best = best.scatter_reduce(0, cell, explained.masked_fill(~exists, IMPOSSIBLE), "amax")
        compared = _UNFINISHED_FACTOR * (explained - best[cell])
        return compared, torch.where(token == END, whole, compared)

    def whole_inputs(self, rows: ChannelRows, sentence: Int[Tensor, " M"]) -> Float[Tensor, " M"]:
        """``log p(x | y)`` of whole inputs, if outputs end with these rows."""
        return rows.scores.last.gather(1, (self.lengths[sentence] - 1)[:, None])[:, 0]

    def _explained(self, rows: ChannelRows, arrive: Float[Tensor, "M I"]) -> Float[Tensor, " M"]:
        """``e`` of each extension."""
        return torch.where(arrive > 0, arrive * rows.scores.last, 0.0).sum(1)

    def _value(self, before: Float[Tensor, "B E"], *features: Tensor | None) -> Float[Tensor, "B E"]:
        """The objective divided by the largest weight; impossible extensions stay impossible."""
        value = self.model.weigh(*features) / self.model.weights.scale  # type: ignore[arg-type]
        return value.masked_fill(before == IMPOSSIBLE, IMPOSSIBLE)

    def search_score(self, extensions: Extensions, length: Tensor) -> Float[Tensor, "B E"]:
        """The objective."""
        return self.model.objective(extensions.features)

    def upper_bound(self, extensions: Extensions, length: Tensor, limits: Tensor) -> Float[Tensor, "B E"]:
        """The best objective that can still be reached, infinite if a model has a negative weight.

        Direct model and language model only fall as an output grows, and the channel's log probability is at most 0.
        """
        return self.bound(extensions.features, length, limits)

    def bound(self, features: Float[Tensor, "*cells 4"], length: Tensor, limits: Tensor) -> Float[Tensor, "*cells"]:
        """The same of unfinished outputs with these features."""
        weights = self.model.weights
        direct, _, language, _ = features.unbind(-1)
        longest = (limits if weights.length > 0 else length).to(direct.dtype)
        bound = self.model.weigh(direct, None, language, longest)
        return bound if min(weights[:3]) >= 0 else torch.full_like(bound, float("inf"))
