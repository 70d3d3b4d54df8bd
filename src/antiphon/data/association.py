"""Finds the target token that each source token occurs with most: a first guess of what is written for it."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from antiphon.data.corpus import Corpus
from antiphon.torch_free.vocab import NO_COUNTERPART, SPECIALS

_PAIRS, _CELLS = 50_000, 5 * 10**7
"""Maximum number of pairs counted, and of source tokens times target tokens in them."""
_KEYS_AT_ONCE = 2**21
"""Maximum number of keys in memory before their counts are merged."""

Keys = NDArray[np.int64]


def associate(corpus: Corpus, source_size: int, target_size: int) -> NDArray[np.int64]:
    """The target id with the highest Dice coefficient of every source id, ``NO_COUNTERPART`` where there is none.

    dice(x, y) = 2 * pairs with both / (pairs with x + pairs with y)

    Only tokens that occur together take memory, not all ``source_size * target_size``.
    """
    cells = np.cumsum(corpus.source_lengths[:_PAIRS] * corpus.target_lengths[:_PAIRS])
    pairs = corpus.pair_ids(np.arange(max(1, int(np.searchsorted(cells, _CELLS, "right")))))
    texts = zip(pairs.sources, corpus.known_targets(pairs.targets), strict=True)
    types = [(_types(source), _types(target)) for source, target in texts]
    with_source = np.bincount(np.concatenate([source for source, _ in types]), minlength=source_size)
    with_target = np.bincount(np.concatenate([target for _, target in types]), minlength=target_size)
    keys, together = count_keys((source[:, None] * target_size + target).ravel() for source, target in types)
    source, target = np.divmod(keys, target_size)
    dice = together / (with_source[source] + with_target[target])
    best_first = np.lexsort((target, -dice, source))
    found, first = np.unique(source[best_first], return_index=True)
    counterparts = np.full(source_size, NO_COUNTERPART)
    counterparts[found] = target[best_first][first]
    return counterparts


def _types(ids: Iterable[int]) -> Keys:
    """The distinct ids of a text, without those of special symbols."""
    distinct = np.unique(np.asarray(ids, np.int64))
    return distinct[distinct >= len(SPECIALS)]


def count_keys(parts: Iterable[Keys], at_once: int = _KEYS_AT_ONCE) -> tuple[Keys, NDArray[np.int64]]:
    """The distinct keys of all parts, in order, and how often each occurs."""
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting, size = list[Keys](), 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= at_once:
            keys, counts = _merge_counts(keys, counts, waiting)
            waiting, size = [], 0
    return _merge_counts(keys, counts, waiting)


def _merge_counts(keys: Keys, counts: NDArray[np.int64], more: list[Keys]) -> tuple[Keys, NDArray[np.int64]]:
    """Distinct keys and their counts, with those of more keys."""
    new, counted = np.unique(np.concatenate([*more, np.zeros(0, np.int64)]), return_counts=True)
    every = np.union1d(keys, new)
    added = np.zeros(len(every), np.int64)
    added[np.searchsorted(every, keys)] += counts
    added[np.searchsorted(every, new)] += counted
    return every, added
