"""Encoded corpora in memory-mapped Arrow files, and the order in which their pairs form batches.

A corpus is never held in memory: pairs stream from the reader through the codec into the file in chunks of some
thousands, and training reads one batch at a time. Only the lengths are kept in memory, sixteen bytes a pair.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, compress
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow
from numpy.typing import NDArray

from antiphon.data.batch import Batch
from antiphon.terminal import count_of
from antiphon.torch_free.codec import PairCodec, PairTokeniser
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import UNKNOWN, CopiedWords, Ids, TokenCounts, WordIds

_COLUMNS = ("source", "target", "features", "copied")
"""Columns of a corpus; the last one only if words may be copied (``torch_free/vocab.py``)."""
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

    def encode_many(self, tokens: Sequence[str]) -> Ids:
        """The id of each token."""
        ...


def write_corpus(
    pairs: Iterable[Pair],
    codec: PairCodec,
    path: Path,
    limits: LengthLimits,
    *,
    targets_only: bool = False,
    may_copy: bool = False,
) -> FilterStats:
    """Encodes the pairs into an Arrow file; how many were kept and dropped.

    With ``targets_only`` sources are ignored except for their features, and only empty or long targets are dropped.
    With ``may_copy`` unknown words keep ids of their own.
    """
    stats = FilterStats()
    encoders: list[TokenEncoder] = [codec.source.vocab, codec.target.vocab, codec.features]
    if may_copy:
        encoders[1:] = [WordIds(codec.target.vocab), codec.features, WordIds(codec.target.vocab)]
    _write(_encode(pairs, codec, encoders, limits, stats, targets_only), path, len(encoders))
    return stats


class CountedCorpus(NamedTuple):
    """What was counted while a corpus was written: pairs, tokens of both sides, and features."""

    stats: FilterStats
    source: TokenCounts
    target: TokenCounts
    features: TokenCounts


def write_counted_corpus(
    pairs: Iterable[Pair], tokeniser: PairTokeniser, path: Path, limits: LengthLimits, *, targets_only: bool = False
) -> CountedCorpus:
    """Writes the pairs as ``write_corpus`` does, before there are vocabularies: with provisional ids.

    Only pairs that are kept are counted. Once vocabularies are made from the counts, ``remap_corpus_ids`` replaces the
    provisional ids by theirs, so that text is read and tokenised once.
    """
    counted = CountedCorpus(FilterStats(), TokenCounts(), TokenCounts(), TokenCounts())
    encoders = [counted.source, counted.target, counted.features]
    _write(_encode(pairs, tokeniser, encoders, limits, counted.stats, targets_only), path, len(encoders))
    return counted


def remap_corpus_ids(path: Path, new: Path, source: Ids, target: Ids, features: Ids, copied: Ids | None = None) -> None:
    """Writes a corpus in which id ``n`` of a column becomes ``source[n]``, ``target[n]`` or ``features[n]``.

    With ``copied`` there is one more column, in which id ``n`` of a source is ``copied[n]``.
    """
    tables = [source, target, features] + ([] if copied is None else [copied])
    with pyarrow.OSFile(str(path)) as file:
        reader = pyarrow.ipc.open_file(file)
        chunks = (reader.get_batch(index) for index in range(reader.num_record_batches))
        columns = (zip(tables, [*chunk.columns, chunk.columns[0]], strict=False) for chunk in chunks)
        _write(([_remapped(column, table) for table, column in each] for each in columns), new, len(tables))


class PairIds(NamedTuple):
    """Token ids of some pairs, without end symbols.

    If words are copied, ``copied`` has the words of the sources as target ids; unknown words, there and in ``targets``,
    then have negative ids of their own (``torch_free/vocab.py``). Otherwise it is None.
    """

    sources: list[Ids]
    targets: list[Ids]
    features: list[Ids]
    copied: list[Ids] | None


class Corpus:
    """A read-only view of an encoded corpus on disk.

    ``copied_size`` is the size of the target vocabulary if words are copied, else 0.
    """

    def __init__(self, path: Path, *, copied_size: int = 0) -> None:
        with pyarrow.memory_map(str(path)) as source:
            reader = pyarrow.ipc.open_file(source)
            chunks = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        self._sources = _Column([chunk.column("source") for chunk in chunks])
        self._targets = _Column([chunk.column("target") for chunk in chunks])
        self._features = _Column([chunk.column("features") for chunk in chunks])
        names = chunks[0].schema.names if chunks else ()
        self._copied = _Column([chunk.column("copied") for chunk in chunks]) if "copied" in names else None
        self.copied_size = copied_size
        self.max_features = int(self._features.lengths.max(initial=0))

    def __len__(self) -> int:
        return len(self._sources.lengths)

    @property
    def source_lengths(self) -> NDArray[np.int64]:
        """Source lengths, end symbols counted."""
        return self._sources.lengths + 1

    @property
    def target_lengths(self) -> NDArray[np.int64]:
        """Target lengths, end symbols counted."""
        return self._targets.lengths + 1

    def batch(self, indices: Iterable[int]) -> Batch:
        """The pairs at these indices, padded."""
        return self.pad(self.pair_ids(np.fromiter(indices, np.int64)))

    def pad(self, pairs: PairIds) -> Batch:
        """Pairs of this corpus as a batch."""
        words = None if pairs.copied is None else CopiedWords(pairs.copied, self.copied_size)
        return Batch.of(pairs.sources, pairs.targets, pairs.features, max_features=self.max_features, copied=words)

    def pair_ids(self, indices: NDArray[np.int64]) -> PairIds:
        """The pairs at these indices."""
        columns = (self._sources, self._targets, self._features)
        sources, targets, features = (column.take(indices) for column in columns)
        if not self.copied_size:
            return PairIds(sources, self.known_targets(targets), features, None)
        assert self._copied is not None
        return PairIds(sources, targets, features, self._copied.take(indices))

    def known_targets(self, targets: list[Ids]) -> list[Ids]:
        """Targets in ids of the vocabulary."""
        if self._copied is None:
            return targets
        return [np.where(target < 0, np.int32(UNKNOWN), target) for target in targets]


class _Column:
    """One list column over all chunks; each sequence is a view of the mapped file."""

    def __init__(self, columns: list[pyarrow.ListArray]) -> None:
        self._values = [column.values.to_numpy(zero_copy_only=True) for column in columns]
        self._offsets = [column.offsets.to_numpy(zero_copy_only=True) for column in columns]
        self._starts = np.cumsum([0] + [len(column) for column in columns])
        empty = np.zeros(0, np.int64)
        self.lengths: NDArray[np.int64] = np.concatenate([empty, *(np.diff(offsets) for offsets in self._offsets)])

    def take(self, indices: NDArray[np.int64]) -> list[Ids]:
        """The sequences at these indices."""
        chunks = np.searchsorted(self._starts, indices, side="right") - 1
        rows = zip(chunks.tolist(), (indices - self._starts[chunks]).tolist(), strict=True)
        return [self._values[chunk][slice(*self._offsets[chunk][row : row + 2])] for chunk, row in rows]


def _encode(
    pairs: Iterable[Pair],
    tokeniser: PairTokeniser,
    encoders: Sequence[TokenEncoder],
    limits: LengthLimits,
    stats: FilterStats,
    targets_only: bool,
) -> Iterator[list[pyarrow.ListArray]]:
    """The columns of every chunk of pairs."""
    for chunk in _chunks(pairs):
        targets = tokeniser.target.tokens_of([pair.target for pair in chunk])
        texts = [[]] * len(chunk) if targets_only else tokeniser.source.tokens_of([pair.source for pair in chunk])
        features = [sorted(set(pair.features)) for pair in chunk]
        lengths = np.ones(len(chunk), np.int64) if targets_only else _lengths(texts)
        stays = stats.admit(lengths, _lengths(targets), limits)
        yield [
            _list_array(list(compress(tokens, stays)), encoder)
            for tokens, encoder in zip((texts, targets, features, texts), encoders, strict=False)
        ]


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


def _write(chunks: Iterable[list[pyarrow.ListArray]], path: Path, columns: int) -> None:
    schema = pyarrow.schema({column: pyarrow.list_(pyarrow.int32()) for column in _COLUMNS[:columns]})
    with _no_collection(), pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
        for chunk in chunks:
            writer.write(pyarrow.record_batch(chunk, schema=schema))


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


def _list_array(sequences: Sequence[list[str]], encoder: TokenEncoder) -> pyarrow.ListArray:
    offsets = np.concatenate([[0], np.cumsum(_lengths(sequences))]).astype(np.int32)
    return pyarrow.ListArray.from_arrays(offsets, encoder.encode_many(list(chain.from_iterable(sequences))))


def _remapped(column: pyarrow.ListArray, table: Ids) -> pyarrow.ListArray:
    return pyarrow.ListArray.from_arrays(column.offsets, table[column.values.to_numpy()])


def _lengths(sequences: Sequence[list[str]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, sequences), np.int64, len(sequences))
