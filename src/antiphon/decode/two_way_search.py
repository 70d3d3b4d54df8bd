"""Search with a right-to-left twin, ``models/two_way_transducer.py``: each direction finds outputs, both judge them."""

from collections.abc import Sequence
from functools import partial

import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import search_outputs
from antiphon.models.left_to_right import LeftToRight, backward_log_probs, token_hypotheses, twin_of
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.two_ways import best_of_both, mean_of_both, with_candidates


@torch.inference_mode()
def search_two_ways(
    model: LeftToRight, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first; all begin with the tokens of ``prefix``.

    A model without a twin is searched as it is. Outputs with a prefix are those of the left-to-right half alone.
    """
    twin = twin_of(model)
    if twin is None or prefix:
        return search_outputs(model, batch, settings, prefix)
    found = search_outputs(model, batch, with_candidates(settings))
    mirrored = search_outputs(twin, batch.reversed(), with_candidates(settings))
    forward, backward = partial(token_hypotheses, model, batch), partial(backward_log_probs, twin, batch)
    return best_of_both(found, mirrored, forward, backward, settings)


def judge(model: LeftToRight, batch: Batch, found: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
    """Outputs of the left-to-right half for every source with the probability of both halves, in the same order."""
    return mean_of_both(found, partial(backward_log_probs, twin_of(model), batch))
