"""Replaces unknown words of outputs by source words, as attention weights link them.

Such a word is written as the source word with the largest weight, the end symbol left out: a name or a number that the
vocabulary lacks. The probability of an output is still that of its unknown tokens.
"""

import torch
from torch import nn

from antiphon.data.batch import Batch
from antiphon.decode.best_alignments import found_pairs, part_of
from antiphon.decode.explanation import attended_positions
from antiphon.models.attention import Attention
from antiphon.models.transformer import Transformer
from antiphon.torch_free.hypothesis import Hypothesis, have_unknown


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
    positions = iter(attended_positions(attending.attention(pairs), pairs.source_lengths).tolist())
    return [[each.with_copies(next(positions), size) for each in some] for some in found]
