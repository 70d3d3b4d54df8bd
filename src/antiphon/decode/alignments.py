"""How source and target are linked: alignments and attention of pairs and of found outputs, and what links are for.

A link of attention weights replaces an unknown word of an output by the source word with the largest weight, the end
symbol left out: a name or a number that the vocabulary lacks. The probability of an output is still that of its unknown
tokens. Links between words of both directions are combined into one alignment (symmetrisation).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.lattice import best_path, posteriors
from antiphon.metrics.gold_links import Link
from antiphon.models.ensemble_model import Ensemble
from antiphon.models.left_to_right import output_pairs
from antiphon.models.recurrent import Attention
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.torch_free.hypothesis import Hypothesis, have_unknown, with_alignments, with_copies

M = TypeVar("M", bound=nn.Module)
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


def found_pairs(batch: Batch, found: list[list[Hypothesis]]) -> Batch:
    """A pair for each hypothesis: its source, and its tokens as the target."""
    sources = [b for b, hypotheses in enumerate(found) for _ in hypotheses]
    return output_pairs(batch, sources, [each.tokens for hypotheses in found for each in hypotheses])


def part_of(model: nn.Module, kind: type[M], pairs: Batch) -> tuple[M, Batch] | None:
    """The model, or the member of an ensemble, that is of a kind, with the pairs in its ids; None if there is none."""
    if isinstance(model, Ensemble):
        return model.member_of(kind, pairs)
    return (model, pairs) if isinstance(model, kind) else None


@torch.inference_mode()
def add_alignments(model: nn.Module, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """The same hypotheses, each with its best alignment if there is a transducer."""
    part = part_of(model, Transducer, found_pairs(batch, found))
    if part is None or not any(found):
        return found
    transducer, pairs = part
    # Best paths take many small steps: faster on a CPU than launching their kernels.
    lattice = (tensor.cpu() for tensor in (*transducer.moves(pairs), pairs.source_lengths, pairs.target_lengths))
    return with_alignments(found, best_path(*lattice).alignment.tolist())


@torch.inference_mode()
def replace_unknown(model: nn.Module, batch: Batch, found: list[list[Hypothesis]], size: int) -> list[list[Hypothesis]]:
    """The hypotheses with copies of source words instead of unknown tokens, if the model or a member has attention.

    The copy of the word at position ``i`` has the id ``size + i``; ``size`` is that of the target vocabulary.
    """
    if not have_unknown(found):
        return found
    pairs = found_pairs(batch, found)
    part: tuple[Attention | Transformer, Batch] | None
    part = part_of(model, Attention, pairs) or part_of(model, Transformer, pairs)
    if part is None:
        return found
    attending, pairs = part
    return with_copies(found, attended_positions(attending.attention(pairs), pairs.source_lengths).tolist(), size)


def intersect(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The links of both directions."""
    return frozenset(forward) & frozenset(backward)


def unite(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The links of either direction."""
    return frozenset(forward) | frozenset(backward)


def grow_diagonally(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The intersection, grown by neighbours in the union (grow-diag of Koehn, Och and Marcu, 2003).

    A link of the union is added if it is beside a link that is in, diagonals included, and if its source word or its
    target word has no link yet; links are visited in the order of their words until none can be added.
    """
    union, grown = unite(forward, backward), set(intersect(forward, backward))
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
    return frozenset(grown)


COMBINATIONS: dict[str, Callable[[Collection[Link], Collection[Link]], frozenset[Link]]] = {
    "intersection": intersect,
    "union": unite,
    "grow-diag": grow_diagonally,
}
