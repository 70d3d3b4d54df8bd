"""How source and target of one pair are linked: by an alignment, or by attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


def align(model: Transducer, pair: Batch) -> Explanation:
    """Posteriors of writing, and the best path."""
    lattice = (*model.moves(pair), pair.source_lengths, pair.target_lengths)
    return Explanation(posteriors(*lattice).write[0], best_path(*lattice).alignment[0])


def attend(model: Attention | Transformer, pair: Batch) -> Explanation:
    """Attention weights, and the position of the largest weight for each token."""
    weights = model.attention(pair)[0]
    return Explanation(weights, weights.argmax(0))
