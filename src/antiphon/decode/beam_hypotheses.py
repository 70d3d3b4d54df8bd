"""The hypotheses of a beam search: unfinished, extended by one token, and finished ones, as tensors of a batch."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.torch_free.traced_outputs import FINISHED_COLUMNS, SCORE, VALUE


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
