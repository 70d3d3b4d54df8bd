"""``antiphon pronounce``: how English text is pronounced. It needs neither PyTorch nor the other commands."""

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import get_args

from antiphon.exceptions import InputError
from antiphon.pronunciation.phonemes import Alphabet, write
from antiphon.pronunciation.pronouncer import ReadingOptions, Spoken, Word, shipped
from antiphon.terminal import OneSentenceParser, exit_status, print_note, printable

_EXAMPLES = """examples:
  antiphon pronounce "The knight read 12 quixotic emails."
  antiphon pronounce "naïve floofing" --alphabet ipa --nbest 3
  antiphon pronounce --line --alphabet ipa < book.txt
  antiphon pronounce "[knight](/N AY1 T/) errant, I [read](VBD) it" --jsonl"""

_MOST_KEPT = 1000
"""Words without a pronunciation that are kept to be named at the end."""


def parser() -> ArgumentParser:
    """The arguments of the command."""
    found = OneSentenceParser(
        "antiphon pronounce",
        description="Write how English text is pronounced: a row for each word with its phonemes, where they\n"
        "come from (lexicon, derived from a word in it, model, spelt, given in the text) and, of\n"
        "the model, their probability. [word](/N AY1 T/) in the text gives phonemes, [word](VBD)\n"
        "a part of speech.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    found.add_argument("text", nargs="*", help="the text; without one, every line of standard input")
    found.add_argument("--alphabet", choices=get_args(Alphabet), default="arpabet", help="default: arpabet")
    found.add_argument("--nbest", type=int, metavar="N", help="readings of a word; default: all listed, 1 of the model")
    found.add_argument(
        "--cover", type=float, metavar="P", help="readings of the model whose probabilities add up to this, such as 0.9"
    )
    found.add_argument("--align", action="store_true", help="add the letter of each phoneme; shown with --jsonl")
    form = found.add_mutually_exclusive_group()
    form.add_argument("--line", action="store_true", help="one line of phonemes for each line of text")
    form.add_argument("--jsonl", action="store_true", help="one JSON object for each line of text")
    return found


def main(arguments: Sequence[str]) -> int:
    """Pronounces text; a user error prints one sentence on standard error, and the exit status is 2."""
    return exit_status("antiphon", partial(run, parser().parse_args(arguments)))


def run(given: Namespace) -> None:
    """Prints the pronunciation of the text, or of every line of standard input."""
    say, options = shipped(), ReadingOptions(given.nbest, given.cover, given.align)
    unknown: dict[str, None] = {}
    undecoded = 0
    for number, text in enumerate(_lines(given.text)):
        try:
            found = say(text, options)
        except InputError as error:
            raise InputError(str(error) if given.text else f"standard input:{number + 1}: {error}") from None
        for line in _shown(text, found, given):
            print(line, flush=not given.text)
        if number == 0 and given.text and not any(part.words for part in found):
            print_note("no word to pronounce in the text, expected words, numbers or signs such as %")
        if len(unknown) < _MOST_KEPT:
            unknown |= dict.fromkeys(word.text for part in found for word in part.words if not word.readings)
        undecoded = undecoded or (number + 1 if not given.text and "\ufffd" in text else 0)
    if undecoded:
        print_note(f"standard input:{undecoded}: bytes that are not UTF-8 were skipped, expected UTF-8 text")
    if unknown:
        print_note(f"no pronunciation for {_some(list(unknown))}, expected Latin letters")


def _lines(text: Sequence[str]) -> Iterator[str]:
    """The text, or the lines of standard input."""
    if text:
        yield from " ".join(text).split("\n")
        return
    if sys.stdin is None:
        raise InputError("standard input: closed, expected text to read")
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    for line in sys.stdin:
        yield line.rstrip("\r\n")


def _shown(text: str, found: Sequence[Spoken], given: Namespace) -> Iterable[str]:
    """What is printed for a line of text."""
    if given.jsonl:
        parts = [part.to_dict(given.alphabet) for part in found]
        return [json.dumps({"text": text, "parts": parts}, ensure_ascii=False)]
    if given.line:
        return [printable(line_of(found, given.alphabet))]
    return _rows([(part, word) for part in found for word in part.words], given.alphabet)


def line_of(found: Sequence[Spoken], alphabet: Alphabet) -> str:
    """The phonemes of a line: ARPAbet with a bar between words, IPA as text with its punctuation."""
    if alphabet == "arpabet":
        return " | ".join(write(word.phonemes) for part in found for word in part.words if word.readings)
    shown = ""
    for before, part in zip([None, *found], found, strict=False):
        gap = " " if before is not None and before.end < part.start else ""
        shown += gap + (" ".join(write(word.phonemes, "ipa") for word in part.words) if part.words else part.text)
    return shown


def _rows(words: Sequence[tuple[Spoken, Word]], alphabet: Alphabet) -> list[str]:
    """A row for each word, in columns."""
    cells = [
        (
            word.text,
            write(word.phonemes, alphabet),
            word.origin,
            _probability(word.probability),
            _others(word, alphabet),
        )
        for _, word in words
    ]
    widths = [max((len(row[column]) for row in cells), default=0) for column in range(4)]
    return [
        printable("  ".join(f"{cell:{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip())
        for row in cells
    ]


def _others(word: Word, alphabet: Alphabet) -> str:
    """The other readings of a word."""
    others = (
        f"{write(each.phonemes, alphabet)} {_probability(each.probability)}".rstrip() for each in word.readings[1:]
    )
    return f"or {' | '.join(others)}" if len(word.readings) > 1 else ""


def _probability(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _some(words: Sequence[str]) -> str:
    """At most three words, shortened."""
    shown = ", ".join(repr(word if len(word) <= 20 else f"{word[:20]}...") for word in words[:3])
    return shown if len(words) <= 3 else f"{shown} and {len(words) - 3} more"
