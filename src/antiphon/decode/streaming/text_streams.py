"""Text in, text out, while the text still arrives: ``stream = antiphon.load("runs/x").stream()``.

An unknown token that is written stands for a token of the input. Where streams write a row as soon as they have read
its token, it is that token. A beam commits later, when the row is no longer known: unknown tokens then stand for the
unknown tokens of the input, one after the other in the order in which they were read.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.data.codec import PairCodec
from antiphon.data.vocab import SPECIALS, UNKNOWN


class StreamDecoder(Protocol):
    """Streams of token ids, numbered from 0; what ``decode/streaming/online_decoder.py`` offers.

    ``writes_at_once`` if what is written after a token was always written in the row of that token.
    """

    writes_at_once: bool

    def read(self, streams: Sequence[int], tokens: Sequence[int]) -> list[list[int]]:
        """One more input token of some streams; what each of them has newly decided to write."""
        ...

    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the rest of what each of them writes."""
        ...


class CopiedTokens:
    """The input tokens of one stream that unknown tokens of its output stand for."""

    def __init__(self) -> None:
        self._waiting = deque[str]()
        self._last = SPECIALS[UNKNOWN]
        """What there is to copy where no unknown token waits: the last unknown token, or else the last token."""
        self._seen_unknown = False

    def read(self, token: str, *, is_known: bool) -> None:
        """Notes one more input token."""
        if not is_known:
            self._waiting.append(token)
        if not is_known or not self._seen_unknown:
            self._last = token
        self._seen_unknown |= not is_known

    def at_end(self) -> str:
        """What was written after the input has ended stands for."""
        return self._last

    def next(self) -> str:
        """What the next unknown token stands for, whatever row it was written in."""
        return self._waiting.popleft() if self._waiting else self._last


class StreamGroup:
    """Several streams that are advanced together, which costs little more than one."""

    def __init__(self, streams: StreamDecoder, codec: PairCodec, count: int) -> None:
        self._streams, self._codec = streams, codec
        self._is_open = [True] * count
        self._copied = [CopiedTokens() for _ in range(count)]

    def __len__(self) -> int:
        return len(self._is_open)

    def read(self, texts: Sequence[str | None]) -> list[list[str]]:
        """One more piece of text of each stream, None where nothing arrives; the tokens that each newly writes."""
        return self.read_tokens([None if text is None else self._codec.source.tokens(text) for text in texts])

    def read_tokens(self, pieces: Sequence[Sequence[str] | None]) -> list[list[str]]:
        """The same for text that is cut into tokens already: a subword, cut again, may come out as others."""
        if len(pieces) != len(self):
            raise ValueError(f"{len(pieces)} pieces of text for {len(self)} streams, expected one for each")
        for number, piece in enumerate(pieces):
            if piece is not None and not self._is_open[number]:
                raise ValueError(f"stream {number} has ended, expected None for it")
        return self._advance([piece or () for piece in pieces])

    def finish(self, numbers: Sequence[int] | None = None) -> list[list[str]]:
        """Ends some streams, or all that are open; the rest of what each of them writes, in the order asked for."""
        ending = [n for n, is_open in enumerate(self._is_open) if is_open] if numbers is None else list(numbers)
        for number in ending:
            if not self._is_open[number]:
                raise ValueError(f"stream {number} has ended already")
            self._is_open[number] = False
        found = self._streams.finish(ending) if ending else []
        return [self._decode(number, ids, None) for number, ids in zip(ending, found, strict=True)]

    def _advance(self, pieces: Sequence[Sequence[str]]) -> list[list[str]]:
        written: list[list[str]] = [[] for _ in pieces]
        for position in range(max(map(len, pieces), default=0)):
            reading = [number for number, piece in enumerate(pieces) if position < len(piece)]
            tokens = [pieces[number][position] for number in reading]
            ids = self._codec.source.vocab.encode(tokens).tolist()
            for number, token, id_ in zip(reading, tokens, ids, strict=True):
                self._copied[number].read(token, is_known=id_ != UNKNOWN)
            for number, token, new in zip(reading, tokens, self._streams.read(reading, ids), strict=True):
                written[number] += self._decode(number, new, token)
        return written

    def _decode(self, number: int, ids: Sequence[int], token: str | None) -> list[str]:
        """The tokens that a stream wrote after a token of its input, or None after its end."""
        written = list(self._codec.target.vocab.decode(ids))
        return [self._copy(number, token) if id_ == UNKNOWN else each for each, id_ in zip(written, ids, strict=True)]

    def _copy(self, number: int, token: str | None) -> str:
        """The input token that an unknown one stands for."""
        copied = self._copied[number]
        if not self._streams.writes_at_once:
            return copied.next()
        return copied.at_end() if token is None else token


class Stream:
    """One input that arrives piece by piece."""

    def __init__(self, group: StreamGroup) -> None:
        self._group = group

    def read(self, text: str) -> list[str]:
        """One more token of the input, or several; the tokens that are decided now and were not before."""
        return self._group.read([text])[0]

    def finish(self) -> list[str]:
        """The end of the input; the rest of the output."""
        (rest,) = self._group.finish([0])
        return rest


@dataclass(frozen=True)
class Timed:
    """What a stream wrote, and how many tokens it had been given when it wrote each."""

    tokens: list[str]
    read: list[int]


def run_streams(group: StreamGroup, sources: Sequence[Sequence[str]]) -> list[Timed]:
    """Streams whole inputs, given as tokens, all at once, and notes what is written when."""
    outputs = [Timed([], []) for _ in sources]

    def note(numbers: Sequence[int], written: list[list[str]], given: int) -> None:
        for number, tokens in zip(numbers, written, strict=True):
            outputs[number].tokens.extend(tokens)
            outputs[number].read.extend([given] * len(tokens))

    everyone = range(len(sources))
    for given in range(max(map(len, sources), default=0) + 1):
        if given:
            arriving = [tokens[given - 1 : given] if given <= len(tokens) else None for tokens in sources]
            note(everyone, group.read_tokens(arriving), given)
        ending = [number for number in everyone if len(sources[number]) == given]
        note(ending, group.finish(ending), given)
    return outputs
