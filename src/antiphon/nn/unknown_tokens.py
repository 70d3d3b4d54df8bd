"""Tokens that are in no vocabulary, and how a model learns to copy them.

Source and target have one symbol for all that they do not know. A model that reads it and writes it in the same row
copies: the text of the output token is that of the input token there. It learns so from pairs in which a token of both
sides was made unknown.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.data.vocab import UNKNOWN

_SHARE = 0.05
"""Part of the pairs in which a token is made unknown while a model learns."""


def copies_unknown(model: object) -> bool:
    """Whether a model writes the unknown token for what it copies from the input."""
    return bool(getattr(model, "copies", False))


def make_some_unknown(batch: Batch, counterparts: Int[Tensor, " S"]) -> Batch:
    """The batch with, in some of its pairs, one token that both sides have made unknown wherever it stands."""
    B = len(batch.source)
    place = (torch.rand(B, device=batch.source.device) * (batch.source_lengths - 1)).long()
    chosen = batch.source.gather(1, place[:, None])
    written = counterparts[chosen]
    both_have_it = (batch.target == written).any(1, keepdim=True)
    happens = both_have_it & (torch.rand(B, 1, device=batch.source.device) < _SHARE)
    return batch._replace(
        source=batch.source.masked_fill(happens & (batch.source == chosen), UNKNOWN),
        target=batch.target.masked_fill(happens & (batch.target == written), UNKNOWN),
    )
