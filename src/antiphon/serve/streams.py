"""Streams that advance together: those of one run with the same search are a group, whatever their bias and features.

All but ``StreamPool.close`` runs in the thread of streams. A step brings pieces of input to one stream; the steps of
one call are done piece by piece for all streams at once. If a call fails, no stream knows which of its pieces the group
has read: the group is dropped, and each stream reads again what it had read before the call, in a new group.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from antiphon.api.model import Model
from antiphon.device import CAPTURING
from antiphon.metrics.delay import Delays, average_lagging
from antiphon.torch_free.streams import StreamGroup

_MAX_SHOWN = 8
_MAX_DROPPED = 50
Output = tuple[list[str], float]
"""Tokens that are not written yet, and their log score."""


class StreamSearch(NamedTuple):
    """How the streams of a group are searched."""

    policy: Literal["greedy", "beam"] = "beam"
    beam: int | None = None
    margin: float | None = None


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
        self.model, self.search = model, search
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
            self.group = self.model.streams([()], **self.search._asdict())
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


class StreamHistory:
    """What one input has led to so far: what was read and written and when, and which outputs the beam dropped."""

    def __init__(self) -> None:
        self.source: list[str] = []
        self.written: list[str] = []
        self.read_before: list[int] = []
        self.outputs: list[Output] = []
        self.dropped: list[dict[str, Any]] = []
        self._alive: list[tuple[tuple[str, ...], float]] = []

    def read(self, tokens: Sequence[str]) -> None:
        """Adds the tokens of a piece of input, or of a part of a long one."""
        self.source += tokens

    def write(self, tokens: Sequence[str]) -> None:
        """Adds tokens that were written after the input read so far."""
        self.written += tokens
        self.read_before += [len(self.source)] * len(tokens)

    def watch(self, outputs: Sequence[Output]) -> None:
        """Compares the active outputs with those before, after a piece was read and tokens were written."""
        alive = [((*self.written, *tokens), score) for tokens, score in outputs]
        for tokens, score in self._alive:
            if tokens and not any(other[: len(tokens)] == tokens for other, _ in alive):
                self.dropped.insert(0, {**_output(tokens, score), "step": len(self.source)})
        del self.dropped[_MAX_DROPPED:]
        self._alive = alive[:_MAX_SHOWN]
        self.outputs = list(outputs)

    @property
    def best(self) -> list[str]:
        """The best output so far, with the tokens that are not written yet."""
        return [*self.written, *(self.outputs[0][0] if self.outputs else ())]

    @property
    def average_lagging(self) -> float | None:
        """AL of what is written so far; None while there is nothing."""
        if not self.written or not self.source:
            return None
        return average_lagging(Delays(self.read_before, len(self.source), len(self.written)))

    def candidates(self) -> list[dict[str, Any]]:
        """The most probable active outputs."""
        return [{**_output(tokens, score), "score": score, "parts": None} for tokens, score in self._alive]

    def latest_dropped(self, most: int) -> list[dict[str, Any]]:
        """What was dropped, the latest first."""
        return [dict(each) for each in self.dropped[:most]]


def _output(tokens: Sequence[str], score: float) -> dict[str, Any]:
    return {"tokens": list(tokens), "log_probability": score, "probability": math.exp(score)}
