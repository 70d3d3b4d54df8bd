"""Log likelihood of targets whose tokens are predicted one by one."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from antiphon.data.batch import Batch
from antiphon.data.vocab import PAD


def log_likelihood(logits: Float[Tensor, "B J V"], batch: Batch) -> Float[Tensor, " B"]:
    """The summed log probabilities of the tokens of each target; padding is ignored."""
    losses = cross_entropy(logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, reduction="none")
    return -losses.view(batch.target.shape).sum(1)
