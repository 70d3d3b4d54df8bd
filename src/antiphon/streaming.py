"""Text in, text out, while the text still arrives: ``stream = antiphon.load("runs/x").stream()``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.data.codec import PairCodec


class TokenStreams(Protocol):
    """Streams of token ids, numbered from 0; what ``search/online.py`` offers."""

    def read(self, streams: Sequence[int], tokens: Sequence[int]) -> list[list[int]]:
        """One more input token of some streams; what each of them has newly decided to write."""
        ...

    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the rest of what each of them writes."""
        ...


class StreamGroup:
    """Several streams that are advanced together, which costs little more than one."""

    def __init__(self, streams: TokenStreams, codec: PairCodec, count: int) -> None:
        self._streams, self._codec = streams, codec
        self._is_open = [True] * count

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
        return self._advance([self._codec.source.vocab.encode(piece or ()).tolist() for piece in pieces])

    def finish(self, numbers: Sequence[int] | None = None) -> list[list[str]]:
        """Ends some streams, or all that are open; the rest of what each of them writes, in the order asked for."""
        ending = [n for n, is_open in enumerate(self._is_open) if is_open] if numbers is None else list(numbers)
        for number in ending:
            if not self._is_open[number]:
                raise ValueError(f"stream {number} has ended already")
            self._is_open[number] = False
        found = self._streams.finish(ending) if ending else []
        return [self._tokens(ids) for ids in found]

    def _advance(self, ids: Sequence[Sequence[int]]) -> list[list[str]]:
        written: list[list[str]] = [[] for _ in ids]
        for position in range(max(map(len, ids), default=0)):
            reading = [number for number, each in enumerate(ids) if position < len(each)]
            found = self._streams.read(reading, [ids[number][position] for number in reading])
            for number, new in zip(reading, found, strict=True):
                written[number] += self._tokens(new)
        return written

    def _tokens(self, ids: Sequence[int]) -> list[str]:
        return list(self._codec.target.vocab.decode(ids))


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
