"""The most probable words of many cells, each a sum of an input part and an output part.

    log word(v) = A[cell, v] + C[prefix, v] - log Z,  log Z over all tokens, also those that are no words

Few cells are looked at, so no normaliser is computed that nobody asks for, as the factored softmax would.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.kernels import kernels_can_run

_BLOCK_NUMBERS = 2**18
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
) -> BestWords:
    """The ``width`` most probable words of every pair of a cell and a prefix; words are tokens from ``first_word`` on.

    Pairs that are not wanted get any finite values.
    """
    if kernels_can_run(target_logits):
        from antiphon.kernels import best_words as kernel

        return BestWords(
            *kernel.best_words(
                source_logits, target_logits, cell, prefix, wanted, width=width, first_word=first_word, end=end
            )
        )
    parts = []
    at_once = max(1, _BLOCK_NUMBERS // source_logits.shape[1])
    for cells, prefixes in zip(cell.split(at_once), prefix.split(at_once), strict=True):
        logits = source_logits.index_select(0, cells).add_(target_logits.index_select(0, prefixes))
        log_z = logits.logsumexp(1, keepdim=True)
        best, word = logits[:, first_word:].topk(width, 1)
        parts.append((best - log_z, word + first_word, logits[:, end] - log_z[:, 0]))
    return BestWords(*(torch.cat(part) for part in zip(*parts, strict=True)))
