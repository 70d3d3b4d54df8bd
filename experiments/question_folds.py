"""Five folds of the training questions of WikiQA: a run learns from four, and is scored on the fifth.

``folds/2.train.tsv`` are the questions of ``wikiqa/train.tsv.gz`` whose number is not 2 modulo 5, ``folds/2.score.tsv``
those whose number is. ``folds/dev.train.tsv`` has all of them, and ``folds/dev.score.tsv`` the dev questions.
"""

import gzip
import re
from pathlib import Path

from antiphon.exceptions import AntiphonError

FOLDS = 5


def fold(name: str, data: Path, folder: Path) -> Path:
    """The file of a part, written below ``folder`` if it is not there yet; ``data`` holds the complete files."""
    path = folder / name.removeprefix("folds/")
    if not path.exists():
        lines = _lines(name, data)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
    return path


def _lines(name: str, data: Path) -> list[str]:
    named = re.fullmatch(rf"folds/(dev|[0-{FOLDS - 1}])\.(train|score)\.tsv", name)
    if named is None:
        raise AntiphonError(f"{name}: no such fold, expected a name such as folds/0.train.tsv or folds/dev.score.tsv")
    held_out, part = named.groups()
    if held_out == "dev":
        return _rows(data / f"wikiqa/{'dev' if part == 'score' else 'train'}.tsv.gz")
    header, *rows = _rows(data / "wikiqa/train.tsv.gz")
    return [header, *(row for row in rows if (_number(row) % FOLDS == int(held_out)) is (part == "score"))]


def _number(row: str) -> int:
    """The number in the id of a question, such as ``T12``."""
    return int(row.split("\t", 1)[0][1:])


def _rows(path: Path) -> list[str]:
    if not path.is_file():
        raise AntiphonError(f"{path}: no such file; --data names the folder that has {path.parent.name}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.readlines()
