"""Data augmentation: some training pairs are changed each time they are drawn.

If source and target share tokens, some pairs are hallucinated: the letters that a word and its form share are replaced
by random ones. ::

    schenken -> geschenkt     becomes, say,     sbörfken -> gesbörfkt

What differs between the two, and the first and last shared letter, is kept. So a model learns from few pairs that stems
are copied, whatever their letters. Known as data hallucination (Anastasopoulos and Neubig, 2019).

In others one token that both sides have is replaced by the unknown token, so that a model learns to copy tokens that
are in no vocabulary (``models/left_to_right.py``, ``nn/copying.py``).

Where nothing is copied, source tokens of some pairs are made unknown, so that a symbol which training never saw is
nothing strange: its surroundings are read as usual, and something likely is written in its place. Without this a greedy
search may write one cycle of letters without end.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus
from antiphon.torch_free.vocab import HIDDEN, NO_COUNTERPART, SPECIALS, UNKNOWN, Ids, Vocab

_MIN_SHARED = 3
"""Consecutive letters that a pair must share; the first and the last of them stay."""
_UNKNOWN_SHARE = 0.05
"""Share of the pairs in which a token is made unknown."""
_MOST_HIDDEN = 0.5
"""Part of the source tokens of a pair that are hidden, at most: any part up to this is equally likely."""


class Shared(NamedTuple):
    """The longest run of tokens that both sides of a pair share: where it begins in each, and its length."""

    source: int
    target: int
    length: int


def longest_shared(source: NDArray[np.integer], target: NDArray[np.integer]) -> Shared:
    """The longest run of equal ids, the first of several."""
    best = Shared(0, 0, 0)
    before = np.zeros(len(target) + 1, np.int64)
    for i, token in enumerate(source):
        row = np.zeros_like(before)
        row[1:] = np.where(target == token, before[:-1] + 1, 0)
        j = int(row.argmax())
        if row[j] > best.length:
            best = Shared(i + 1 - int(row[j]), j - int(row[j]), int(row[j]))
        before = row
    return best


def hide_word(source: Ids, target: Ids, copied: Ids, random: np.random.Generator) -> tuple[Ids, Ids, Ids]:
    """Source, target and copied words of a pair in which a random source word is made unknown on both sides.

    If the target does not have the word, nothing changes.
    """
    position = random.integers(len(source))
    token, word = source[position], copied[position]
    if word not in target:
        return source, target, copied
    target, copied = (np.where(side == word, np.int32(HIDDEN), side) for side in (target, copied))
    return np.where(source == token, np.int32(UNKNOWN), source), target, copied


class HiddenSources:
    """The pairs of a corpus; in some, a ``share`` of all, source tokens are made unknown."""

    def __init__(self, corpus: Corpus, share: float) -> None:
        self.corpus, self.share = corpus, share

    def batch(self, indices: NDArray[np.int64], seeds: NDArray[np.int64]) -> Batch:
        """The pairs at these indices, padded; the seed of each, below 2^63, decides what is hidden."""
        pairs = self.corpus.pair_ids(indices)
        for n in np.flatnonzero(seeds / 2**63 < self.share).tolist():
            pairs.sources[n] = hide_tokens(pairs.sources[n], np.random.default_rng(seeds[n]))
        return self.corpus.pad(pairs)


def hide_tokens(source: Ids, random: np.random.Generator) -> Ids:
    """A source some of whose tokens are unknown."""
    hidden = random.random(len(source)) < _MOST_HIDDEN * random.random()
    return np.where(hidden & (source >= len(SPECIALS)), np.int32(UNKNOWN), source)


def find_counterparts(source: Vocab, target: Vocab) -> NDArray[np.int64]:
    """The target id of the same token for every source token; unknown maps to unknown, other special ones to none."""
    ids = target.encode(source.tokens).astype(np.int64)
    ids[: len(SPECIALS)] = NO_COUNTERPART
    ids[UNKNOWN] = UNKNOWN
    return ids


class AugmentedPairs:
    """The pairs of a corpus, some of them augmented; ``counterparts`` has the target id of source ids.

    ``share`` is the share of hallucinated pairs.
    """

    def __init__(self, corpus: Corpus, counterparts: NDArray[np.int64], share: float) -> None:
        self.corpus, self.counterparts, self.share = corpus, counterparts, share
        self._found: dict[int, Shared] = {}

    def batch(self, indices: NDArray[np.int64], seeds: NDArray[np.int64]) -> Batch:
        """The pairs at these indices, padded; the seed of each, below 2^63, decides if and how it changes."""
        pairs = self.corpus.pair_ids(indices)
        sources, targets, copied = pairs.sources, pairs.targets, pairs.copied
        chance = seeds / 2**63
        for n in np.flatnonzero(chance < self.share + (1 - self.share) * _UNKNOWN_SHARE).tolist():
            random = np.random.default_rng(seeds[n])
            if copied is not None:
                sources[n], targets[n], copied[n] = hide_word(sources[n], targets[n], copied[n], random)
            elif chance[n] < self.share:
                sources[n], targets[n] = self._hallucinate(int(indices[n]), sources[n], targets[n], random)
            else:
                sources[n], targets[n] = self._hide(sources[n], targets[n], random)
        return self.corpus.pad(pairs)

    def _hide(self, source: Ids, target: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        """A pair in which a random source token is made unknown on both sides, if the target has its counterpart."""
        token = random.choice(source)
        written = self.counterparts[token]
        if written not in target:
            return source, target
        return np.where(source == token, UNKNOWN, source), np.where(target == written, UNKNOWN, target)

    def _hallucinate(self, index: int, source: Ids, target: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        if index not in self._found:
            self._found[index] = longest_shared(self.counterparts[source], target)
        shared = self._found[index]
        if shared.length < _MIN_SHARED or not self._alphabet:
            return source, target
        letters = random.choice(self._alphabet, shared.length - 2)
        source, target = source.copy(), target.copy()
        source[shared.source + 1 : shared.source + shared.length - 1] = letters
        target[shared.target + 1 : shared.target + shared.length - 1] = self.counterparts[letters]
        return source, target

    @cached_property
    def _alphabet(self) -> Sequence[int]:
        """The source ids that some pair has on both sides."""
        found: set[int] = set()
        for index in range(len(self.corpus)):
            (source,), (target,), *_ = self.corpus.pair_ids(np.array([index]))
            both = np.isin(self.counterparts[source], target) & (self.counterparts[source] >= len(SPECIALS))
            found.update(source[both].tolist())
        return sorted(found)
