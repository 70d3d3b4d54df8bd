"""Rating sheets: pairs of outputs for human judges, who do not see which run wrote which, and the tally of sheets.

A sheet is a TSV file. Its first line names the runs, the seed and a digest of all questions; its second line names the
columns. Whether ``A`` is of the first run depends on the question, the seed and the digest, so no key is needed to
read a sheet back, and a sheet in which more than the column ``better`` has changed is refused.

Thesis: section 5.4.1, Table 5.3.
"""

import csv
import hashlib
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.exceptions import InputError
from antiphon.terminal import count_of, one_line
from antiphon.torch_free.readers import read_lines

_MARK = "# ratings"
_COLUMNS = ("question", "source", "A", "B", "better")
CHOICES = ("A", "B", "good", "bad")
"""What a judge writes: which output is better, or that both are good or bad."""
FIRST, SECOND = "first", "second"
"""The outcome of a question: its better run, ``good`` or ``bad``."""
_OUTCOMES = (FIRST, SECOND, "good", "bad")


class RatedPair(NamedTuple):
    """An input with the outputs of two runs that differ."""

    source: str
    first: str
    second: str


@dataclass(frozen=True)
class RatingSheet:
    """Pairs of outputs of two runs, in the order of the questions of a sheet."""

    runs: tuple[str, str]
    pairs: tuple[RatedPair, ...]
    seed: int

    @classmethod
    def draw(cls, runs: tuple[str, str], pairs: Iterable[RatedPair], questions: int, seed: int) -> "RatingSheet":
        """At most ``questions`` of the distinct pairs, in random order."""
        distinct = list(dict.fromkeys(pairs))
        return cls(runs, tuple(random.Random(seed).sample(distinct, min(questions, len(distinct)))), seed)

    @property
    def digest(self) -> str:
        """Tells sheets apart, and whether one is still as it was written."""
        known = json.dumps([self.runs, self.pairs, self.seed])
        return "sha" + hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def text(self) -> str:
        """The sheet as a judge gets it."""
        digest, file = self.digest, StringIO()
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow((_MARK, *self.runs, self.seed, digest))
        writer.writerow(_COLUMNS)
        for number, pair in enumerate(self.pairs, 1):
            outputs = pair[:0:-1] if _is_swapped(number, self.seed, digest) else pair[1:]
            writer.writerow((number, pair.source, *outputs, ""))
        return file.getvalue()


def _is_swapped(number: int, seed: int, digest: str) -> bool:
    """Whether ``A`` is the output of the second run."""
    return bool(hashlib.sha256(f"{seed} {digest} {number}".encode()).digest()[0] & 1)


@dataclass(frozen=True)
class JudgedSheet:
    """A sheet that came back, with the outcome of each question, None where the judge gave none."""

    name: str
    sheet: RatingSheet
    outcomes: tuple[str | None, ...]

    @classmethod
    def read(cls, path: Path) -> "JudgedSheet":
        """Reads a sheet, with the choices of a judge in it."""
        rows = _read_rows(path)
        runs, seed, digest = _parse_head(rows, path)
        lines = [(number, row) for number, row in enumerate(rows[2:], 3) if any(row)]
        pairs, outcomes = [], []
        for question, (line, row) in enumerate(lines, 1):
            swapped = _is_swapped(question, seed, digest)
            source, a, b, choice = _parse_row(row, f"{path}:{line}")
            pairs.append(RatedPair(source, b, a) if swapped else RatedPair(source, a, b))
            outcomes.append(_outcome(choice, swapped))
        sheet = RatingSheet(runs, tuple(pairs), seed)
        if sheet.digest != digest:
            raise InputError(f"{path}: other questions or outputs than were written, expected changes of better alone")
        if not any(outcomes):
            raise InputError(f"{path}: nothing in the column better, expected {', '.join(CHOICES)} in some lines")
        return cls(str(path), sheet, tuple(outcomes))


def _read_rows(path: Path) -> list[list[str]]:
    try:
        return list(csv.reader(read_lines(path), delimiter="\t"))
    except csv.Error as error:
        raise InputError(f"{path}: no rating sheet ({error}), expected a file that compare --sheet wrote") from None


def _parse_head(rows: Sequence[Sequence[str]], path: Path) -> tuple[tuple[str, str], int, str]:
    """The runs, the seed and the digest of a sheet."""
    match [row[:5] for row in rows[:2]]:
        case [[mark, first, second, seed, digest], columns] if mark == _MARK and tuple(columns) == _COLUMNS:
            if seed.isdecimal() and len(seed) < 20:
                return (first, second), int(seed), digest
    raise InputError(f"{path}:1: no rating sheet, expected a file that compare --sheet wrote")


def _parse_row(row: Sequence[str], where: str) -> tuple[str, str, str, str]:
    """Source, both outputs, and the choice as it is in ``CHOICES``, or empty."""
    if len(row) < 4 or any(row[5:]):
        raise InputError(f"{where}: {count_of(len(row), 'column')}, expected {len(_COLUMNS)}")
    given = row[4].strip() if len(row) > 4 else ""
    choice = next((each for each in CHOICES if each.lower() == given.lower()), "")
    if given and not choice:
        raise InputError(f"{where}: better is {one_line(given)}, expected {', '.join(CHOICES)} or nothing")
    return row[1], row[2], row[3], choice


def _outcome(choice: str, swapped: bool) -> str | None:
    if choice in ("A", "B"):
        return FIRST if (choice == "A") is not swapped else SECOND
    return choice or None


@dataclass(frozen=True)
class Tally:
    """The choices of all judges, as outcomes by question.

    ``questions`` has for each question the outcome that each of its judges gave.
    """

    runs: tuple[str, str]
    by_judge: dict[str, Counter[str]]
    questions: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, sheets: Sequence[JudgedSheet]) -> "Tally":
        """The tally of sheets on the same two runs; judges may have had different questions."""
        runs = sheets[0].sheet.runs
        judged: dict[RatedPair, list[str]] = {}
        for each in sheets:
            if each.sheet.runs != runs:
                raise InputError(
                    f"{each.name}: about {' and '.join(each.sheet.runs)}, expected {' and '.join(runs)} as in "
                    f"{sheets[0].name}"
                )
            for pair, outcome in zip(each.sheet.pairs, each.outcomes, strict=True):
                judged.setdefault(pair, []).extend([outcome] if outcome else [])
        by_judge = {each.name: Counter(outcome for outcome in each.outcomes if outcome) for each in sheets}
        return cls(runs, by_judge, tuple(tuple(outcomes) for outcomes in judged.values() if outcomes))

    @property
    def preferences(self) -> dict[str, int]:
        """The number of questions by the outcome that most of their judges gave; ``split`` where there is none."""
        counted = Counter(map(_plurality, self.questions))
        return {name: counted[name] for name in (*_OUTCOMES, "split")}

    @property
    def p_value(self) -> float:
        """Of a two-sided sign test on the questions in which one run is better."""
        return sign_test(self.preferences[FIRST], self.preferences[SECOND])

    @property
    def agreement(self) -> float | None:
        """The fraction of pairs of judges who agree about a question that both judged; None without such pairs."""
        pairs = [one == other for outcomes in self.questions for one, other in combinations(outcomes, 2)]
        return sum(pairs) / len(pairs) if pairs else None

    @property
    def kappa(self) -> float | None:
        """The agreement beyond that of judges who choose at random, as often as all of them chose."""
        counts = Counter(outcome for outcomes in self.questions if len(outcomes) > 1 for outcome in outcomes)
        by_chance = sum((count / counts.total()) ** 2 for count in counts.values())
        return None if self.agreement is None or by_chance == 1 else (self.agreement - by_chance) / (1 - by_chance)

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        return {
            "runs": list(self.runs),
            "questions": len(self.questions),
            "preferences": self.preferences,
            "judges": {name: {outcome: counts[outcome] for outcome in _OUTCOMES} for name, counts in self._judges()},
            "agreement": self.agreement,
            "kappa": self.kappa,
            "p_value": self.p_value,
        }

    def rows(self) -> list[tuple[str, ...]]:
        """A table: the questions by outcome, for each judge and for all."""
        header = ("", f"{self.runs[0]} better", f"{self.runs[1]} better", "both good", "both bad", "split")
        judges = [(name, *(str(counts[outcome]) for outcome in _OUTCOMES), "") for name, counts in self._judges()]
        return [header, *judges, ("most judges", *map(str, self.preferences.values()))]

    def notes(self) -> Iterator[str]:
        """The agreement of the judges, and the sign test."""
        if self.agreement is not None:
            kappa = "" if self.kappa is None else f", kappa {self.kappa:.2f}"
            yield f"agreement: {100 * self.agreement:.1f} % of the pairs of judges of a question{kappa}"
        first, second = self.preferences[FIRST], self.preferences[SECOND]
        yield f"sign test, two-sided, {first} against {second} questions: p = {self.p_value:.3g}"

    def _judges(self) -> Collection[tuple[str, Counter[str]]]:
        return self.by_judge.items()


def _plurality(outcomes: Sequence[str]) -> str:
    """The outcome with most votes and at least half of them, else ``split``."""
    (best, votes), *others = Counter(outcomes).most_common()
    is_alone = not others or others[0][1] < votes
    return best if is_alone and 2 * votes >= len(outcomes) else "split"


def sign_test(first: int, second: int) -> float:
    """The probability that a fair coin falls at least as unevenly, on either side."""
    trials = first + second
    as_uneven = 2 * sum(comb(trials, count) for count in range(min(first, second) + 1))
    return min(1.0, as_uneven / (1 << trials))
