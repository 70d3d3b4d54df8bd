"""Streams of text, on top of policies that stream token ids: ``stream = antiphon.load("runs/x").stream()``.

A model that copies words gives each unknown word of the input an id of its own (``torch_free/vocab.py``): ids
from the size of the vocabulary on, in the order in which words are first read.

With other models, an unknown token in the output stands for an input token. A policy that writes at once copies the
token just read. A beam commits later, when the alignment is no longer known: unknown tokens in the output then stand
for the unknown tokens of the input, in the order in which they were read.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.stream_policies import StreamPolicy
from antiphon.torch_free.vocab import SPECIALS, UNKNOWN

if TYPE_CHECKING:
    from antiphon.decode.noisy_channel_streams import NoisyChannelStreams


class CopiedTokens:
    """The input tokens of one stream that unknown tokens of its output stand for."""

    def __init__(self) -> None:
        self._pending = deque[str]()
        self._last = SPECIALS[UNKNOWN]
        """What to copy if no unknown token is pending: the last unknown token, or else the last token."""
        self._seen_unknown = False

    def read(self, token: str, *, is_known: bool) -> None:
        """Adds one more input token."""
        if not is_known:
            self._pending.append(token)
        if not is_known or not self._seen_unknown:
            self._last = token
        self._seen_unknown |= not is_known

    def at_end(self) -> str:
        """The token to copy after the input has ended."""
        return self._last

    def next(self) -> str:
        """The token to copy for the next unknown token, if its alignment is not known."""
        return self._pending.popleft() if self._pending else self._last


class StreamStart(NamedTuple):
    """How a stream starts: its features, the bias towards writing, and the ids that its output begins with."""

    features: tuple[str, ...]
    emit_bias: float
    prefix: tuple[int, ...]


class StreamGroup:
    """Several streams that are advanced together, at little more than the cost of one."""

    def __init__(self, streams: "StreamPolicy | NoisyChannelStreams", codec: PairCodec, count: int) -> None:
        self._streams, self._codec = streams, codec
        self._is_open = [True] * count
        self._copied = [CopiedTokens() for _ in range(count)]
        self._words: list[dict[str, int]] = [{} for _ in range(count)]
        """The unknown words of each stream in the order in which they were read, if words are copied."""
        self._starts: dict[int, StreamStart] = {}
        """Streams that were opened since the last step, to be started together with it."""
        self._added = 0
        """How many of them are new to the policy."""

    def __len__(self) -> int:
        return len(self._is_open)

    def open(self, features: Sequence[str] = (), *, emit_bias: float = 0.0, prefix: Sequence[int] = ()) -> int:
        """The index of a new stream, in the slot of one that has ended if there is any.

        Its output begins with the target ids of ``prefix``.
        """
        if all(self._is_open):
            self._is_open.append(False)
            self._copied.append(CopiedTokens())
            self._words.append({})
            self._added += 1
        index = self._is_open.index(False)
        self._starts[index] = StreamStart(tuple(features), emit_bias, tuple(prefix))
        self._is_open[index], self._copied[index], self._words[index] = True, CopiedTokens(), {}
        return index

    def _start_opened(self) -> None:
        """Starts the streams that were opened since the last step."""
        if not self._starts:
            return
        indices, starts = list(self._starts), list(self._starts.values())
        features = self._codec.feature_ids([start.features for start in starts])
        if self._added:
            self._streams.add(np.repeat(features[:1], self._added, 0))
        biases, prefixes = [start.emit_bias for start in starts], [start.prefix for start in starts]
        self._streams.restart(indices, features, biases, prefixes)
        self._starts, self._added = {}, 0

    def close(self, index: int) -> None:
        """Ends a stream without writing the rest of its output."""
        self._is_open[index] = False

    def advance(self, pieces: Mapping[int, Sequence[str]], ending: Sequence[int] = ()) -> dict[int, list[str]]:
        """One more piece of some streams, as tokens, and the end of others; the tokens that each of them now writes."""
        for index in (*pieces, *ending):
            if not self._is_open[index]:
                raise ValueError(f"stream {index} has ended already")
        for index in ending:
            self._is_open[index] = False
        self._start_opened()
        written: dict[int, list[str]] = {index: [] for index in (*pieces, *ending)}
        for position in range(max(map(len, pieces.values()), default=0) or bool(ending)):
            reading = [index for index, piece in pieces.items() if position < len(piece)]
            tokens = [pieces[index][position] for index in reading]
            ids = self._codec.source.vocab.encode(tokens).tolist()
            for index, token, id_ in zip(reading, tokens, ids, strict=True):
                self._copied[index].read(token, is_known=id_ != UNKNOWN)
            new_ids = self._streams.advance(reading, ids, self._word_ids(reading, tokens), ending)
            given = chain(zip(reading, tokens, strict=True), ((index, None) for index in ending))
            for (index, last), new in zip(given, new_ids, strict=True):
                written[index] += self._decode(index, new, last)
            ending = ()
        return written

    def outputs(self, index: int) -> list[tuple[list[str], float]]:
        """What a stream may write next: tokens that are not written yet, with their log scores, best first."""
        self._start_opened()
        words = list(self._words[index])
        return [(self._codec.decode_words(ids, words), score) for ids, score in self._streams.outputs(index)]

    def read(self, texts: Sequence[str | None]) -> list[list[str]]:
        """One more piece of text of each stream, or None; the tokens that each stream now writes."""
        if len(texts) != len(self):
            raise ValueError(f"{len(texts)} pieces of text for {len(self)} streams, expected one for each")
        written = self.advance(
            {index: self._codec.source.tokens(text) for index, text in enumerate(texts) if text is not None}
        )
        return [written.get(index, []) for index in range(len(self))]

    def finish(self, indices: Sequence[int] | None = None) -> list[list[str]]:
        """Ends some streams, or all open ones; the remaining tokens of each, in the order given."""
        ending = [n for n, is_open in enumerate(self._is_open) if is_open] if indices is None else list(indices)
        written = self.advance({}, ending)
        return [written[index] for index in ending]

    def _decode(self, index: int, ids: Sequence[int], token: str | None) -> list[str]:
        """The tokens that a stream wrote after a token of its input, or None after its end."""
        if not ids:
            return []
        written = self._codec.decode_words(ids, list(self._words[index]))
        return [self._copy(index, token) if id_ == UNKNOWN else each for each, id_ in zip(written, ids, strict=True)]

    def _word_ids(self, streams: Sequence[int], words: Sequence[str]) -> list[int] | None:
        """The target ids of one more word of some streams, if words are copied; an unknown word gets a new one."""
        if not self._codec.copies_words:
            return None
        ids: list[int] = self._codec.target.vocab.encode(words).tolist()
        size = len(self._codec.target.vocab)
        for position, (stream, word) in enumerate(zip(streams, words, strict=True)):
            if ids[position] == UNKNOWN:
                known = self._words[stream]
                ids[position] = size + known.setdefault(word, len(known))
        return ids

    def _copy(self, index: int, token: str | None) -> str:
        """The input token that an unknown one stands for."""
        copied = self._copied[index]
        if not self._streams.writes_at_once:
            return copied.next()
        return copied.at_end() if token is None else token


class Stream:
    """One input that arrives piece by piece."""

    def __init__(self, group: StreamGroup) -> None:
        self._group = group

    def read(self, text: str) -> list[str]:
        """One more token of the input, or several; the tokens that are now written."""
        return self._group.read([text])[0]

    def finish(self) -> list[str]:
        """Ends the input; the remaining tokens of the output."""
        (rest,) = self._group.finish([0])
        return rest


@dataclass(frozen=True)
class Timed:
    """The tokens that a stream wrote, and how many input tokens it had read before each."""

    tokens: list[str]
    read: list[int]


def run_streams(group: StreamGroup, sources: Sequence[Sequence[str]]) -> list[Timed]:
    """Streams complete inputs, given as tokens, in parallel; what each wrote, and when."""
    outputs = [Timed([], []) for _ in sources]
    for given in range(1, max(map(len, sources), default=-1) + 2):
        pieces = {n: tokens[given - 1 : given] for n, tokens in enumerate(sources) if given <= len(tokens)}
        ending = [n for n, tokens in enumerate(sources) if len(tokens) == given - 1]
        for n, written in group.advance(pieces, ending).items():
            outputs[n].tokens.extend(written)
            outputs[n].read.extend([min(given, len(sources[n]))] * len(written))
    return outputs
