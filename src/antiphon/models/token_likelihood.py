"""Log likelihood of targets whose tokens are predicted one by one."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from antiphon.data.batch import Batch
from antiphon.models.left_to_right import LeftToRight
from antiphon.torch_free.vocab import PAD, START


def log_likelihood(logits: Float[Tensor, "B J V"], batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
    """The summed log probabilities of the tokens of each target; padding is ignored.

    With label smoothing ``e``: ``(1 - e) log p(y_j) + e (mean over v of log p(v))`` instead of ``log p(y_j)``.
    """
    losses = cross_entropy(
        logits.flatten(0, 1),
        batch.target.flatten(),
        ignore_index=PAD,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return -losses.view(batch.target.shape).sum(1)


@torch.inference_mode()
def output_log_probs(
    model: LeftToRight, batch: Batch, sources: Sequence[int], outputs: Sequence[Sequence[int]]
) -> list[list[float]]:
    """The log probability of each token of every output; shorter rows are padded with 0 (see ``output_pairs``)."""
    rows: list[list[float]] = token_log_probs(model, output_pairs(batch, sources, outputs)).tolist()
    return rows


def output_pairs(batch: Batch, sources: Sequence[int], outputs: Sequence[Sequence[int]]) -> Batch:
    """A pair for each output, whose source is given by its index in the batch; outputs end in the end symbol."""
    index = torch.tensor(sources, dtype=torch.long, device=batch.source.device)
    targets = Batch.of([], [np.array(output[:-1], np.int32) for output in outputs]).to(index.device)
    pairs = Batch(*(tensor[index] for tensor in batch))
    return pairs._replace(target=targets.target, target_lengths=targets.target_lengths)


def token_log_probs(model: LeftToRight, batch: Batch) -> Float[Tensor, "B J"]:
    """Log probabilities of the tokens of each target, by decoding steps, as doubles; 0 at padding."""
    memory, state = model.start(batch)
    sentence = torch.arange(len(batch.target), device=batch.target.device)
    token, columns = torch.full_like(sentence, START), []
    for position, following in enumerate(batch.target.unbind(1)):
        log_next, state = model.step(memory, state, token, sentence)
        log_token = log_next.gather(1, following[:, None])[:, 0].double()
        columns.append(torch.where(position < batch.target_lengths, log_token, 0.0))
        token = following
    return torch.stack(columns, 1)
