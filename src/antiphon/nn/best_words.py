"""The most probable words of many cells, each a sum of an input part and an output part.

    log word(v) = A[cell, v] + C[prefix, v] - log Z,  log Z over all tokens, also those that are no words

Few cells are looked at, so no normaliser is computed that nobody asks for, as the factored softmax would.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.kernels import kernels_can_run

_BLOCK = 64
"""Words of which only the best is looked at, unless it is among the best of all."""
_NUMBERS_AT_ONCE = 2**18
"""How many logits are computed at once: few enough to stay in a processor's cache until the best are known."""


class BestWords(NamedTuple):
    """The words of each pair, best first, and its end symbol; where a word is impossible, its number means nothing."""

    log_prob: Float[Tensor, "M W"]
    token: Int[Tensor, "M W"]
    log_end: Float[Tensor, " M"]


def best_words(
    source_logits: Float[Tensor, "C V"],
    target_logits: Float[Tensor, "N V"],
    cell: Int[Tensor, " M"],
    prefix: Int[Tensor, " M"],
    wanted: Bool[Tensor, " M"],
    *,
    width: int,
    first_word: int,
    end: int,
    log_z: Float[Tensor, " M"] | None = None,
) -> BestWords:
    """The ``width`` most probable words of every pair of a cell and a prefix; words are tokens from ``first_word`` on.

    Pairs that are not wanted get any finite values. ``log_z`` are their normalisers, where these are known.
    """
    if kernels_can_run(target_logits):
        from antiphon.kernels import best_words as kernel

        return BestWords(
            *kernel.best_words(
                source_logits, target_logits, cell, prefix, wanted, width=width, first_word=first_word, end=end
            )
        )
    parts = []
    at_once = max(1, _NUMBERS_AT_ONCE // source_logits.shape[1])
    for pairs in torch.arange(len(cell), device=cell.device).split(at_once):
        logits = source_logits.index_select(0, cell[pairs]).add_(target_logits.index_select(0, prefix[pairs]))
        normaliser = logits.logsumexp(1) if log_z is None else log_z[pairs]
        best, word = _topk(logits[:, first_word:], width)
        parts.append((best - normaliser[:, None], word + first_word, logits[:, end] - normaliser))
    return BestWords(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _topk(logits: Float[Tensor, "M V"], width: int) -> tuple[Float[Tensor, "M W"], Int[Tensor, "M W"]]:
    """The ``width`` highest logits and their places: those of the ``width`` blocks with the highest maxima."""
    M, V = logits.shape
    number, rest = divmod(V, _BLOCK)
    if number < 2 * width:
        best, place = logits.topk(width, 1)
        return best, place
    blocks = logits[:, : V - rest].unflatten(1, (number, _BLOCK))
    chosen = blocks.amax(2).topk(width, 1).indices
    every_place = torch.arange(V, device=logits.device)
    place = (chosen[:, :, None] * _BLOCK + every_place[:_BLOCK]).flatten(1)
    place = torch.cat([place, every_place[V - rest :].expand(M, rest)], 1)
    best, which = logits.gather(1, place).topk(width, 1)
    return best, place.gather(1, which)
