"""Policies of online decoding: what a unidirectional transducer writes before its input has ended.

Row ``i`` of the lattice holds all tokens written between reading token ``i`` and reading the next one, so rows are
processed one by one as tokens arrive, for many streams at a time. With an ``emit_bias`` the log odds of writing are
raised or lowered in every cell, which trades delay for quality. Two policies decide what is written:

greedy   write the most probable token as long as writing is more probable than reading on;
beam     keep in every row the best outputs of each length, scored by the sum over all alignments; after each row,
         write the prefix shared by all outputs at most ``commit_margin`` nats behind the best, and drop outputs that
         begin differently. With an infinite margin nothing is written too early: the final output is the one that a
         search of the whole input finds.

After a row, the score of an output is the log probability of having written exactly this output and leaving the row.
Outputs ``threshold`` nats behind the best are dropped, and at most a hundred tokens are held back, so the work per row
does not grow with the length of input and output.

Thesis: chapter 5, online generation.

Nothing here computes with tensors: what does, for PyTorch and for ``antiphon.lite``, is derived from these classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.vocab import END, NOT_COPIED


class OnlinePolicy(ABC):
    """Decodes inputs that arrive token by token; base class of the policies.

    Every stream has the tokens that its output must begin with, usually none.
    """

    writes_at_once = False
    settings: BeamSettings
    prefixes: list[Sequence[int]]
    tokens_read: list[int]

    @abstractmethod
    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """What a stream may write next: tokens that are not written yet, with their log scores, best first."""

    def read(
        self, streams: Sequence[int], tokens: Sequence[int], copied: Sequence[int] | None = None
    ) -> list[list[int]]:
        """One more input token of some streams; the tokens that each of them now writes.

        ``copied`` has the target ids of these tokens, for models that copy words.
        """
        return self.advance(streams, tokens, copied)

    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the remaining tokens of each, without the end symbol."""
        return self.advance([], [], ending=streams)

    def advance(
        self,
        streams: Sequence[int],
        tokens: Sequence[int],
        copied: Sequence[int] | None = None,
        ending: Sequence[int] = (),
    ) -> list[list[int]]:
        """``read`` of some streams and ``finish`` of others, at little more than the cost of one of them."""
        everyone = [*streams, *ending]
        if not everyone:
            return []
        words = None if copied is None else [*copied, *[NOT_COPIED] * len(ending)]
        factors = self._read(everyone, [*tokens, *[END] * len(ending)], words)
        return self._write(everyone, factors, [False] * len(streams) + [True] * len(ending))

    @abstractmethod
    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None = None) -> Any:
        """The source's contribution to the row of each token."""

    @abstractmethod
    def _write(self, streams: list[int], factors: Any, is_last: list[bool]) -> list[list[int]]:
        """The tokens that each stream writes in a row, which may be its last."""

    def _longest_output(self, stream: int) -> int:
        """Tokens, end symbol counted, that the output may have by now."""
        return int(self.tokens_read[stream] * self.settings.max_length_ratio) + self.settings.max_length_extra


class GreedyPolicy(OnlinePolicy):
    """Keeps one output for each stream, which grows while writing is more probable than reading on."""

    writes_at_once = True
    tokens_written: list[int]

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """One, without tokens: what is decided is written at once."""
        return [([], 0.0)]

    def _write(self, streams: list[int], factors: Any, is_last: list[bool]) -> list[list[int]]:
        written: list[list[int]] = [[] for _ in streams]
        positions = list(range(len(streams)))
        while positions := [position for position in positions if self._has_room(streams[position])]:
            own_streams = [streams[position] for position in positions]
            tokens = self._choose(own_streams, positions, factors, [is_last[position] for position in positions])
            writing = [
                (position, token) for position, token in zip(positions, tokens, strict=True) if token is not None
            ]
            for position, token in writing:
                written[position].append(token)
                self.tokens_written[streams[position]] += 1
            positions = [position for position, _ in writing]
            if writing:
                self._advance([streams[position] for position in positions], [token for _, token in writing])
        return written

    def _has_room(self, stream: int) -> bool:
        return self.tokens_written[stream] + 1 < self._longest_output(stream)

    @abstractmethod
    def _choose(self, streams: list[int], positions: list[int], factors: Any, is_last: list[bool]) -> list[int | None]:
        """The token that each stream writes next, in the cells at these positions; None if it reads on or ends."""

    @abstractmethod
    def _advance(self, streams: list[int], tokens: list[int]) -> None:
        """Updates the decoder states after the tokens that streams have written."""
