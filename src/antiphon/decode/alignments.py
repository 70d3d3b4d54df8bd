"""How source and target are linked: alignments and attention of pairs and of found outputs, and what links are for.

Links between words of both directions are combined into one alignment (symmetrisation).
"""

import operator
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.lattice import best_path, posteriors
from antiphon.metrics.gold_links import Link
from antiphon.models.ensemble_model import Ensemble
from antiphon.models.recurrent import Attention
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.torch_free.hypothesis import Hypothesis, found_pairs, with_alignments

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


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


@torch.inference_mode()
def add_alignments(model: nn.Module, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """The same hypotheses, each with its best alignment if there is a transducer."""
    pairs = found_pairs(batch, found)
    if isinstance(model, Ensemble):
        part = model.member_of(Transducer, pairs)
    else:
        part = (model, pairs) if isinstance(model, Transducer) else None
    if part is None or not any(found):
        return found
    transducer, pairs = part
    # Best paths take many small steps: faster on a CPU than launching their kernels.
    lattice = (tensor.cpu() for tensor in (*transducer.moves(pairs), pairs.source_lengths, pairs.target_lengths))
    return with_alignments(found, best_path(*lattice).alignment.tolist())


def grow_diagonally(forward: Set[Link], backward: Set[Link]) -> Set[Link]:
    """The intersection, grown by neighbours in the union (grow-diag of Koehn, Och and Marcu, 2003).

    A link of the union is added if it is beside a link that is in, diagonals included, and if its source word or its
    target word has no link yet; links are visited in the order of their words until none can be added.
    """
    union, grown = forward | backward, set(forward & backward)
    sources, targets = {i for i, _ in grown}, {j for _, j in grown}
    before = -1
    while len(grown) > before:
        before = len(grown)
        for i, j in (link for link in sorted(union) if link in grown):
            for row, column in ((i + down, j + right) for down, right in _NEIGHBOURS):
                if (row, column) in union and not (row in sources and column in targets):
                    grown.add((row, column))
                    sources.add(row)
                    targets.add(column)
    return grown


COMBINATIONS: dict[str, Callable[[Set[Link], Set[Link]], Set[Link]]] = {
    "intersection": operator.and_,
    "union": operator.or_,
    "grow-diag": grow_diagonally,
}
"""How the links of both directions are combined."""
