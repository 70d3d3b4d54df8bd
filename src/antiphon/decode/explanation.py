"""How source and target of one pair are linked: by an alignment, or by attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.lattice import best_path, posteriors
from antiphon.models.attention import Attention
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer


@dataclass(frozen=True)
class Explanation:
    """A weight for every cell, and an alignment."""

    weights: Float[Tensor, "I J"]
    alignment: Int[Tensor, " J"]


Explain = Callable[[Any, Batch], Explanation]
"""Explains a pair, given a model and a batch of this pair alone."""


def align(model: Transducer, pair: Batch) -> Explanation:
    """Posteriors of writing, and the best path."""
    lattice = (*model.moves(pair), pair.source_lengths, pair.target_lengths)
    return Explanation(posteriors(*lattice).write[0], best_path(*lattice).alignment[0])


def attend(model: Attention | Transformer, pair: Batch) -> Explanation:
    """Attention weights, and the source word with the largest weight for each token; both end symbols are linked."""
    weights = model.attention(pair)
    positions = attended_positions(weights, pair.source_lengths)[0]
    positions[-1] = pair.source_lengths[0] - 1
    return Explanation(weights[0], positions)


def attended_positions(weights: Float[Tensor, "B I J"], source_lengths: Int[Tensor, " B"]) -> Int[Tensor, "B J"]:
    """The source word with the largest weight for each target token.

    The end symbol, where many models put weight that they need for no word, is chosen only if there is nothing else.
    """
    positions = torch.arange(weights.shape[1], device=weights.device)
    is_word = positions < source_lengths[:, None] - 1
    return weights.masked_fill(~is_word[:, :, None], -1.0).argmax(1)
