"""Tokens that a search may write."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from antiphon.models.left_to_right import copies_unknown
from antiphon.torch_free.vocab import END, PAD, START, UNKNOWN


def never_written(model: object, *, replace_unknown: bool = False) -> list[int]:
    """Tokens that a search never writes; the unknown one only if it is not replaced by a source token later."""
    return [PAD, START] if replace_unknown or copies_unknown(model) else [PAD, UNKNOWN, START]


def is_no_end(log_probs: Float[Tensor, "... V"]) -> Bool[Tensor, " V"]:
    """True at every token but the end symbol, to mask outputs that must end."""
    return torch.arange(log_probs.shape[-1], device=log_probs.device) != END
