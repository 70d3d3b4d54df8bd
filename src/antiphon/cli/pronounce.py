"""``antiphon pronounce`` among the other verbs; ``antiphon.pronunciation.command`` does the work, without typer too."""

from argparse import Namespace
from typing import Annotated, Literal

import typer

from antiphon.cli.predict import NBest

Alphabet = Literal["arpabet", "ipa"]
"""The alphabet of phonemes."""
Text = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]", help="The text; without one, every line of standard input.", show_default=False),
]
AlphabetOption = Annotated[Alphabet, typer.Option(help="How phonemes are written.")]
Cover = Annotated[
    float | None,
    typer.Option(metavar="P", help="Readings of the model whose probabilities add up to this, such as 0.9."),
]
Align = Annotated[bool, typer.Option("--align", help="Add the letter of each phoneme; shown with --jsonl.")]
Line = Annotated[bool, typer.Option("--line", help="Write one line of phonemes for each line of text.")]
Jsonl = Annotated[bool, typer.Option("--jsonl", help="Write one JSON object for each line of text.")]


def pronounce(
    text: Text = None,
    alphabet: AlphabetOption = "arpabet",
    nbest: NBest = None,
    cover: Cover = None,
    align: Align = False,
    line: Line = False,
    jsonl: Jsonl = False,
) -> None:
    """Write how English text is pronounced.

    Each word gets a row with its phonemes, where they come from (lexicon, derived
    from a word in it, model, spelt, given in the text), the probability if the model
    wrote them, and its other readings. [word](/N AY1 T/) in the text gives phonemes,
    [word](VBD) a part of speech.

    Examples:
      antiphon pronounce "The knight read 12 quixotic emails."
      antiphon pronounce "naïve floofing" --alphabet ipa --nbest 3
      antiphon pronounce --line --alphabet ipa < book.txt
      antiphon pronounce "I [read](VBD) it" --jsonl
    """
    from antiphon.pronunciation.command import run

    given = Namespace(text=text or [], alphabet=alphabet, nbest=nbest, cover=cover, align=align, line=line, jsonl=jsonl)
    run(given)
