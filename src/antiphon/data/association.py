"""Finds the target token that each source token occurs with most: a first guess of how letters are pronounced."""

import numpy as np
from numpy.typing import NDArray

from antiphon.data.corpus import Corpus
from antiphon.data.vocab import NO_COUNTERPART, SPECIALS

_PAIRS = 50_000
"""Maximum number of pairs counted."""


def associate(corpus: Corpus, source_size: int, target_size: int) -> NDArray[np.int64]:
    """The target id with the highest Dice coefficient of every source id, ``NO_COUNTERPART`` where there is none.

    dice(x, y) = 2 * pairs with both / (pairs with x + pairs with y)
    """
    both = np.zeros((source_size, target_size))
    with_source, with_target = np.zeros(source_size), np.zeros(target_size)
    pairs = corpus.pair_ids(np.arange(min(_PAIRS, len(corpus))))
    for source, target in zip(pairs.sources, corpus.known_targets(pairs.targets), strict=True):
        source_ids, target_ids = np.unique(source), np.unique(target)
        with_source[source_ids] += 1
        with_target[target_ids] += 1
        both[source_ids[:, None], target_ids] += 1
    both[: len(SPECIALS)] = both[:, : len(SPECIALS)] = 0
    dice = both / np.maximum(with_source[:, None] + with_target, 1)
    return np.where(dice.max(1) > 0, dice.argmax(1), NO_COUNTERPART)
