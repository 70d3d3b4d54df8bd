"""A transducer with a right-to-left twin: the probability of an output is the mean of what both give it.

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2

The twin reads and writes everything from the end. Its mistakes are others, since it knows the end of an output when it
writes the beginning. Streams, alignments and samples are those of the left-to-right half, which is a plain transducer.
"""

from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.models.transducer import Transducer


class TwoWayTransducer(Transducer):
    """The left-to-right transducer, with ``reverse`` as its twin."""

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__(source_size, target_size, feature_size, **settings)
        self.reverse = Transducer(source_size, target_size, feature_size, **settings)

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training the mean of both logs, a lower bound, so that both learn it."""
        forward = super().log_prob(batch, label_smoothing)
        backward = self.reverse.log_prob(batch.reversed(), label_smoothing)
        return (forward + backward) / 2 if self.training else torch.logaddexp(forward, backward) - log(2)
