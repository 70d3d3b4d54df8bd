"""Beam search over the graphs of a model: the one of ``decode/beam_search.py``, which has the rules, in numpy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from antiphon.lite.graphs import IMPOSSIBLE, Array, GraphModel, State
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.hypothesis import (
    FINISHED_COLUMNS,
    LONG_SOURCE,
    SCORE,
    STUCK_AFTER,
    VALUE,
    BeamSettings,
    Hypothesis,
    StepLists,
    trace_outputs,
)
from antiphon.torch_free.vocab import END, PAD, SPECIALS, START, UNKNOWN

_MIN_VALUE = np.finfo(np.float64).min
"""Lower than every possible value."""
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""
Extensions = tuple[Array, Array, Array]
"""Hypotheses with one more token, ``E`` of each sentence: what each extends, its token, and its log probability."""


class Beam(NamedTuple):
    """Unfinished hypotheses of one length, each in a slot of its sentence: slot ``s * K + rank`` of sentence ``s``."""

    slot: Array
    sentence: Array
    token: Array
    log_prob: Array
    state: State

    def take(self, index: Array, model: GraphModel) -> "Beam":
        """Some of the hypotheses."""
        slot, sentence, token, log_prob = (part[index] for part in self[:4])
        return Beam(slot, sentence, token, log_prob, model.select(self.state, index))


class BeamSearch:
    """One search over a batch of sentences, token by token; outputs begin with the tokens of ``prefix``."""

    def __init__(
        self, model: GraphModel, pairs: PaddedPairs, settings: BeamSettings, prefix: Sequence[int] = ()
    ) -> None:
        self.model, self.settings, self.prefix = model, settings, prefix
        self.memory, self.first_state = model.start(pairs)
        self.B, self.K = len(pairs.source), settings.beam
        self.sentences = np.arange(self.B)
        self.last_rows = pairs.source_lengths - 1
        # Lengths in single precision, as PyTorch multiplies them.
        self.limits = settings.length_limits(pairs.source_lengths.astype(np.float32)).astype(np.float64)
        self.long_sources = pairs.source_lengths > LONG_SOURCE
        self.is_long = model.knows_rows and bool(self.long_sources.any())
        self.specials = [UNKNOWN, END] if model.copies_unknown else [END]
        self.finished = np.zeros((self.B, settings.nbest, len(FINISHED_COLUMNS)))
        """The best finished outputs of each sentence, best first; where there are fewer, scores are impossible."""
        self.finished[:, :, [SCORE, VALUE]] = IMPOSSIBLE

    def run(self) -> list[list[Hypothesis]]:
        """The best outputs of every sentence."""
        start = np.full_like(self.sentences, START)
        beam = Beam(self.sentences * self.K, self.sentences, start, np.zeros(self.B), self.first_state)
        steps: list[StepLists] = []
        rows = np.full_like(self.sentences, -1)
        for length in range(1, int(self.limits.max()) + 1):
            beam, record = self._step(beam, length)
            steps.append(record)
            if self.is_long and length % STUCK_AFTER == 0:
                before, rows = rows, np.full_like(rows, -1)
                np.maximum.at(rows, beam.sentence, self.model.next_rows(beam.state))  # the furthest of each sentence
                stuck = self.long_sources & (rows == before) & (rows < self.last_rows)
                beam = beam.take(np.flatnonzero(~stuck[beam.sentence]), self.model)
            if not len(beam.slot):
                break
        return trace_outputs(self.finished.tolist(), steps, self.K)

    def _step(self, beam: Beam, length: int) -> tuple[Beam, StepLists]:
        """Hypotheses that are one token longer, and the record of the step."""
        log_next, state = self.model.step(self.memory, beam.state, beam.token, beam.sentence)
        if length <= len(self.prefix):
            log_next = np.where(np.arange(log_next.shape[1]) == self.prefix[length - 1], log_next, IMPOSSIBLE)
        is_last = self.limits == length
        extensions = self._extend(beam, log_next, is_last)
        self._finish(beam, extensions, length, is_last)
        log_prob, chosen = self._keep(extensions, length, state)
        parent, token = (np.take_along_axis(part, chosen, 1) for part in extensions[:2])
        record = np.where(log_prob > IMPOSSIBLE, token, PAD).tolist(), beam.slot[parent].tolist(), log_prob.tolist()
        slot = np.flatnonzero(log_prob > IMPOSSIBLE)
        token, log_prob, parent = (part.ravel()[slot] for part in (token, log_prob, parent))
        return Beam(slot, slot // self.K, token, log_prob, self.model.select(state, parent)), record

    def _extend(self, beam: Beam, log_next: Array, is_last: Array) -> Extensions:
        """The best tokens after every hypothesis, unless it must end here, and the end symbol."""
        log_probs = log_next[:, len(SPECIALS) :]
        log_token, next_token = top_tokens(log_probs, min(self.K, log_probs.shape[1]))
        log_token = np.concatenate([log_token, log_next[:, self.specials]], 1)
        log_token[:, :-1][is_last[beam.sentence]] = IMPOSSIBLE
        always = np.broadcast_to(np.array(self.specials), (len(next_token), len(self.specials)))
        token = np.concatenate([next_token + len(SPECIALS), always], 1)
        parent = np.broadcast_to(np.arange(len(token))[:, None], token.shape)
        log_prob = self._by_sentence(beam.log_prob[:, None] + log_token, beam.slot, IMPOSSIBLE)
        parent, token = (self._by_sentence(part, beam.slot, 0) for part in (parent, token))
        return parent, token, log_prob

    def _by_sentence(self, values: Array, slot: Array, empty: float) -> Array:
        """Values of hypotheses grouped by sentence, ``K * W`` each."""
        slots = np.full((self.B * self.K, values.shape[1]), empty, values.dtype)
        slots[slot] = values
        return slots.reshape(self.B, -1)

    def _finish(self, beam: Beam, extensions: Extensions, length: int, is_last: Array) -> None:
        """Adds the outputs that end here to the best finished ones, if they are among the best ``beam`` extensions."""
        parent, token, log_prob = extensions
        counts = (token == END) & (log_prob > IMPOSSIBLE)
        if not counts.any():
            return
        counts &= (log_prob >= kth_best(log_prob, self.K)[:, None]) | is_last[:, None]
        score = np.where(counts, self.settings.search_score(log_prob, length), IMPOSSIBLE)
        value = np.where(counts, log_prob, IMPOSSIBLE)
        ended = np.stack([score, value, log_prob, np.full_like(value, length - 1), beam.slot[parent]], 2)
        both = np.concatenate([self.finished, ended], 1)
        best = top_k(both[:, :, SCORE], self.finished.shape[1])[1]
        self.finished = np.take_along_axis(both, best[:, :, None], 1)

    def _keep(self, extensions: Extensions, length: int, state: State) -> tuple[Array, Array]:
        """Log probabilities and indices of the best ``beam`` unfinished extensions; those of none are impossible."""
        _, token, log_prob = extensions
        wanted = kth_best(log_prob, min(self.settings.nbest, log_prob.shape[1]))
        best = np.maximum(wanted, self.finished[:, :, VALUE].min(1))
        bound = self.settings.upper_bound(log_prob, length, self.limits[:, None])
        worst = (best - self.settings.threshold).clip(_MIN_VALUE)[:, None]
        goes_on = (token != END) & (log_prob >= worst) & (bound > self.finished[:, -1:, SCORE])
        log_prob = np.where(goes_on, log_prob, IMPOSSIBLE)
        if self.is_long:
            log_prob = self._limit_rows(log_prob, extensions, state)
        return top_k(log_prob, self.K)

    def _limit_rows(self, value: Array, extensions: Extensions, state: State) -> Array:
        """The values; of a long input, impossible for all but the best ``beam / 2`` extensions at one position."""
        best, index = top_k(value, min(4 * self.K, value.shape[1]))
        parent, token = (np.take_along_axis(part, index, 1) for part in extensions[:2])
        sentence = self.sentences.repeat(index.shape[1])
        log_rows = self.model.log_rows(self.memory, state, parent.ravel(), token.ravel(), sentence)
        row = log_rows.argmax(1).reshape(index.shape)
        before = np.tril(row[:, :, None] == row[:, None], -1).sum(2)
        limited = np.full_like(value, IMPOSSIBLE)
        np.put_along_axis(limited, index, np.where(before >= max(1, self.K // 2), IMPOSSIBLE, best), 1)
        return np.where(self.long_sources[:, None], limited, value)


def top_k(values: Array, k: int) -> tuple[Array, Array]:
    """The ``k`` highest values of every row, best first, and their indices."""
    size = values.shape[1]
    if k == 1:
        index = values.argmax(1)[:, None]
        return np.take_along_axis(values, index, 1), index
    some = np.arange(size)[None].repeat(len(values), 0)
    if k < size:
        some = np.argpartition(values, size - k, 1)[:, size - k :]
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
