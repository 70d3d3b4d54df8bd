"""Beam search for every model that predicts token by token: ``decode/beam_search.py`` in numpy."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from antiphon.lite.log_space import IMPOSSIBLE, Array, kth_best, top_k, top_tokens
from antiphon.lite.step_model import RowBand, StepModel
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.hypothesis import STUCK_AFTER, BeamSettings, Hypothesis
from antiphon.torch_free.traced_outputs import FINISHED_COLUMNS, SCORE, VALUE, trace_outputs
from antiphon.torch_free.vocab import END, PAD, SPECIALS, START, UNKNOWN

_MIN_VALUE = np.finfo(np.float64).min
"""Lower than every possible value."""


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
    """What hypotheses are compared by; see ``decode/rescorer.py``."""

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
        return np.asarray(self.settings.normalise(extensions.log_prob, length))

    def upper_bound(self, extensions: Extensions, length: int, limits: Array) -> Array:
        """The bound that follows because the log probability can only fall."""
        return np.asarray(self.settings.upper_bound(extensions.log_prob, length, limits))


class OutputSearch:
    """One search over a batch of sentences, token by token."""

    def __init__(
        self, model: StepModel, pairs: PaddedPairs, settings: BeamSettings, rescorer: Rescorer | None = None
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
        is_long = getattr(model, "is_long", None)
        self.is_long = is_long is not None and is_long(self.memory)

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
        band: RowBand = self.model.log_rows(  # type: ignore[attr-defined]
            self.memory, state, parent.ravel(), token.ravel(), sentence
        )
        row = band.log_prob.argmax(1).reshape(index.shape)
        before = np.tril(row[:, :, None] == row[:, None], -1).sum(2)
        limited = np.full_like(value, IMPOSSIBLE)
        np.put_along_axis(limited, index, np.where(before >= max(1, self.K // 2), IMPOSSIBLE, best), 1)
        is_long = self.model.long_sources(self.memory)  # type: ignore[attr-defined]
        return np.where(is_long[:, None], limited, value)

    def _furthest_rows(self, beam: Beam) -> Array:
        """The furthest row in which any hypothesis of each sentence will most probably write next; -1 without any."""
        rows = np.full_like(self.sentences, -1)
        np.maximum.at(rows, beam.sentence, self.model.next_rows(beam.state))  # type: ignore[attr-defined]
        return rows

    def _drop_stuck(self, beam: Beam, rows: Array, before: Array) -> Beam:
        """The beam without long inputs that are still in the row of the last check, unless it is their last."""
        is_long = self.model.long_sources(self.memory)  # type: ignore[attr-defined]
        stuck = is_long & (rows == before) & (rows < self.last_rows)
        kept = np.flatnonzero(~stuck[beam.sentence])
        return beam._replace(
            slot=beam.slot[kept],
            sentence=beam.sentence[kept],
            token=beam.token[kept],
            log_prob=beam.log_prob[kept],
            state=self.model.select(beam.state, kept),
            rescorer_state=self.rescorer.select(beam.rescorer_state, kept),
        )
