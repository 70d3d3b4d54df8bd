"""Data of the tables, cut by script from public files: ``python -m experiments.prepare --data DIR`` checks the files.

A table names what it needs below ``cut/``, as ``SET[.TAG][.COUNT].PART``:

| name | what |
|---|---|
| ``cut/de-N.train.tsv`` | lemma, form and tag of all pairs of an inflection set (``de-N``, ``de-V``, ``nl-V``) |
| ``cut/de-N.t3.train.tsv`` | lemma and form of the third of its tags, in alphabetical order |
| ``cut/de-N.GP.300.train.tsv`` | 300 pairs of the genitive plural of German nouns; ``dev`` and ``test`` have all |
| ``cut/nl-V.t3.test.tsv`` | Dutch verbs have no test set of their own: of their held-out lemmas every other one |
| ``cut/de-N.t3.forms.txt`` | at most 50,000 forms of the tag for a language model, none of a lemma in dev or test |
| ``cut/google_sentcomp.30000.train.tsv`` | 30,000 of the pairs of a set of texts |
| ``cut/google_sentcomp.30000.targets.txt`` | the targets of all its other pairs, for a language model |
| ``cut/google_sentcomp.dev.tsv`` | 1,000 of its held-out pairs |
| ``cut/google_sentcomp.test.tsv`` | 2,000 of the others, or all if there are fewer |
| ``cut/fre.800.train.tsv`` | 800 pronunciations of a larger language; ``dev`` has 100 of its dev words, ``test`` 900 |

All samples are drawn with seed 1. ``sources.toml`` names the public files, their origin and their digests.
"""

import argparse
import gzip
import random
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from antiphon.exceptions import AntiphonError
from experiments.records import digest

SOURCES = Path(__file__).parent / "sources.toml"
_FORMS = 50_000
_DEV, _TEST = 1_000, 2_000
_FEW_DEV = 100
_CASES = {"N": "nominative", "G": "genitive", "D": "dative", "A": "accusative"}
_NUMBERS = {"S": "singular", "P": "plural"}
_PRONUNCIATIONS = ("arm_e", "bul", "dut", "fre", "geo", "hun", "jpn_hira", "kor")
_TEXTS = {"google_sentcomp": "summarisation", "mixed": "zh-en", **dict.fromkeys(_PRONUNCIATIONS, "g2p2021")}
"""Sets of pairs and their folders; other sets are inflected words."""
_WITHOUT_TEST = ("nl-V",)


def cut(name: str, data: Path, folder: Path) -> Path:
    """The file of a part, written below ``folder`` if it is not there yet; ``data`` holds the complete files."""
    path = folder / name.removeprefix("cut/")
    if not path.exists():
        lines = _lines(name, data)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _lines(name: str, data: Path) -> list[str]:
    words = name.removeprefix("cut/").split(".")
    if len(words) < 3:
        raise _not_cut(name)
    stem, *given, part, _ = words
    count = int(given.pop()) if given and given[-1].isdigit() else None
    if stem in _TEXTS and not given and (part in ("dev", "test") or (part in ("train", "targets") and count)):
        held_out = _FEW_DEV if stem in _PRONUNCIATIONS else _DEV
        return _texts(data / _TEXTS[stem] / stem, part, count or 0, held_out)
    if stem not in _TEXTS and len(given) <= 1 and (part in ("train", "dev", "test") or (part == "forms" and given)):
        return _words(data, stem, given[0] if given else None, count, part, name)
    raise _not_cut(name)


def _not_cut(name: str) -> AntiphonError:
    return AntiphonError(f"{name}: not cut here, expected a name such as cut/de-N.GP.300.train.tsv")


def _texts(stem: Path, part: str, count: int, dev: int) -> list[str]:
    """Pairs of a set, without further columns; or the targets of those that are not drawn."""
    kept = "train" if part in ("train", "targets") else "dev"
    pairs = ["\t".join(row[:2]) for row in _rows(Path(f"{stem}.{kept}.tsv.gz"))]
    drawn = _sample(pairs, len(pairs))
    if part == "targets":
        return [pair.split("\t")[1] for pair in drawn[count:]]
    return {"train": drawn[:count], "dev": drawn[:dev], "test": drawn[dev : dev + _TEST]}[part]


def _words(data: Path, stem: str, tag: str | None, count: int | None, part: str, name: str) -> list[str]:
    """Pairs of an inflection set, or those of a tag; or unpaired forms of a tag."""
    if tag is None:
        return ["\t".join(row) for row in _pairs(data, stem, part)]
    wanted = _tag(data, stem, tag, name)
    if part == "forms":
        return _forms(data / f"unpaired/{stem}.forms_by_tag.tsv.gz", wanted)
    found = [f"{lemma}\t{form}" for lemma, form, given in _pairs(data, stem, part) if given == wanted]
    return _sample(found, count) if part == "train" and count else found


def _pairs(data: Path, stem: str, part: str) -> list[list[str]]:
    """The rows of a part; of a set that has no test part, its held-out lemmas are taken in turn."""
    if stem not in _WITHOUT_TEST or part == "train":
        return list(_rows(data / f"inflection/{stem}.{part}.tsv.gz"))
    rows = list(_rows(data / f"inflection/{stem}.dev.tsv.gz"))
    lemmas = set(sorted({row[0] for row in rows})[int(part == "test") :: 2])
    return [row for row in rows if row[0] in lemmas]


def _tag(data: Path, stem: str, tag: str, name: str) -> str:
    """The features of a tag, given as its number or by the first letters of case and number."""
    if tag[0] == "t" and tag[1:].isdigit():
        tags = sorted({row[2] for row in _rows(data / f"inflection/{stem}.dev.tsv.gz")})
        if 1 <= int(tag[1:]) <= len(tags):
            return tags[int(tag[1:]) - 1]
    elif len(tag) == 2 and tag[0] in _CASES and tag[1] in _NUMBERS:
        return f"case={_CASES[tag[0]]},number={_NUMBERS[tag[1]]}"
    raise _not_cut(name)


def _forms(path: Path, tag: str) -> list[str]:
    """Distinct forms of a tag."""
    forms = {form for form, given, _, is_held_out in _rows(path) if given == tag and is_held_out == "0"}
    return _sample(sorted(forms), _FORMS)


def _sample(lines: list[str], count: int) -> list[str]:
    """Lines drawn by a fixed seed; fewer ones are among those of more."""
    return random.Random(1).sample(lines, len(lines))[:count]


def _rows(path: Path) -> Iterator[list[str]]:
    if not path.is_file():
        raise AntiphonError(f"{path}: no such file; --data names the folder that has {path.parent.name}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")


def check_sources(data: Path) -> Iterator[str]:
    """A line for each public file: whether it is in the data folder, and the one that the figures are of."""
    for name, source in tomllib.loads(SOURCES.read_text(encoding="utf-8")).items():
        for file, expected in source["files"].items():
            path = data / file
            state = "missing" if not path.is_file() else "as expected" if digest(path) == expected else "another file"
            yield f"{file}: {state} ({name}: {source['origin']})"


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m experiments.prepare", description="Checks the public files.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    lines = list(check_sources(parser.parse_args().data))
    print("\n".join(lines))
    sys.exit(0 if all(": as expected (" in line for line in lines) else 1)


if __name__ == "__main__":
    main()
