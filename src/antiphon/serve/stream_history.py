"""What has happened in a stream so far: what it read and wrote and when, and which outputs its beam dropped."""

import math
from collections.abc import Sequence
from typing import Any

from antiphon.metrics.delay import Delays, average_lagging
from antiphon.serve.stream_pool import Output

_MAX_SHOWN = 8
_MAX_DROPPED = 50


class StreamHistory:
    """What one input has led to so far."""

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
                self.dropped.insert(0, {"tokens": list(tokens), "step": len(self.source), "log_probability": score})
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
        return [_candidate(list(tokens), score) for tokens, score in self._alive]

    def latest_dropped(self, most: int) -> list[dict[str, Any]]:
        """What was dropped, the latest first."""
        return [{**each, "probability": math.exp(each["log_probability"])} for each in self.dropped[:most]]


def _candidate(tokens: list[str], score: float) -> dict[str, Any]:
    return {"tokens": tokens, "log_probability": score, "probability": math.exp(score), "score": score, "parts": None}
