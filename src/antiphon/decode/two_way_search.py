"""Search with a right-to-left twin: each direction finds outputs, and both judge all of them.

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2

Candidates are the best outputs of two beam searches, one of them over reversed sources; their probabilities are exact
(``models/two_way_transducer.py``). A model without a twin is searched as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import search_outputs
from antiphon.models.left_to_right import LeftToRight, as_hypotheses, output_pairs, twin_of, with_twin
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.vocab import END

T = TypeVar("T")
_CANDIDATES = 5
"""Outputs of each direction that both judge, where the beam is that wide."""


@torch.inference_mode()
def search_two_ways(
    model: LeftToRight, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first; all begin with the tokens of ``prefix``.

    Outputs with a prefix are those of the left-to-right half alone.
    """
    twin = twin_of(model)
    if twin is None or prefix:
        return search_outputs(model, batch, settings, prefix)
    wide = replace(settings, nbest=max(settings.nbest, min(settings.beam, _CANDIDATES)))
    found = search_outputs(model, batch, wide)
    mirrored = search_outputs(twin, batch.reversed(), wide)
    judged = judge(model, batch, found)
    added = [
        [mine for each in theirs if (mine := (*each.tokens[-2::-1], END)) not in {known.tokens for known in ours}]
        for ours, theirs in zip(found, mirrored, strict=True)
    ]
    more = _of_sources(added, partial(as_hypotheses, model, batch))
    return [_best([*some, *others], settings) for some, others in zip(judged, more, strict=True)]


def judge(model: LeftToRight, batch: Batch, found: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
    """Outputs of the left-to-right half for every source with the probability of both halves, in the same order."""

    def score(sources: Sequence[int], outputs: Sequence[Hypothesis]) -> list[Hypothesis]:
        return with_twin(model, output_pairs(batch, sources, [each.tokens for each in outputs]), outputs)

    return _of_sources(found, score)


def _of_sources(
    outputs: Sequence[Sequence[T]], score: Callable[[Sequence[int], Sequence[T]], Sequence[Hypothesis]]
) -> list[list[Hypothesis]]:
    """What ``score`` makes of the outputs of all sources, given their sources, in one call."""
    sources = [b for b, some in enumerate(outputs) for _ in some]
    scored: list[list[Hypothesis]] = [[] for _ in outputs]
    for b, each in zip(sources, score(sources, list(chain(*outputs))) if sources else (), strict=True):
        scored[b].append(each)
    return scored


def _best(outputs: Sequence[Hypothesis], settings: BeamSettings) -> list[Hypothesis]:
    """The ``nbest`` best outputs of a source."""
    ranked = [replace(each, score=settings.search_score(each.log_prob, len(each.tokens))) for each in outputs]
    return sorted(ranked, key=lambda each: -each.score)[: settings.nbest]
