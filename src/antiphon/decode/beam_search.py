"""Beam search for every model that predicts token by token, for a batch of sentences.

A model gives log probabilities of the next token after each prefix (``models/left_to_right.py``); the transducer sums
over its alignments, so that scores are ``log p(y | x)`` for every kind. One step extends the hypotheses by one token::

    extensions   the best ``beam`` tokens after every hypothesis, and the end symbol
    value        log p of the extension, or the value that a rescorer gives it
    finished     extensions by the end symbol that are among the best ``beam``, or must end here
    kept         the best ``beam`` others of each sentence, at most ``threshold`` behind its (``nbest``-th) best

Finished outputs are ranked by ``(log p + length_bias * |y|) / |y| ** length_normalisation``, the end symbol counted in
``|y|``. A sentence is done when no unfinished hypothesis can still enter its list of answers, however long it grows.

On a GPU with kernels, shapes are static and a step is captured as a CUDA graph; states that grow with the prefix have
room for the longest output from the start. Elsewhere a step works on the hypotheses that are left.

With a right-to-left twin (``models/transducer.py``) each direction finds outputs, and both judge them.

Thesis: section 2.5.1; ``beam = 1`` is greedy search.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import pad

from antiphon.data.batch import Batch
from antiphon.device import CapturedStep, run_concurrently
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import (
    AlignedModel,
    LeftToRight,
    output_scorer,
    select,
)
from antiphon.nn.factored_softmax import has_kernel, top_tokens
from antiphon.torch_free.hypothesis import (
    FINISHED_COLUMNS,
    LONG_SOURCE,
    SCORE,
    SLOT,
    STEP,
    STUCK_AFTER,
    VALUE,
    BeamSettings,
    Hypothesis,
    StepLists,
    best_of_both,
    trace_outputs,
    trace_path,
    with_candidates,
)
from antiphon.torch_free.vocab import END, PAD, SPECIALS, START, UNKNOWN

_MIN_VALUE = torch.finfo(torch.float64).min
"""Lower than every possible value."""
_DONE_CHECK_INTERVAL = 4
"""Steps replayed between device syncs that check whether all sentences are done."""


class Extensions(NamedTuple):
    """Hypotheses with one more token, ``E`` of each sentence: the hypothesis that each extends, and its token.

    They are compared by ``value``; ``features`` are the scores that it was computed from, if any.
    """

    parent: Int[Tensor, "B E"]
    token: Int[Tensor, "B E"]
    log_prob: Float[Tensor, "B E"]
    value: Float[Tensor, "B E"]
    features: Float[Tensor, "B E F"]

    def take(self, index: Int[Tensor, "B K"], value: Float[Tensor, "B K"]) -> "Extensions":
        """Some extensions of each sentence with new values and no features."""
        parent, token, log_prob = (tensor.gather(1, index) for tensor in self[:3])
        return Extensions(parent, token, log_prob, value, self.features[:, :0])


class Finished(NamedTuple):
    """The best finished outputs of each sentence, best first; where there are fewer, scores are impossible.

    An output is a row of ``FINISHED_COLUMNS`` and features.
    """

    outputs: Float[Tensor, "B n C"]

    @classmethod
    def none(cls, sentences: int, nbest: int, features: int, device: torch.device) -> "Finished":
        """No output yet; there is room for ``nbest`` of each sentence."""
        shape = sentences, nbest, len(FINISHED_COLUMNS) + features
        outputs = torch.zeros(shape, dtype=torch.float64, device=device)
        outputs[:, :, [SCORE, VALUE]] = IMPOSSIBLE
        return cls(outputs)

    @property
    def score(self) -> Float[Tensor, "B n"]:
        """The score that outputs are ranked by."""
        return self.outputs[:, :, SCORE]

    @property
    def value(self) -> Float[Tensor, "B n"]:
        """The value that they were compared by in the search."""
        return self.outputs[:, :, VALUE]

    def add(self, outputs: Float[Tensor, "B E C"]) -> "Finished":
        """The best of these and others, as many as before."""
        both = torch.cat([self.outputs, outputs], 1)
        best = both[:, :, SCORE].topk(self.outputs.shape[1], 1).indices
        return Finished(both.gather(1, best[:, :, None].expand(-1, -1, both.shape[2])))


class Beam(NamedTuple):
    """Unfinished hypotheses of one length, each in a slot of its sentence: slot ``s * K + rank`` of sentence ``s``.

    A hypothesis with an impossible ``log_prob`` is an empty slot; its token is padding.
    """

    length: Float[Tensor, ""]
    slot: Int[Tensor, " N"]
    sentence: Int[Tensor, " N"]
    token: Int[Tensor, " N"]
    log_prob: Float[Tensor, " N"]
    state: Any
    rescorer_state: Any
    finished: Finished


class StepRecord(NamedTuple):
    """The record of a step: token, parent slot and log probability of the hypothesis in every slot."""

    token: Int[Tensor, "B K"]
    parent: Int[Tensor, "B K"]
    log_prob: Float[Tensor, "B K"]


class Pruned(NamedTuple):
    """A hypothesis that was not extended any further: its token ids and log probability."""

    tokens: tuple[int, ...]
    log_prob: float


class Rescorer:
    """What hypotheses are compared by: their log probability. Derived classes add the scores of other models."""

    features = 0
    """Number of scores for each extension."""

    def __init__(self, settings: BeamSettings) -> None:
        self.settings = settings

    def start(self, *, static_shapes: bool) -> Any:
        """Its state before the start symbol of every sentence; the shapes of later states may have to be static."""
        return ()

    def prepare(self, beam: Beam) -> Any:
        """What it can compute at the same time as the model, from the hypotheses of the beam."""

    def choose(
        self, extensions: Extensions, beam: Beam, memory: Any, state: Any, prepared: Any
    ) -> tuple[Extensions, Any]:
        """The extensions to consider, with their values and features, and its own state after each of them.

        ``memory`` and ``state`` are the model's, after the hypotheses of the beam.
        """
        return extensions, ()

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some extensions, by flat index over all sentences."""
        return ()

    def search_score(self, extensions: Extensions, length: Tensor) -> Float[Tensor, "B E"]:
        """The score that extensions by the end symbol are ranked by."""
        score: Tensor = self.settings.search_score(extensions.log_prob, length)
        return score

    def upper_bound(self, extensions: Extensions, length: Tensor, limits: Tensor) -> Float[Tensor, "B E"]:
        """The best search score that each can still reach."""
        bound: Tensor = self.settings.upper_bound(extensions.log_prob, length, limits)
        return bound


@torch.inference_mode()
def search_outputs(
    model: LeftToRight, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first; all begin with the tokens of ``prefix``.

    Outputs with a prefix are those of the left-to-right half alone.
    """
    twin = model.twin
    if twin is None or prefix:
        return BeamSearch(model, batch, settings, prefix=prefix).run()
    found = BeamSearch(model, batch, with_candidates(settings)).run()
    mirrored = BeamSearch(twin, batch.reversed(), with_candidates(settings)).run()
    return best_of_both(found, mirrored, output_scorer(model, batch), settings)


class BeamSearch:
    """One search over a batch of sentences, token by token; outputs begin with the tokens of ``prefix``.

    With ``static_shapes``, every sentence always has ``beam`` slots, some of which are empty.
    """

    def __init__(
        self,
        model: LeftToRight,
        batch: Batch,
        settings: BeamSettings,
        rescorer: Rescorer | None = None,
        *,
        prefix: Sequence[int] = (),
        static_shapes: bool | None = None,
    ) -> None:
        self.model, self.settings, self.prefix = model, settings, prefix
        self.forced: int | None = None
        """The token of the prefix that the next step writes."""
        self.rescorer = rescorer or Rescorer(settings)
        self.memory, self.first_state = model.start(batch)
        self.B, self.K = len(batch.source), settings.beam
        self.device = batch.source.device
        self.sentences = torch.arange(self.B, device=self.device)
        self.last_rows = batch.source_lengths - 1
        self.limits = settings.length_limits(batch.source_lengths).double()
        longest = int(self.limits.max())
        on_gpu = has_kernel(next(cast(nn.Module, model).parameters()))
        can_capture = on_gpu and not prefix and model.static_fits(self.B * self.K * longest)
        self.static_shapes = can_capture if static_shapes is None else static_shapes
        if self.static_shapes:
            self.first_state = model.reserve(self.first_state, longest)
        self.width = max(self.K, settings.proposals) if self.rescorer.features else self.K
        self.long_sources = batch.source_lengths > LONG_SOURCE
        may_be_stuck = hasattr(model, "next_rows") and not on_gpu and not self.static_shapes
        self.is_long = may_be_stuck and bool(self.long_sources.any())

    def run(self) -> list[list[Hypothesis]]:
        """The best outputs of every sentence."""
        captures = self.static_shapes and self.device.type == "cuda"
        step: Callable[[Beam], tuple[Beam, StepRecord]] = (
            CapturedStep(self._step, self.device) if captures else self._step
        )
        beam, history = self._first_beam(), list[StepRecord]()
        rows = torch.full_like(self.sentences, -1)
        interval = _DONE_CHECK_INTERVAL if self.static_shapes else 1
        for length in range(1, int(self.limits.max()) + 1):
            self.forced = self.prefix[length - 1] if length <= len(self.prefix) else None
            beam, record = step(beam)
            history.append(record)
            if self.is_long and length % STUCK_AFTER == 0:
                before, rows = rows, self._furthest_rows(beam)
                beam = self._prune_stuck(beam, rows, before)
            if length % interval == 0 and not (beam.log_prob > IMPOSSIBLE).any():
                break
        parts = [torch.stack(part).tolist() for part in zip(*history, strict=True)]
        self._steps: list[StepLists] = list(zip(*parts, strict=True))
        self._finished: list[list[list[float]]] = beam.finished.outputs.tolist()
        return trace_outputs(self._finished, self._steps, self.K)

    def pruned(self) -> list[Pruned]:
        """The hypotheses of the first sentence that were not extended any further, the most probable first."""
        ended = {(int(output[STEP]), int(output[SLOT])) for output in self._finished[0]}
        found = [
            Pruned(tuple(trace_path(self._steps[:length], 0, slot, self.K)[0]), log_prob)
            for length, (_, _, log_probs) in enumerate(self._steps, 1)
            for slot, log_prob in enumerate(log_probs[0])
            if log_prob > IMPOSSIBLE and (length, slot) not in ended and slot not in self._extended(length)
        ]
        return sorted(found, key=lambda each: -each.log_prob)

    def _extended(self, length: int) -> set[int]:
        """The slots of the first sentence whose hypotheses of this length were extended."""
        if length == len(self._steps):
            return set()
        _, parents, log_probs = self._steps[length]
        return {slot for slot, log_prob in zip(parents[0], log_probs[0], strict=True) if log_prob > IMPOSSIBLE}

    def _first_beam(self) -> Beam:
        """One hypothesis without tokens for each sentence, in its first slot."""
        copies = self.K if self.static_shapes else 1
        sentence = self.sentences.repeat_interleave(copies)
        rank = torch.arange(copies, device=self.device).repeat(self.B)
        return Beam(
            length=torch.zeros((), dtype=torch.float64, device=self.device),
            slot=sentence * self.K + rank,
            sentence=sentence,
            token=torch.full_like(sentence, START),
            log_prob=torch.where(rank == 0, 0.0, IMPOSSIBLE).double(),
            state=select(self.first_state, sentence),
            rescorer_state=self.rescorer.select(self.rescorer.start(static_shapes=self.static_shapes), sentence),
            finished=Finished.none(self.B, self.settings.nbest, self.rescorer.features, self.device),
        )

    def _step(self, beam: Beam) -> tuple[Beam, StepRecord]:
        """Hypotheses that are one token longer."""
        (log_next, state), prepared = run_concurrently(
            lambda: self.model.step(self.memory, beam.state, beam.token, beam.sentence),
            lambda: self.rescorer.prepare(beam),
            side_stream=0,
        )
        if self.forced is not None:
            is_other = torch.arange(log_next.shape[1], device=self.device) != self.forced
            log_next = log_next.masked_fill(is_other, IMPOSSIBLE)
        length = beam.length + 1
        is_last = self.limits == length
        extensions = self._extend(beam, log_next, is_last)
        extensions, rescorer_state = self.rescorer.choose(extensions, beam, self.memory, state, prepared)
        finished = self._finish(beam, extensions, length, is_last)
        value, chosen = self._keep(extensions, finished, length, state)
        kept, is_none = extensions.take(chosen, value), value == IMPOSSIBLE
        record = StepRecord(
            kept.token.masked_fill(is_none, PAD),
            self._slots_of(beam, kept.parent),
            kept.log_prob.masked_fill(is_none, IMPOSSIBLE),
        )
        filled = self._filled_slots(beam, record.log_prob)
        index = chosen + self.sentences[:, None] * extensions.token.shape[1]
        after = filled._replace(
            length=length,
            token=self._of_slots(record.token, filled),
            log_prob=self._of_slots(record.log_prob, filled),
            state=select(state, self._of_slots(kept.parent, filled)),
            rescorer_state=self.rescorer.select(rescorer_state, self._of_slots(index, filled)),
            finished=finished,
        )
        return after, record

    def _slots_of(self, beam: Beam, index: Int[Tensor, "B E"]) -> Int[Tensor, "B E"]:
        """The slots of some hypotheses; with static shapes, every slot has one."""
        return index if self.static_shapes else beam.slot[index]

    def _filled_slots(self, beam: Beam, log_prob: Float[Tensor, "B K"]) -> Beam:
        """The beam with the slots that hold a hypothesis after this step; with static shapes, every slot."""
        if self.static_shapes:
            return beam
        slot = (log_prob > IMPOSSIBLE).flatten().nonzero()[:, 0]
        return beam._replace(slot=slot, sentence=slot // self.K)

    def _of_slots(self, values: Tensor, filled: Beam) -> Tensor:
        """Of values for every slot of every sentence, those of the slots that hold a hypothesis."""
        return values.flatten() if self.static_shapes else values.flatten()[filled.slot]

    def _extend(self, beam: Beam, log_next: Float[Tensor, "N V"], is_last: Bool[Tensor, " B"]) -> Extensions:
        """The best tokens after every hypothesis, unless it must end here, and the end symbol."""
        log_probs = log_next[:, len(SPECIALS) :]
        log_token, next_token = top_tokens(log_probs, min(self.width, log_probs.shape[1]))
        next_token = next_token + len(SPECIALS)
        if self.model.copies_unknown:
            log_token = torch.cat([log_token, log_next[:, UNKNOWN, None]], 1)
            next_token = pad(next_token, (0, 1), value=UNKNOWN)
        if self.static_shapes or is_last.any():
            log_token = log_token.masked_fill(is_last[beam.sentence, None], IMPOSSIBLE)
        log_prob = beam.log_prob[:, None] + torch.cat([log_token, log_next[:, END, None]], 1)
        if self.static_shapes:  # empty slots may hold NaN
            log_prob = log_prob.masked_fill((beam.log_prob == IMPOSSIBLE)[:, None], IMPOSSIBLE)
        token = pad(next_token, (0, 1), value=END)
        parent = torch.arange(len(token), device=self.device)[:, None].expand_as(token)
        log_prob = self._by_sentence(log_prob, beam.slot, IMPOSSIBLE)
        no_features = log_prob.new_zeros(*log_prob.shape, 0)
        parent, token = (self._by_sentence(tensor, beam.slot) for tensor in (parent, token))
        return Extensions(parent, token, log_prob, log_prob, no_features)

    def _by_sentence(
        self, values: Shaped[Tensor, "N W"], slot: Int[Tensor, " N"], empty: float = 0
    ) -> Shaped[Tensor, "B KW"]:
        """Values of hypotheses grouped by sentence, ``K * W`` each."""
        return scatter_to_slots(values, slot, self.B * self.K, empty=empty).reshape(self.B, -1)

    def _finish(
        self, beam: Beam, extensions: Extensions, length: Float[Tensor, ""], is_last: Bool[Tensor, " B"]
    ) -> Finished:
        """The best finished outputs, with those that end here.

        An end symbol counts only among the best ``beam`` extensions, so that a wide search does not pick short outputs
        that a narrow one would never consider.
        """
        value = extensions.value
        counts = (extensions.token == END) & (value > IMPOSSIBLE)
        if not self.static_shapes and not counts.any():
            return beam.finished
        worst = value.topk(self.K, 1).values[:, -1:]
        counts &= (value >= worst) | is_last[:, None]
        score = self.rescorer.search_score(extensions, length)
        score, value = (each.where(counts, IMPOSSIBLE) for each in (score, value))
        slot = self._slots_of(beam, extensions.parent).to(value.dtype)
        ended = torch.stack([score, value, extensions.log_prob, beam.length.expand_as(value), slot], 2)
        return beam.finished.add(torch.cat([ended, extensions.features], 2) if self.rescorer.features else ended)

    def _keep(
        self, extensions: Extensions, finished: Finished, length: Float[Tensor, ""], state: Any
    ) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
        """Values and indices of the best ``beam`` unfinished extensions; missing ones have impossible values."""
        value = extensions.value
        nbest = min(self.settings.nbest, value.shape[1])
        wanted = value.topk(nbest, 1).values[:, -1] if nbest > 1 else value.amax(1)
        best = torch.maximum(wanted, finished.value.amin(1))
        bound = self.rescorer.upper_bound(extensions, length, self.limits[:, None])
        worst = (best - self.settings.threshold).clamp(min=_MIN_VALUE)[:, None]
        goes_on = (extensions.token != END) & (value >= worst) & (bound > finished.score[:, -1:])
        value = value.where(goes_on, IMPOSSIBLE)
        if self.is_long:
            value = self._limit_rows(value, extensions, state)
        return value.topk(self.K, 1)

    def _limit_rows(self, value: Float[Tensor, "B E"], extensions: Extensions, state: Any) -> Float[Tensor, "B E"]:
        """The values; of a long input, impossible for all but the best ``beam / 2`` extensions written at one position.

        Else all hypotheses could repeat tokens at a position that is hard to leave. Short inputs are not limited, so
        that their outputs do not depend on the rest of the batch.
        """
        best, index = value.topk(min(4 * self.K, value.shape[1]), 1)
        parent, token = (tensor.gather(1, index) for tensor in (extensions.parent, extensions.token))
        sentence = self.sentences.repeat_interleave(index.shape[1])
        log_rows = cast(AlignedModel, self.model).log_rows
        row = log_rows(self.memory, state, parent.flatten(), token.flatten(), sentence).argmax(1).view_as(index)
        before = (row[:, :, None] == row[:, None]).tril(-1).sum(2)
        kept = best.masked_fill(before >= max(1, self.K // 2), IMPOSSIBLE)
        limited = torch.full_like(value, IMPOSSIBLE).scatter(1, index, kept)
        return limited.where(self.long_sources[:, None], value)

    def _furthest_rows(self, beam: Beam) -> Int[Tensor, " B"]:
        """The furthest row in which any hypothesis of each sentence will most probably write next; -1 without any."""
        rows = cast(AlignedModel, self.model).next_rows(beam.state)
        return torch.full_like(self.sentences, -1).scatter_reduce(0, beam.sentence, rows, "amax")

    def _prune_stuck(self, beam: Beam, rows: Int[Tensor, " B"], before: Int[Tensor, " B"]) -> Beam:
        """The beam without long inputs that are still in the row of the last check, unless it is their last."""
        stuck = self.long_sources & (rows == before) & (rows < self.last_rows)
        kept = (~stuck[beam.sentence]).nonzero()[:, 0]
        return beam._replace(
            slot=beam.slot[kept],
            sentence=beam.sentence[kept],
            token=beam.token[kept],
            log_prob=beam.log_prob[kept],
            state=select(beam.state, kept),
            rescorer_state=self.rescorer.select(beam.rescorer_state, kept),
        )


def scatter_to_slots(values: Tensor, slots: Int[Tensor, " N"], size: int, *, empty: float | int = 0) -> Tensor:
    """Values scattered to their slots; unchanged if every slot has one, since they are in order."""
    if len(values) == size:
        return values
    return values.new_full((size, *values.shape[1:]), empty).index_copy_(0, slots, values)
