"""Beam search for every model that predicts token by token: ``decode/beam_search.py`` in numpy."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from antiphon.lite.graphs import IMPOSSIBLE, Array
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.hypothesis import (
    FINISHED_COLUMNS,
    LONG_SOURCE,
    SCORE,
    STUCK_AFTER,
    VALUE,
    BeamSettings,
    Hypothesis,
    trace_outputs,
)
from antiphon.torch_free.vocab import END, PAD, SPECIALS, START, UNKNOWN

_MIN_VALUE = np.finfo(np.float64).min
"""Lower than every possible value."""
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""


class Extensions(NamedTuple):
    """Hypotheses with one more token, ``E`` of each sentence: the hypothesis that each extends, and its token.

    They are compared by ``value``; ``features`` are the scores that it was computed from, if any.
    """

    parent: Array
    token: Array
    log_prob: Array
    value: Array
    features: Array

    def take(self, index: Array, value: Array) -> "Extensions":
        """Some extensions of each sentence with new values and no features."""
        parent, token, log_prob = (np.take_along_axis(part, index, 1) for part in self[:3])
        return Extensions(parent, token, log_prob, value, self.features[:, :0])


class Beam(NamedTuple):
    """Unfinished hypotheses of one length, each in a slot of its sentence: slot ``s * K + rank`` of sentence ``s``.

    ``finished`` has the best finished outputs of each sentence, best first, as rows of ``FINISHED_COLUMNS`` and
    features. Where there are fewer, scores are impossible.
    """

    length: int
    slot: Array
    sentence: Array
    token: Array
    log_prob: Array
    state: Any
    rescorer_state: Any
    finished: Array


class StepRecord(NamedTuple):
    """The record of a step: token, parent slot and log probability of the hypothesis in every slot."""

    token: Array
    parent: Array
    log_prob: Array


class Rescorer(Protocol):
    """What hypotheses are compared by; see ``decode/beam_search.py``."""

    features: int

    def start(self) -> Any:
        """Its state before the start symbol of every sentence."""
        ...

    def choose(self, extensions: Extensions, beam: Beam, memory: Any, state: Any) -> tuple[Extensions, Any]:
        """The extensions to consider, with their values and features, and its own state after each of them."""
        ...

    def select(self, state: Any, index: Array) -> Any:
        """The states of some extensions, by flat index over all sentences."""
        ...

    def final_score(self, extensions: Extensions, length: int) -> Array:
        """The score that extensions by the end symbol are ranked by."""
        ...

    def upper_bound(self, extensions: Extensions, length: int, limits: Array) -> Array:
        """The best final score that each can still reach."""
        ...


class LogProbability:
    """Compares extensions by their log probability, without other models."""

    features = 0

    def __init__(self, settings: BeamSettings) -> None:
        self.settings = settings

    def start(self) -> None:
        """Nothing."""

    def choose(self, extensions: Extensions, beam: Beam, memory: Any, state: Any) -> tuple[Extensions, None]:
        """All of them."""
        return extensions, None

    def select(self, state: None, index: Array) -> None:
        """Nothing."""

    def final_score(self, extensions: Extensions, length: int) -> Array:
        """The log probability with length bias and normalisation."""
        return np.asarray(self.settings.search_score(extensions.log_prob, length))

    def upper_bound(self, extensions: Extensions, length: int, limits: Array) -> Array:
        """The bound that follows because the log probability can only fall."""
        return np.asarray(self.settings.upper_bound(extensions.log_prob, length, limits))


class PrefixModel:
    """A model whose outputs all begin with ``prefix``, in one search after another; see ``decode/forced_prefix.py``."""

    def __init__(self, model: Any, prefix: Sequence[int]) -> None:
        self._model, self._prefix, self._remaining = model, tuple(prefix), list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self, pairs: PaddedPairs) -> tuple[Any, Any]:
        """Memory and first state of a search, which writes the whole prefix first."""
        self._remaining = list(self._prefix)
        memory, state = self._model.start(pairs)
        return memory, state

    def step(self, memory: Any, state: Any, tokens: Array, sentence: Array) -> tuple[Array, Any]:
        """Log probabilities of the next token; until the prefix is written, only its next token is possible."""
        log_next, state = self._model.step(memory, state, tokens, sentence)
        if self._remaining:
            token = self._remaining.pop(0)
            only = np.full_like(log_next, IMPOSSIBLE)
            only[:, token] = log_next[:, token]
            log_next = only
        return log_next, state


class BeamSearch:
    """One search over a batch of sentences, token by token."""

    def __init__(
        self, model: Any, pairs: PaddedPairs, settings: BeamSettings, rescorer: Rescorer | None = None
    ) -> None:
        self.model, self.settings = model, settings
        self.rescorer = rescorer or LogProbability(settings)
        self.memory, self.first_state = model.start(pairs)
        self.B, self.K = len(pairs.source), settings.beam
        self.sentences = np.arange(self.B)
        self.last_rows = pairs.source_lengths - 1
        # Lengths in single precision, as PyTorch multiplies them.
        self.limits = settings.length_limits(pairs.source_lengths.astype(np.float32)).astype(np.float64)
        self.width = max(self.K, settings.proposals) if self.rescorer.features else self.K
        self.long_sources = pairs.source_lengths > LONG_SOURCE
        self.is_long = model.aligns and hasattr(model, "next_rows") and bool(self.long_sources.any())

    def run(self) -> list[list[Hypothesis]]:
        """The best outputs of every sentence."""
        beam, history = self._first_beam(), list[StepRecord]()
        rows = np.full_like(self.sentences, -1)
        for length in range(1, int(self.limits.max()) + 1):
            beam, record = self._step(beam)
            history.append(record)
            if self.is_long and length % STUCK_AFTER == 0:
                before, rows = rows, self._furthest_rows(beam)
                beam = self._drop_stuck(beam, rows, before)
            if not len(beam.slot):
                break
        steps = [(each.token.tolist(), each.parent.tolist(), each.log_prob.tolist()) for each in history]
        return trace_outputs(beam.finished.tolist(), steps, self.K)

    def _first_beam(self) -> Beam:
        """One hypothesis without tokens for each sentence, in its first slot."""
        finished = np.zeros((self.B, self.settings.nbest, len(FINISHED_COLUMNS) + self.rescorer.features))
        finished[:, :, [SCORE, VALUE]] = IMPOSSIBLE
        return Beam(
            length=0,
            slot=self.sentences * self.K,
            sentence=self.sentences,
            token=np.full_like(self.sentences, START),
            log_prob=np.zeros(self.B),
            state=self.first_state,
            rescorer_state=self.rescorer.select(self.rescorer.start(), self.sentences),
            finished=finished,
        )

    def _step(self, beam: Beam) -> tuple[Beam, StepRecord]:
        """Hypotheses that are one token longer."""
        log_next, state = self.model.step(self.memory, beam.state, beam.token, beam.sentence)
        length = beam.length + 1
        is_last = self.limits == length
        extensions = self._extend(beam, log_next, is_last)
        extensions, rescorer_state = self.rescorer.choose(extensions, beam, self.memory, state)
        finished = self._finish(beam, extensions, length, is_last)
        value, chosen = self._keep(extensions, finished, length, state)
        kept, exists = extensions.take(chosen, value), value > IMPOSSIBLE
        log_prob = np.where(exists, kept.log_prob, IMPOSSIBLE)
        record = StepRecord(np.where(exists, kept.token, PAD), beam.slot[kept.parent], log_prob)
        slot = np.flatnonzero(log_prob > IMPOSSIBLE)
        index = (chosen + self.sentences[:, None] * extensions.token.shape[1]).ravel()[slot]
        after = Beam(
            length=length,
            slot=slot,
            sentence=slot // self.K,
            token=kept.token.ravel()[slot],
            log_prob=log_prob.ravel()[slot],
            state=self.model.select(state, kept.parent.ravel()[slot]),
            rescorer_state=self.rescorer.select(rescorer_state, index),
            finished=finished,
        )
        return after, record

    def _extend(self, beam: Beam, log_next: Array, is_last: Array) -> Extensions:
        """The best tokens after every hypothesis, unless it must end here, and the end symbol."""
        log_probs = log_next[:, len(SPECIALS) :]
        log_token, next_token = top_tokens(log_probs, min(self.width, log_probs.shape[1]))
        specials = [UNKNOWN, END] if self.settings.replace_unknown or self.model.copies_unknown else [END]
        log_token = np.concatenate([log_token, log_next[:, specials]], 1)
        log_token[:, :-1][is_last[beam.sentence]] = IMPOSSIBLE
        always = np.broadcast_to(np.array(specials), (len(next_token), len(specials)))
        token = np.concatenate([next_token + len(SPECIALS), always], 1)
        parent = np.broadcast_to(np.arange(len(token))[:, None], token.shape)
        log_prob = self._by_sentence(beam.log_prob[:, None] + log_token, beam.slot, IMPOSSIBLE)
        parent, token = (self._by_sentence(part, beam.slot, 0) for part in (parent, token))
        return Extensions(parent, token, log_prob, log_prob, np.zeros((*log_prob.shape, 0)))

    def _by_sentence(self, values: Array, slot: Array, empty: float) -> Array:
        """Values of hypotheses grouped by sentence, ``K * W`` each."""
        slots = np.full((self.B * self.K, values.shape[1]), empty, values.dtype)
        slots[slot] = values
        return slots.reshape(self.B, -1)

    def _finish(self, beam: Beam, extensions: Extensions, length: int, is_last: Array) -> Array:
        """The best finished outputs, with those that end here.

        An end symbol counts only among the best ``beam`` extensions, so that a wide search does not pick short outputs
        that a narrow one would never consider.
        """
        value = extensions.value
        counts = (extensions.token == END) & (value > IMPOSSIBLE)
        if not counts.any():
            return beam.finished
        counts &= (value >= kth_best(value, self.K)[:, None]) | is_last[:, None]
        score = np.where(counts, self.rescorer.final_score(extensions, length), IMPOSSIBLE)
        value = np.where(counts, value, IMPOSSIBLE)
        step, slot = np.full_like(value, beam.length), beam.slot[extensions.parent]
        ended = np.stack([score, value, extensions.log_prob, step, slot], 2)
        if self.rescorer.features:
            ended = np.concatenate([ended, extensions.features], 2)
        both = np.concatenate([beam.finished, ended], 1)
        best = top_k(both[:, :, SCORE], beam.finished.shape[1])[1]
        return np.take_along_axis(both, best[:, :, None], 1)

    def _keep(self, extensions: Extensions, finished: Array, length: int, state: Any) -> tuple[Array, Array]:
        """Values and indices of the best ``beam`` unfinished extensions; missing ones have impossible values."""
        value = extensions.value
        wanted = kth_best(value, min(self.settings.nbest, value.shape[1]))
        best = np.maximum(wanted, finished[:, :, VALUE].min(1))
        bound = self.rescorer.upper_bound(extensions, length, self.limits[:, None])
        worst = (best - self.settings.threshold).clip(_MIN_VALUE)[:, None]
        goes_on = (extensions.token != END) & (value >= worst) & (bound > finished[:, -1:, SCORE])
        value = np.where(goes_on, value, IMPOSSIBLE)
        if self.is_long:
            value = self._limit_rows(value, extensions, state)
        return top_k(value, self.K)

    def _limit_rows(self, value: Array, extensions: Extensions, state: Any) -> Array:
        """The values; of a long input, impossible for all but the best ``beam / 2`` extensions at one position."""
        best, index = top_k(value, min(4 * self.K, value.shape[1]))
        parent, token = (np.take_along_axis(part, index, 1) for part in (extensions.parent, extensions.token))
        sentence = self.sentences.repeat(index.shape[1])
        log_rows = self.model.log_rows(self.memory, state, parent.ravel(), token.ravel(), sentence)
        row = log_rows.argmax(1).reshape(index.shape)
        before = np.tril(row[:, :, None] == row[:, None], -1).sum(2)
        limited = np.full_like(value, IMPOSSIBLE)
        np.put_along_axis(limited, index, np.where(before >= max(1, self.K // 2), IMPOSSIBLE, best), 1)
        return np.where(self.long_sources[:, None], limited, value)

    def _furthest_rows(self, beam: Beam) -> Array:
        """The furthest row in which any hypothesis of each sentence will most probably write next; -1 without any."""
        rows = np.full_like(self.sentences, -1)
        np.maximum.at(rows, beam.sentence, self.model.next_rows(beam.state))
        return rows

    def _drop_stuck(self, beam: Beam, rows: Array, before: Array) -> Beam:
        """The beam without long inputs that are still in the row of the last check, unless it is their last."""
        stuck = self.long_sources & (rows == before) & (rows < self.last_rows)
        kept = np.flatnonzero(~stuck[beam.sentence])
        return beam._replace(
            slot=beam.slot[kept],
            sentence=beam.sentence[kept],
            token=beam.token[kept],
            log_prob=beam.log_prob[kept],
            state=self.model.select(beam.state, kept),
            rescorer_state=self.rescorer.select(beam.rescorer_state, kept),
        )


def top_k(values: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` highest values of every row, best first, and their indices."""
    size = values.shape[1]
    if k == 1:
        index = values.argmax(1)[:, None]
        return np.take_along_axis(values, index, 1), index
    some = (
        np.argpartition(values, size - k, 1)[:, size - k :]
        if k < size
        else np.arange(size)[None].repeat(len(values), 0)
    )
    found = np.take_along_axis(values, some, 1)
    order = np.argsort(-found, 1, kind="stable")
    return np.take_along_axis(found, order, 1), np.take_along_axis(some, order, 1)


def kth_best(values: Array, k: int) -> Array:
    """The ``k``-th highest value of every row."""
    size = values.shape[1]
    return values.max(1) if k == 1 else np.partition(values, size - k, 1)[:, size - k]


def top_tokens(scores: Array, width: int) -> tuple[Array, Array]:
    """The same as ``top_k``, found in the ``width`` blocks with the highest maxima if there are many tokens."""
    N, V = scores.shape
    count, rest = divmod(V, _BLOCK)
    if count < 2 * width:
        return top_k(scores, width)
    blocks = scores[:, : V - rest].reshape(N, count, _BLOCK)
    chosen = top_k(blocks.max(2), width)[1]
    index = (chosen[:, :, None] * _BLOCK + np.arange(_BLOCK)).reshape(N, -1)
    index = np.concatenate([index, np.arange(V - rest, V)[None].repeat(N, 0)], 1)
    best, which = top_k(np.take_along_axis(scores, index, 1), width)
    return best, np.take_along_axis(index, which, 1)
