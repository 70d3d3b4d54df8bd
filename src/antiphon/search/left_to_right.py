"""Beam search for models that predict one token after another, for a batch of sentences.

Hypotheses are ranked by

    score(y) = (log p(y | x) + length_bias * |y|) / |y| ** length_normalisation

with the end symbol counted in ``|y|``. An end counts only if it is among the best ``beam`` extensions of its step, so
that a wide search is not lured by short outputs that no narrow one would look at. A sentence is done only when no
unfinished hypothesis can still enter its list of answers, however long it grows: log p never rises, so the best that
one of log p ``s`` can reach is the largest value of ``(s + length_bias * n) / n ** length_normalisation`` over the
lengths ``n`` still open to it.

Thesis: section 3.4.1; ``beam = 1`` is greedy search.
"""

from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, START
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.search.hypothesis import NEVER_WRITTEN, BeamSettings, Finished, Hypothesis


class StepModel(Protocol):
    """A model that can be asked for one token after another."""

    def start(self, batch: Batch) -> Any:
        """The state before the first token of every sentence."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log probabilities of the token after these, and the state to go on from."""
        ...

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some hypotheses."""
        ...


class Beam(NamedTuple):
    """Unfinished hypotheses: ``K`` of each of the ``S`` sentences that are not done."""

    sentence: Int[Tensor, " S"]
    log_prob: Float[Tensor, "S K"]
    tokens: Int[Tensor, "S K t"]
    state: Any


@torch.inference_mode()
def search_left_to_right(model: StepModel, batch: Batch, settings: BeamSettings) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first."""
    finished: list[Finished[tuple[int, ...]]] = [Finished(settings.nbest) for _ in batch.source]
    limits = settings.longest_outputs(batch.source_lengths)
    beam = _first_beam(model, batch)
    length = 0
    while len(beam.sentence):
        length += 1
        log_probs, state = model.step(beam.tokens[:, :, -1].flatten(), beam.state)
        totals = beam.log_prob[:, :, None] + log_probs.double().view(*beam.log_prob.shape, -1)
        totals[:, :, NEVER_WRITTEN] = IMPOSSIBLE
        _finish(beam, totals, length, settings, limits, finished)
        totals[:, :, END] = IMPOSSIBLE
        beam = _extend(model, beam, totals, state, settings.beam)
        open_ = _open_sentences(beam, length, limits, settings, finished)
        beam = _keep_sentences(model, beam, open_)
    return [[Hypothesis(tokens[1:], log_score) for log_score, tokens in answers.entries] for answers in finished]


def _first_beam(model: StepModel, batch: Batch) -> Beam:
    sentence = torch.arange(len(batch.source), device=batch.source.device)
    log_prob = torch.zeros(len(sentence), 1, dtype=torch.float64, device=sentence.device)
    tokens = torch.full((len(sentence), 1, 1), START, device=sentence.device)
    return Beam(sentence, log_prob, tokens, model.start(batch))


def _finish(
    beam: Beam,
    totals: Float[Tensor, "S K V"],
    length: int,
    settings: BeamSettings,
    limits: Tensor,
    finished: list[Finished[tuple[int, ...]]],
) -> None:
    """Ends the hypotheses whose end is among the best ``beam`` extensions, or must come here."""
    S, K, V = totals.shape
    worst = totals.view(S, K * V).topk(min(settings.beam, K * V), 1).values[:, -1:]
    must_end = (limits[beam.sentence] <= length)[:, None]
    ends = totals[:, :, END]
    scores = settings.normalise(ends.masked_fill(~must_end & (ends < worst), IMPOSSIBLE), length).tolist()
    for sentence, row, prefixes in zip(beam.sentence.tolist(), scores, beam.tokens, strict=True):
        answers = finished[sentence]
        for score, prefix in zip(row, prefixes, strict=True):
            if score > IMPOSSIBLE and not answers.beats(score):
                answers.add(score, (*prefix.tolist(), END))


def _extend(model: StepModel, beam: Beam, totals: Float[Tensor, "S K V"], state: Any, width: int) -> Beam:
    """The best ``width`` extensions of each sentence."""
    S, K, V = totals.shape
    log_prob, place = totals.view(S, K * V).topk(min(width, K * V), 1)
    parent, token = place // V, place % V
    rows = torch.arange(S, device=place.device)[:, None]
    tokens = torch.cat([beam.tokens[rows, parent], token[:, :, None]], 2)
    return Beam(beam.sentence, log_prob, tokens, model.select(state, (rows * K + parent).flatten()))


def _open_sentences(
    beam: Beam, length: int, limits: Tensor, settings: BeamSettings, finished: list[Finished[tuple[int, ...]]]
) -> Int[Tensor, " O"]:
    """Places in the beam of the sentences whose answers can still get better."""
    bounds = settings.best_still_possible(beam.log_prob.amax(1), length, limits[beam.sentence]).tolist()
    may_grow = (limits[beam.sentence] > length).tolist()
    is_open = [
        grows and not finished[sentence].beats(bound)
        for sentence, bound, grows in zip(beam.sentence.tolist(), bounds, may_grow, strict=True)
    ]
    return torch.tensor(is_open, device=beam.sentence.device).nonzero()[:, 0]


def _keep_sentences(model: StepModel, beam: Beam, places: Int[Tensor, " O"]) -> Beam:
    K = beam.log_prob.shape[1]
    hypotheses = (places[:, None] * K + torch.arange(K, device=places.device)).flatten()
    state = model.select(beam.state, hypotheses)
    return Beam(beam.sentence[places], beam.log_prob[places], beam.tokens[places], state)
