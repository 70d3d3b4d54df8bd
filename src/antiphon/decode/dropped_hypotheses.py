"""Beam search of one input that also reports the hypotheses that it dropped."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch

from antiphon.data.batch import Batch
from antiphon.decode.beam_hypotheses import Finished, StepRecord
from antiphon.decode.beam_search import BeamSearch
from antiphon.decode.forced_prefix import PrefixModel
from antiphon.decode.rescoring import NoisyChannelRescorer
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.left_to_right import LeftToRight
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.traced_outputs import SLOT, STEP, StepLists, trace_path


class Dropped(NamedTuple):
    """A hypothesis that was not extended any further: its token ids and log probability."""

    tokens: tuple[int, ...]
    log_prob: float


@torch.inference_mode()
def search_with_dropped(
    model: LeftToRight | NoisyChannel, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> tuple[list[Hypothesis], list[Dropped]]:
    """The best outputs of a single source, and the hypotheses that the beam dropped, the most probable first.

    A noisy channel ranks none of its ``direct_outputs`` here: they are found by a search of their own.
    """
    searched, rescorer, width = model, None, settings
    if isinstance(model, NoisyChannel):
        width = settings.for_rescoring()
        searched, rescorer = cast(LeftToRight, model.direct), NoisyChannelRescorer(model, batch, width)
    direct = cast(LeftToRight, PrefixModel(searched, prefix))
    search = _RecordedSearch(direct, batch, width, rescorer, static_shapes=False)
    (found,) = search.run()
    return found[: settings.nbest], sorted(search.dropped, key=lambda each: -each.log_prob)


class _RecordedSearch(BeamSearch):
    """A search of one sentence that keeps what it dropped."""

    dropped: Sequence[Dropped] = ()

    def _trace_back(self, finished: Finished, history: list[StepRecord]) -> list[list[Hypothesis]]:
        steps: list[StepLists] = [tuple(part.tolist() for part in step) for step in history]  # type: ignore[misc]
        ended = {(int(output[STEP]), int(output[SLOT])) for output in finished.outputs[0].tolist()}
        self.dropped = [
            Dropped(tuple(trace_path(steps[:length], 0, slot, self.K)[0]), log_prob)
            for length, (_, _, log_probs) in enumerate(steps, 1)
            for slot, log_prob in enumerate(log_probs[0])
            if log_prob > IMPOSSIBLE and (length, slot) not in ended and slot not in _parents(history[length:])
        ]
        return super()._trace_back(finished, history)


def _parents(later: list[StepRecord]) -> set[int]:
    """The slots of the hypotheses that the next step extended."""
    if not later:
        return set()
    return set(later[0].parent[0][later[0].log_prob[0] > IMPOSSIBLE].tolist())
