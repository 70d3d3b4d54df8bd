"""Copying of words: ``nn/copying.py`` in numpy."""

from typing import NamedTuple

import numpy as np

from antiphon.lite.log_space import IMPOSSIBLE, Array, log_of
from antiphon.torch_free.vocab import NOT_COPIED, UNKNOWN


def copies_as_unknown(tokens: Array, size: int) -> Array:
    """The ids with copied words as the unknown token, for what has only the vocabulary of ``size`` tokens."""
    return np.where(tokens >= size, UNKNOWN, tokens)


class CopyTable(NamedTuple):
    """The words of sources, prepared once for many prefixes: ids, first positions and columns of their copies."""

    copied: Array
    first_position: Array
    column: Array

    @classmethod
    def of(cls, copied: Array, size: int) -> "CopyTable":
        """The table of the words of some sources."""
        positions = np.arange(copied.shape[1])
        first_position = (copied[:, :, None] == copied[:, None]).argmax(2)
        is_first = (first_position == positions) & (copied != NOT_COPIED)
        return cls(copied, first_position, np.where(is_first, copied, size + positions))

    def add_copies(self, log_prob: Array, log_copy: Array, first_row: int, sentence: Array) -> Array:
        """Log probabilities of all tokens and words, given those of tokens and of a copy at each of ``R`` rows."""
        rows = slice(first_row, first_row + log_copy.shape[1])
        copy = np.where(self.copied[:, rows][sentence] == NOT_COPIED, 0, np.exp(log_copy))
        by_word = np.zeros((len(copy), self.copied.shape[1]))
        np.add.at(by_word, (np.arange(len(copy))[:, None], self.first_position[:, rows][sentence]), copy)
        column = self.column[sentence]
        of_all = np.concatenate([log_prob, np.full(column.shape, IMPOSSIBLE, log_prob.dtype)], 1)
        mixed = np.logaddexp(np.take_along_axis(of_all, column, 1), log_of(by_word))
        np.put_along_axis(of_all, column, mixed.astype(of_all.dtype), 1)
        return of_all


def add_row_copy(log_probs: Array, copied: Array) -> Array:
    """Log probabilities of all tokens in cells whose row is known, given those of the classes.

    The last column is that of the row's own word ``copied`` if it is outside the vocabulary.
    """
    size = log_probs.shape[-1] - 1
    copied = copied[..., None]
    log_copy = np.where(copied == NOT_COPIED, IMPOSSIBLE, log_probs[..., size:])
    is_known = copied < size
    index = copied.clip(0, size - 1)
    mixed = np.logaddexp(np.take_along_axis(log_probs, index, -1), np.where(is_known, log_copy, IMPOSSIBLE))
    found = log_probs.copy()
    np.put_along_axis(found, index, mixed, -1)
    found[..., size:] = np.where(is_known, IMPOSSIBLE, log_copy)
    return found
