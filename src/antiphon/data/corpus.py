"""Encoded corpora in memory-mapped Arrow files, and the order in which their pairs form batches.

A corpus is never held in memory: pairs stream from the reader through the codec into the file, and training reads
the rows of one batch at a time. Only the lengths, eight bytes a pair, are kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow
from numpy.typing import NDArray

from antiphon.data.batch import Batch, Ids
from antiphon.data.codec import PairCodec
from antiphon.data.readers import Pair, Source
from antiphon.errors import count_of

_SCHEMA = pyarrow.schema({side: pyarrow.list_(pyarrow.int32()) for side in ("source", "target")})
_ROWS_PER_CHUNK = 20_000
_BATCHES_PER_POOL = 50


@dataclass(frozen=True)
class Limits:
    """The longest pairs let into a corpus, in tokens without end symbols; ``max_cells`` bounds their product."""

    max_source_length: int | None = None
    max_target_length: int | None = None
    max_cells: int | None = None


@dataclass
class Census:
    """How many pairs were kept, and how many were left out for what reason."""

    kept: int = 0
    empty: int = 0
    source_too_long: int = 0
    target_too_long: int = 0
    too_many_cells: int = 0

    def admit(self, source_length: int, target_length: int, limits: Limits) -> bool:
        """Counts a pair and says whether it stays."""
        verdict = _verdict(source_length, target_length, limits)
        setattr(self, verdict, getattr(self, verdict) + 1)
        return verdict == "kept"

    def __str__(self) -> str:
        left_out = {reason: number for reason, number in asdict(self).items() if reason != "kept" and number}
        reasons = ", ".join(f"{number:,} {reason.replace('_', ' ')}" for reason, number in left_out.items())
        return count_of(self.kept, "pair") + (f", left out: {reasons}" if reasons else "")


def write_corpus(
    pairs: Iterable[Pair], codec: PairCodec, path: Path, limits: Limits, *, targets_only: bool = False
) -> Census:
    """Encodes the pairs into an Arrow file, and says how many were kept and left out.

    With ``targets_only`` sources are passed over but for their features, and only empty or long targets are left out.
    """
    census = Census()
    encode = _encode_targets if targets_only else _encode
    encoded = encode(pairs, codec, limits, census)
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, _SCHEMA) as writer:
        while rows := list(islice(encoded, _ROWS_PER_CHUNK)):
            sources, targets = zip(*rows, strict=True)
            writer.write(pyarrow.record_batch([_list_array(sources), _list_array(targets)], schema=_SCHEMA))
    return census


class Corpus:
    """A read-only view of an encoded corpus on disk."""

    def __init__(self, path: Path) -> None:
        with pyarrow.memory_map(str(path)) as source:
            reader = pyarrow.ipc.open_file(source)
            chunks = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._sources = _Sequences([chunk.column("source") for chunk in chunks])
        self._targets = _Sequences([chunk.column("target") for chunk in chunks])

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

    def batch(self, numbers: Iterable[int]) -> Batch:
        """The pairs of these numbers, padded."""
        numbers = list(numbers)
        return Batch.of([self._sources[n] for n in numbers], [self._targets[n] for n in numbers])

    def __getitem__(self, numbers: Iterable[int]) -> Batch:
        return self.batch(numbers)


class _Sequences:
    """One list column over all chunks, by number; each sequence is a view of the mapped file."""

    def __init__(self, columns: list[pyarrow.ListArray]) -> None:
        self._values = [column.values.to_numpy(zero_copy_only=True) for column in columns]
        self._offsets = [column.offsets.to_numpy(zero_copy_only=True) for column in columns]
        self._starts = np.cumsum([0] + [len(column) for column in columns])
        empty = np.zeros(0, np.int64)
        self.lengths: NDArray[np.int64] = np.concatenate([empty, *(np.diff(offsets) for offsets in self._offsets)])

    def __getitem__(self, number: int) -> Ids:
        chunk = int(np.searchsorted(self._starts, number, side="right")) - 1
        row = number - self._starts[chunk]
        first, last = self._offsets[chunk][row : row + 2]
        sequence: Ids = self._values[chunk][first:last]
        return sequence


def plan_batches(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    *,
    batch_size: int,
    max_cells: int,
    order: np.random.Generator | None = None,
) -> list[NDArray[np.int64]]:
    """Numbers of the pairs of each batch: at most ``batch_size`` pairs and ``max_cells`` padded lattice cells.

    Pairs are shuffled, sorted by length inside pools of some fifty batches, cut into batches, and the batches
    shuffled again, all by ``order``. Without it, pairs are sorted by length as a whole.
    """
    numbers = np.arange(len(source_lengths)) if order is None else order.permutation(len(source_lengths))
    pool = len(numbers) if order is None else batch_size * _BATCHES_PER_POOL
    batches: list[NDArray[np.int64]] = []
    for first in range(0, len(numbers), max(1, pool)):
        members = numbers[first : first + pool]
        by_length = members[np.lexsort((target_lengths[members], source_lengths[members]))]
        batches.extend(_cut(by_length, source_lengths, target_lengths, batch_size, max_cells))
    return batches if order is None else [batches[number] for number in order.permutation(len(batches))]


def _cut(
    numbers: NDArray[np.int64],
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    batch_size: int,
    max_cells: int,
) -> Iterator[NDArray[np.int64]]:
    first, longest_source, longest_target = 0, 0, 0
    for position, number in enumerate(numbers):
        longest_source = max(longest_source, int(source_lengths[number]))
        longest_target = max(longest_target, int(target_lengths[number]))
        pairs = position - first + 1
        if pairs > 1 and (pairs > batch_size or pairs * longest_source * longest_target > max_cells):
            yield numbers[first:position]
            first, longest_source, longest_target = position, int(source_lengths[number]), int(target_lengths[number])
    if first < len(numbers):
        yield numbers[first:]


def _encode(pairs: Iterable[Pair], codec: PairCodec, limits: Limits, census: Census) -> Iterator[tuple[Ids, Ids]]:
    for pair in pairs:
        target = codec.target.encode(pair.target)
        source = codec.encode_source(Source(pair.source, pair.features))
        has_text = len(source) > len(pair.features)
        if census.admit(len(source) if has_text else 0, len(target), limits):
            yield source, target


def _encode_targets(
    pairs: Iterable[Pair], codec: PairCodec, limits: Limits, census: Census
) -> Iterator[tuple[Ids, Ids]]:
    for pair in pairs:
        target = codec.target.encode(pair.target)
        if census.admit(1, len(target), limits):
            yield codec.encode_source(Source("", pair.features)), target


def _verdict(source_length: int, target_length: int, limits: Limits) -> str:
    if not source_length or not target_length:
        return "empty"
    if limits.max_source_length is not None and source_length > limits.max_source_length:
        return "source_too_long"
    if limits.max_target_length is not None and target_length > limits.max_target_length:
        return "target_too_long"
    if limits.max_cells is not None and source_length * target_length > limits.max_cells:
        return "too_many_cells"
    return "kept"


def _list_array(sequences: tuple[Ids, ...]) -> pyarrow.ListArray:
    offsets = np.cumsum([0] + [len(sequence) for sequence in sequences], dtype=np.int32)
    return pyarrow.ListArray.from_arrays(offsets, np.concatenate(sequences))
