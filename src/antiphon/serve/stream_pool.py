"""Streams that advance together: those of one run with the same search are a group, whatever their bias and features.

All but ``StreamPool.close`` runs in the thread of streams. A step brings pieces of input to one stream; the steps of one
call are done piece by piece for all streams at once. If a call fails, no stream knows which of its pieces the group has
read: the group is dropped, and each stream reads again what it had read before the call, in a new group.
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from antiphon.api import Model, StreamOptions
from antiphon.decode.captured_step import CAPTURING
from antiphon.torch_free.text_streams import StreamGroup

Output = tuple[list[str], float]
"""Tokens that are not written yet, and their log score."""


@dataclass(frozen=True)
class StreamSearch:
    """How streams of a group are searched."""

    run: str
    policy: str
    beam: int | None
    margin: float | None


@dataclass(eq=False)
class OpenStream:
    """One input that arrives piece by piece; ``index`` is its place in ``group`` while it has one."""

    features: tuple[str, ...] = ()
    emit_bias: float = 0.0
    prefix: tuple[int, ...] = ()
    watch: bool = False
    group: StreamGroup | None = None
    index: int = -1
    read: list[Sequence[str]] = field(default_factory=list)
    """The pieces of all steps that were computed."""


@dataclass(frozen=True)
class StreamStep:
    """Pieces of input of a stream, in tokens; ``ends``: these are the last."""

    stream: OpenStream
    pieces: Sequence[Sequence[str]] = ()
    ends: bool = False


@dataclass
class StreamStepResult:
    """What a stream wrote after each piece, and after the end; with ``watch``, what it may write next."""

    written: list[list[str]] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    outputs: list[list[Output]] = field(default_factory=list)


class StreamPool:
    """The streams of one group."""

    def __init__(self, model: Model, search: StreamSearch) -> None:
        self.model = model
        self.options: StreamOptions = {
            "policy": search.policy,  # type: ignore[typeddict-item]
            "beam": search.beam,
            "margin": search.margin,
        }
        self.group: StreamGroup | None = None
        self._closed = deque[OpenStream]()

    def close(self, stream: OpenStream) -> None:
        """Frees the place of a stream after the step that is computed now, or with the next one; from any thread."""
        self._closed.append(stream)

    def advance(self, steps: list[StreamStep]) -> list[StreamStepResult]:
        """The results of steps of different streams; if it fails, none of the steps was done."""
        results = [StreamStepResult() for _ in steps]
        try:
            for position in range(max((len(step.pieces) + step.ends for step in steps), default=0)):
                with CAPTURING:
                    self._advance_once(position, list(zip(steps, results, strict=True)))
        except BaseException:
            self.group = None
            raise
        for step in steps:
            step.stream.read += step.pieces
        while self._closed:
            self._free(self._closed.popleft())
        return results

    def _advance_once(self, position: int, steps: list[tuple[StreamStep, StreamStepResult]]) -> None:
        """Reads one piece of each stream that has one, and ends those after their last piece.

        A stream that has read nothing writes nothing.
        """
        reading = [(step, result) for step, result in steps if position < len(step.pieces)]
        pieces = {self._open(step.stream): step.pieces[position] for step, _ in reading}
        ending = [
            (self._open(step.stream), step.stream, result)
            for step, result in steps
            if step.ends and position == len(step.pieces) and (step.pieces or step.stream.read)
        ]
        if self.group is None or not (pieces or ending):
            return
        written = self.group.advance(pieces, [index for index, _, _ in ending])
        for (step, result), index in zip(reading, pieces, strict=True):
            result.written.append(written[index])
            if step.stream.watch:
                result.outputs.append(self.group.outputs(index))
        for index, stream, result in ending:
            result.rest, stream.group = written[index], None

    def _open(self, stream: OpenStream) -> int:
        """The place of a stream in the group, which it gets with its first piece, or when the group is a new one."""
        if self.group is None:
            self.group = self.model.streams([()], **self.options)
            self.group.close(0)
        if stream.group is not self.group:
            index = self.group.open(stream.features, emit_bias=stream.emit_bias, prefix=stream.prefix)
            for piece in stream.read:
                self.group.advance({index: piece})
            stream.group, stream.index = self.group, index
        return stream.index

    def _free(self, stream: OpenStream) -> None:
        if stream.group is not None and stream.group is self.group:
            self.group.close(stream.index)
        stream.group = None


class StreamPools:
    """The pools of all searches that have open streams; a pool is dropped with its last stream."""

    def __init__(self, models: dict[str, Model]) -> None:
        self.models = models
        self._pools: dict[Hashable, tuple[StreamPool, int]] = {}

    def enter(self, search: StreamSearch) -> StreamPool:
        """The pool of a search, with one stream more."""
        pool, count = self._pools.get(search) or (StreamPool(self.models[search.run], search), 0)
        self._pools[search] = pool, count + 1
        return pool

    def leave(self, search: StreamSearch) -> None:
        """Takes one stream out of its pool."""
        pool, count = self._pools[search]
        if count > 1:
            self._pools[search] = pool, count - 1
        else:
            del self._pools[search]
