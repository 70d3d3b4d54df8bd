"""Parts of inflection tables, cut by script: a few pairs of one tag, and unpaired forms with the same tag.

``cut/de-N.GP.300.train.tsv`` are 300 training pairs of the genitive plural of ``inflection/de-N.train.tsv.gz``, those
of 100 lemmas among those of 300; ``dev`` and ``test`` have all pairs of the tag. ``cut/de-N.GP.300.forms.txt`` are
forms of ``unpaired/de-N.forms_by_tag.tsv.gz``, without those of lemmas in dev or test, for a language model.
"""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from antiphon.exceptions import AntiphonError

_FORMS = 50_000
_CASES = {"N": "nominative", "G": "genitive", "D": "dative", "A": "accusative"}
_NUMBERS = {"S": "singular", "P": "plural"}
_PARTS = {"train.tsv", "dev.tsv", "test.tsv", "forms.txt"}


def cut(name: str, data: Path, folder: Path) -> Path:
    """The file of a part, written below ``folder`` if it is not there yet; ``data`` holds the complete files."""
    path = folder / name.removeprefix("cut/")
    if not path.exists():
        lines = _lines(name, data)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _lines(name: str, data: Path) -> list[str]:
    try:
        table, tag, pairs, part = name.removeprefix("cut/").split(".", 3)
        wanted, count = f"case={_CASES[tag[0]]},number={_NUMBERS[tag[1:]]}", int(pairs)
    except (ValueError, KeyError, IndexError):
        part = ""
    if part not in _PARTS:
        raise AntiphonError(f"{name}: not cut here, expected a name such as cut/de-N.GP.300.train.tsv")
    if part == "forms.txt":
        return _forms(data / f"unpaired/{table}.forms_by_tag.tsv.gz", wanted)
    rows = _rows(data / f"inflection/{table}.{part}.gz")
    found = [f"{lemma}\t{form}" for lemma, form, given in rows if given == wanted]
    return _sample(found, count) if part == "train.tsv" else found


def _forms(path: Path, tag: str) -> list[str]:
    """Distinct forms of a tag."""
    forms = {form for form, given, _, is_held_out in _rows(path) if given == tag and is_held_out == "0"}
    return _sample(sorted(forms), _FORMS)


def _sample(lines: list[str], count: int) -> list[str]:
    """Lines drawn by a fixed seed; fewer ones are among those of more."""
    return random.Random(1).sample(lines, len(lines))[:count]


def _rows(path: Path) -> Iterator[list[str]]:
    if not path.is_file():
        raise AntiphonError(f"{path}: no such file; --data names the folder that has inflection and unpaired")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")
