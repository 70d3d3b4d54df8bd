"""Copying of words: in cell ``(i, j)`` the token may be a copy of the source word ``x_i``.

The softmax of a cell has one more class, *copy*, after the ``V`` tokens. Its logit is a sum of a source part and a
target part like all others, so the softmax stays factored (``factored_softmax.py``)::

    token'(y | i, j) = token(y | i, j) + token(copy | i, j) [x_i = y]          y in the vocabulary
    token'(y | i, j) =                   token(copy | i, j) [x_i = y]          y outside of it

A word outside the vocabulary has an id from ``V`` on (``torch_free/vocab.py``). Its probability is the sum over
all positions that have this very word, and nothing over cells and vocabulary is stored. Not in the thesis.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.torch_free.vocab import NOT_COPIED, UNKNOWN


class CellCopies(NamedTuple):
    """Which cells may copy their token: where it is the source word, and columns whose token can only be copied."""

    is_copy: Bool[Tensor, "B I J"]
    only_copy: Bool[Tensor, "B 1 J"]
    class_id: int

    @classmethod
    def of(cls, copied: Int[Tensor, "B I"], target: Int[Tensor, "B J"], size: int) -> "CellCopies":
        """The copies of padded pairs, where the target vocabulary has ``size`` tokens."""
        return cls(copied[:, :, None] == target[:, None], (target >= size)[:, None], size)

    def mix(
        self, log_token: Float[Tensor, "B I J"], log_copy: Float[Tensor, "B I J"]
    ) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"]]:
        """Log probabilities of the tokens, and the share of copying in each; 0 where a token is impossible."""
        log_copy = log_copy.masked_fill(~self.is_copy, IMPOSSIBLE)
        mixed = torch.logaddexp(log_token.masked_fill(self.only_copy, IMPOSSIBLE), log_copy)
        return mixed, torch.where(self.is_copy, log_copy - mixed, IMPOSSIBLE).exp()


def copies_as_unknown(tokens: Int[Tensor, "..."], size: int) -> Int[Tensor, "..."]:
    """The ids with copied words as the unknown token, for what has only the vocabulary of ``size`` tokens."""
    return tokens.masked_fill(tokens >= size, UNKNOWN)


class CopyTable(NamedTuple):
    """The words of sources, prepared once for many prefixes.

    ``copied`` has the id of each word and ``first_position`` its first position in the source. Log probabilities of all
    tokens have ``W = V + I`` columns; the copies of a word are added to ``column`` of its first position, which is its
    id. At other positions that is a column which belongs to no word.
    """

    copied: Int[Tensor, "B I"]
    first_position: Int[Tensor, "B I"]
    column: Int[Tensor, "B I"]

    @classmethod
    def of(cls, copied: Int[Tensor, "B I"], size: int) -> "CopyTable":
        """The table of the words of some sources."""
        positions = torch.arange(copied.shape[1], device=copied.device)
        first_position = (copied[:, :, None] == copied[:, None]).int().argmax(2)
        is_first = (first_position == positions) & (copied != NOT_COPIED)
        return cls(copied, first_position, torch.where(is_first, copied, size + positions))

    def add_copies(
        self,
        log_prob: Float[Tensor, "N V"],
        log_copy: Float[Tensor, "N I"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, "N W"]:
        """``log P(y) = log(token(y) + sum of copy(i) over rows i with x_i = y)`` of all tokens and words.

        ``log_prob`` is ``log token(y)``, and ``log_copy`` is ``log copy(i)``.
        """
        copy = log_copy.exp().masked_fill((self.copied == NOT_COPIED)[sentence], 0.0)
        by_word = torch.zeros_like(copy).scatter_add_(1, self.first_position[sentence], copy)
        column = self.column[sentence]
        of_all = torch.cat([log_prob, log_prob.new_full(column.shape, IMPOSSIBLE)], 1)
        mixed = torch.logaddexp(of_all.gather(1, column).to(by_word.dtype), by_word.log())
        return of_all.scatter_(1, column, mixed.to(of_all.dtype))


def add_row_copy(log_probs: Float[Tensor, "... W"], copied: Int[Tensor, "..."]) -> Float[Tensor, "... W"]:
    """``log token'`` of cells whose row is known, from the log probabilities of all classes; the last class is *copy*.

    A copy of the row's word ``copied`` is added to that word if it is in the vocabulary, and the last column becomes
    impossible. Otherwise the last column is the word.
    """
    size = log_probs.shape[-1] - 1
    copied = copied[..., None].expand(*log_probs.shape[:-1], 1)
    log_copy = log_probs[..., size:].masked_fill(copied == NOT_COPIED, IMPOSSIBLE)
    is_known = copied < size
    index = copied.clamp(0, size - 1)
    mixed = torch.logaddexp(log_probs.gather(-1, index), log_copy.masked_fill(~is_known, IMPOSSIBLE))
    log_probs = log_probs.scatter(-1, index, mixed)
    log_probs[..., size:] = log_copy.masked_fill(is_known, IMPOSSIBLE)
    return log_probs
