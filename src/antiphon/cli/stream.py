"""``antiphon stream``: reads standard input and writes tokens as soon as they are decided."""

import codecs
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from antiphon.cli.options import (
    Beam,
    Device,
    EmitBias,
    Format,
    Margin,
    Policy,
    Run,
    SearchSettings,
    Threads,
    load_run,
)
from antiphon.cli.predict import UnknownSymbols
from antiphon.exceptions import InputError
from antiphon.torch_free.codec import Chars, TextCodec
from antiphon.torch_free.readers import MAX_LINE_BYTES, STANDARD_INPUT, named_errors

if TYPE_CHECKING:
    from antiphon.torch_free.streams import Stream

END_OF_LINE = "\n"
_BYTES_AT_ONCE = 4096


Features = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="Features of every input, such as N;DAT;PL, if the run reads features."),
]
FormatOption = Annotated[Format, typer.Option(help="Text, or one JSON object for every token read or written.")]


def stream(
    run: Run,
    policy: Policy = "beam",
    emit_bias: EmitBias = 0.0,
    beam: Beam = None,
    margin: Margin = None,
    features: Features = None,
    settings: SearchSettings = None,
    format: FormatOption = "text",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Read standard input as it arrives, write output at once.

    Every line is one input. Words are read once a space follows them, characters at
    once. An empty line gets an empty output.

    Examples:
      echo dagibu | antiphon stream runs/online
      echo dagibu | antiphon stream runs/online --policy greedy --format jsonl
    """
    model = load_run(run, device, threads, settings)

    def start() -> "Stream":
        return model.stream(policy=policy, emit_bias=emit_bias, beam=beam, margin=margin, features=features)

    start()  # a run that cannot stream is refused before waiting for input
    source, target = model.codec.source.tokeniser, model.codec.target.tokeniser
    pieces = arriving(cast(BufferedReader, sys.stdin.buffer), by_character=isinstance(source, Chars))
    unknown = UnknownPieces(model.codec.source)
    writer = EventWriter(model.codec.source) if format == "jsonl" else TextWriter(target.join)
    try:
        process_lines(unknown.follow(pieces), start, writer)
    finally:
        unknown.symbols.print_summary()


class UnknownPieces:
    """Counts the symbols that training never saw, line by line."""

    def __init__(self, source: TextCodec) -> None:
        self.source, self.symbols = source, UnknownSymbols(source)

    def find(self, piece: str) -> list[str]:
        """The symbols of a piece of text that training never saw."""
        return [token for token in self.source.tokens(piece) if token not in self.source.vocab]

    def follow(self, pieces: Iterable[str]) -> Iterator[str]:
        """The same pieces, while they are counted."""
        found: list[str] = []
        try:
            for piece in pieces:
                if piece == END_OF_LINE:
                    self.symbols.add(found)
                    found = []
                else:
                    found += self.find(piece)
                yield piece
        finally:
            self.symbols.add(found)


def process_lines(pieces: Iterator[str], start: "Callable[[], Stream]", writer: "TextWriter | EventWriter") -> None:
    """Writes the output of every line token by token; Ctrl-C ends the current line."""
    stream: Stream | None = None
    try:
        for piece in pieces:
            if piece == END_OF_LINE:
                writer.end(stream.finish() if stream is not None else ())
                stream = None
            else:
                stream = stream or start()
                writer.read(piece)
                writer.write(stream.read(piece))
    finally:
        if stream is not None:
            writer.end(stream.finish())


class TextWriter:
    """Prints outputs as text, one line each, as soon as tokens are decided."""

    def __init__(self, join: Callable[[Sequence[str]], str]) -> None:
        self.join, self.before = join, list[str]()

    def read(self, piece: str) -> None:
        """Prints nothing: only outputs are shown."""

    def write(self, tokens: Sequence[str]) -> None:
        """Prints the new part of the line; how a token is joined depends on the one before it."""
        together = [*self.before, *tokens]
        print(self.join(together)[len(self.join(self.before)) :], end="", flush=True)
        self.before = together[-1:]

    def end(self, tokens: Sequence[str]) -> None:
        """Ends the line."""
        self.write(tokens)
        print(flush=True)
        self.before = []


class EventWriter:
    """One JSON object for every piece read and token written; times are in seconds.

    Positions count tokens from 1 in every line; a piece may be several, of which training never saw those listed.
    """

    def __init__(self, source: TextCodec) -> None:
        self.source = source
        self._start()

    def _start(self) -> None:
        self.positions = {"read": 0, "write": 0}
        self.started = time.perf_counter()

    def read(self, piece: str) -> None:
        """Records a piece that was read."""
        tokens = self.source.tokens(piece)
        unknown = [token for token in tokens if token not in self.source.vocab]
        self._event("read", piece, len(tokens), {"unknown": unknown})

    def write(self, tokens: Sequence[str]) -> None:
        """Writes the next tokens of an output."""
        for token in tokens:
            self._event("write", token, 1, {})

    def end(self, tokens: Sequence[str]) -> None:
        """Writes the last tokens and restarts the positions."""
        self.write(tokens)
        self._start()

    def _event(self, event: str, token: str, count: int, more: dict[str, list[str]]) -> None:
        self.positions[event] += count
        seconds = round(time.perf_counter() - self.started, 6)
        shown = {"event": event, "token": token, "position": self.positions[event], "time": seconds}
        print(json.dumps(shown | more, ensure_ascii=False), flush=True)


def arriving(file: BufferedReader, *, by_character: bool) -> Iterator[str]:
    """Characters or words as they arrive, the same as if lines were read whole, and ``END_OF_LINE`` after each line."""
    word = ""
    for character in without_blanks(characters(file)):
        if character.isspace() and word:
            yield word
            word = ""
        if by_character or character == END_OF_LINE:
            yield character
        elif not character.isspace():
            word += character
            check_length(len(word))
    if word:
        yield word


def without_blanks(characters: Iterable[str]) -> Iterator[str]:
    """The characters without a byte order mark, carriage returns at line ends, and the spaces of blank lines.

    ``held`` are characters that belong to the text only if more of the line follows.
    """
    held, is_blank, is_unfinished = "", True, False
    for index, character in enumerate(characters):
        is_unfinished = character != END_OF_LINE
        if character == END_OF_LINE:
            held, is_blank = "", True
            yield character
        elif character == "\r" or (is_blank and character.isspace()):
            held += character
            check_length(len(held))
        elif index or character != "\ufeff":
            yield from held + character
            held, is_blank = "", False
    if is_unfinished and is_blank:  # a last line of nothing but spaces, which ends with the file
        yield END_OF_LINE


def check_length(held: int) -> None:
    """Refuses to hold back more characters than a line may have."""
    if held > MAX_LINE_BYTES:
        raise InputError(f"{STANDARD_INPUT}: a token of more than {MAX_LINE_BYTES:,} characters, expected shorter ones")


def characters(file: BufferedReader) -> Iterator[str]:
    """The characters of a file as soon as they are there."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    while True:
        with named_errors(Path(STANDARD_INPUT), "text to read"):
            data = file.read1(_BYTES_AT_ONCE)
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            raise InputError(f"{STANDARD_INPUT}:{line}: not UTF-8 ({error.reason}), expected UTF-8 text") from None
        line += text.count(END_OF_LINE)
        yield from text
        if not data:
            return
