"""Encoded corpora: the token ids of all pairs in a few arrays, four bytes a token.

Pairs stream from the reader through the codec in chunks of some thousands, so that their text is never in memory as a
whole.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, compress
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from antiphon.data.batch import Batch
from antiphon.terminal import count_of
from antiphon.torch_free.codec import PairCodec, PairTokeniser
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import UNKNOWN, CopiedWords, Ids, TokenCounts, WordIds

_ROWS_PER_CHUNK = 20_000
_CHARACTERS_PER_CHUNK = 2**24


@dataclass(frozen=True)
class LengthLimits:
    """The longest pairs that a corpus takes, in tokens without end symbols; ``max_cells`` bounds their product."""

    max_source_length: int | None = None
    max_target_length: int | None = None
    max_cells: int | None = None


@dataclass
class FilterStats:
    """How many pairs were kept, and how many were dropped for which reason."""

    kept: int = 0
    empty: int = 0
    source_too_long: int = 0
    target_too_long: int = 0
    too_many_cells: int = 0

    def admit(
        self, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], limits: LengthLimits
    ) -> NDArray[np.bool_]:
        """Counts the pairs; true for those that stay."""
        stays = np.ones(len(source_lengths), bool)
        for reason, fails in _reasons(source_lengths, target_lengths, limits):
            setattr(self, reason, getattr(self, reason) + int((stays & fails).sum()))
            stays &= ~fails
        self.kept += int(stays.sum())
        return stays

    def __str__(self) -> str:
        dropped = {reason: count for reason, count in asdict(self).items() if reason != "kept" and count}
        reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped.items())
        return count_of(self.kept, "pair") + (f", dropped: {reasons}" if reasons else "")


class TokenEncoder(Protocol):
    """What gives tokens their ids: a vocabulary, or the counts from which one will be made."""

    def encode(self, tokens: Iterable[str], /) -> Ids:
        """The id of each token."""
        ...


class Sequences(NamedTuple):
    """Sequences of ids, one after the other: number ``n`` is ``ids[bounds[n]:bounds[n + 1]]``."""

    ids: Ids
    bounds: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each."""
        return np.diff(self.bounds)

    def take(self, indices: NDArray[np.int64]) -> list[Ids]:
        """The sequences at these indices, as views."""
        ends = zip(self.bounds[indices], self.bounds[indices + 1], strict=True)
        return [self.ids[first:last] for first, last in ends]

    def mapped(self, table: Ids) -> "Sequences":
        """The same sequences with ``table[n]`` in place of id ``n``."""
        return Sequences(table[self.ids], self.bounds)


class PairIds(NamedTuple):
    """Token ids of some pairs, without end symbols.

    If words are copied, ``copied`` has the words of the sources as target ids; unknown words, there and in ``targets``,
    then have negative ids of their own (``torch_free/vocab.py``). Otherwise it is None.
    """

    sources: list[Ids]
    targets: list[Ids]
    features: list[Ids]
    copied: list[Ids] | None


@dataclass(frozen=True)
class Corpus:
    """Encoded pairs; ``stats`` says how many were kept and dropped.

    ``copied`` is None unless words may be copied (``torch_free/vocab.py``), and ``copied_size`` the size of the target
    vocabulary if they are, else 0.
    """

    sources: Sequences
    targets: Sequences
    features: Sequences
    copied: Sequences | None
    stats: FilterStats
    copied_size: int = 0

    @classmethod
    def encode(
        cls,
        pairs: Iterable[Pair],
        codec: PairCodec,
        limits: LengthLimits,
        *,
        targets_only: bool = False,
        may_copy: bool = False,
    ) -> "Corpus":
        """The pairs in the ids of a codec.

        With ``targets_only`` sources are ignored except for their features, and only empty or long targets are dropped.
        With ``may_copy`` unknown words keep ids of their own.
        """
        words = WordIds(codec.target.vocab)
        encoders: list[TokenEncoder] = [codec.source.vocab, codec.target.vocab, codec.features]
        if may_copy:
            encoders = [codec.source.vocab, words, codec.features, words]
        return _encode(pairs, codec, encoders, limits, targets_only)

    def __len__(self) -> int:
        return len(self.sources.bounds) - 1

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """Source lengths, end symbols counted."""
        return self.sources.lengths + 1

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """Target lengths, end symbols counted."""
        return self.targets.lengths + 1

    @cached_property
    def max_features(self) -> int:
        """The most features of a pair."""
        return int(self.features.lengths.max(initial=0))

    def batch(self, indices: Iterable[int]) -> Batch:
        """The pairs at these indices, padded."""
        return self.pad(self.pair_ids(np.fromiter(indices, np.int64)))

    def pad(self, pairs: PairIds) -> Batch:
        """Pairs of this corpus as a batch."""
        words = None if pairs.copied is None else CopiedWords(pairs.copied, self.copied_size)
        return Batch.of(pairs.sources, pairs.targets, pairs.features, max_features=self.max_features, copied=words)

    def pair_ids(self, indices: NDArray[np.int64]) -> PairIds:
        """The pairs at these indices."""
        sources, targets, features = (side.take(indices) for side in (self.sources, self.targets, self.features))
        if self.copied is None:
            return PairIds(sources, targets, features, None)
        if self.copied_size:
            return PairIds(sources, targets, features, self.copied.take(indices))
        known = [np.where(target < 0, np.int32(UNKNOWN), target) for target in targets]
        return PairIds(sources, known, features, None)


class CountedCorpus(NamedTuple):
    """Pairs with provisional ids, before there are vocabularies, and the counts from which these are made.

    Only pairs that are kept are counted. ``corpus.sources.mapped`` replaces provisional ids by those of a vocabulary,
    so that text is read and tokenised once.
    """

    corpus: Corpus
    source: TokenCounts
    target: TokenCounts
    features: TokenCounts

    @classmethod
    def read(
        cls, pairs: Iterable[Pair], tokeniser: PairTokeniser, limits: LengthLimits, *, targets_only: bool = False
    ) -> "CountedCorpus":
        """Reads and counts pairs, as ``Corpus.encode`` reads them."""
        counts = TokenCounts(), TokenCounts(), TokenCounts()
        return cls(_encode(pairs, tokeniser, counts, limits, targets_only), *counts)

    def with_ids(self, source: Ids, target: Ids, features: Ids, copied: Ids | None = None) -> Corpus:
        """The corpus in which id ``n`` becomes ``source[n]``, ``target[n]`` or ``features[n]``.

        With ``copied``, source words may be copied: ``copied[n]`` is the target id of source id ``n``.
        """
        found = self.corpus
        return Corpus(
            found.sources.mapped(source),
            found.targets.mapped(target),
            found.features.mapped(features),
            None if copied is None else found.sources.mapped(copied),
            found.stats,
        )


def _encode(
    pairs: Iterable[Pair],
    tokeniser: PairTokeniser,
    encoders: Sequence[TokenEncoder],
    limits: LengthLimits,
    targets_only: bool,
) -> Corpus:
    """The corpus whose sources, targets, features and, if there is a fourth encoder, copied words are encoded."""
    stats, columns = FilterStats(), [_Column() for _ in encoders]
    with _no_collection():
        for chunk in _chunks(pairs):
            targets = tokeniser.target.tokens_of([pair.target for pair in chunk])
            texts = [[]] * len(chunk) if targets_only else tokeniser.source.tokens_of([pair.source for pair in chunk])
            features = [sorted(set(pair.features)) for pair in chunk]
            lengths = np.ones(len(chunk), np.int64) if targets_only else _lengths(texts)
            stays = stats.admit(lengths, _lengths(targets), limits)
            sides = zip(columns, (texts, targets, features, texts), encoders, strict=False)
            for column, sequences, encoder in sides:
                column.add(list(compress(sequences, stays)), encoder)
    sources, written, tags, *copied = (column.sequences() for column in columns)
    return Corpus(sources, written, tags, copied[0] if copied else None, stats)


class _Column:
    """Sequences that are added in chunks."""

    def __init__(self) -> None:
        self.ids, self.lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]

    def add(self, sequences: Sequence[list[str]], encoder: TokenEncoder) -> None:
        self.ids.append(encoder.encode(chain.from_iterable(sequences)))
        self.lengths.append(_lengths(sequences))

    def sequences(self) -> Sequences:
        return Sequences(np.concatenate(self.ids), np.cumsum(np.concatenate(self.lengths)))


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Lists of pairs, bounded in number and in characters."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == _ROWS_PER_CHUNK or characters >= _CHARACTERS_PER_CHUNK:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage collection is off inside: tokens form no cycles, and scanning them would dominate the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _reasons(
    source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], limits: LengthLimits
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each reason to drop pairs, and the pairs that it applies to."""
    yield "empty", (source_lengths == 0) | (target_lengths == 0)
    if limits.max_source_length is not None:
        yield "source_too_long", source_lengths > limits.max_source_length
    if limits.max_target_length is not None:
        yield "target_too_long", target_lengths > limits.max_target_length
    if limits.max_cells is not None:
        yield "too_many_cells", source_lengths * target_lengths > limits.max_cells


def _lengths(sequences: Sequence[list[str]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), np.int64, len(sequences))
