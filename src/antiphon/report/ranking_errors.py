"""Error reports on answer selection: where right sentences ended up, and which words of them were looked at."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from antiphon.report.error_report import ErrorFormat
from antiphon.report.tables import (
    Cell,
    Section,
    as_json_lines,
    as_text,
    as_tsv,
    left_note,
    without_empty_columns,
)
from antiphon.terminal import count_of
from antiphon.torch_free.results import Ranked

_WORDS_SHOWN = 5
"""Words of a sentence that are shown, those looked at most."""
_LAST_RANKS = (1, 2, 3, 5, 10)
"""The last rank of each group of ranks."""
_RANKS = ("1", "2", "3", "4 to 5", "6 to 10", "more than 10")

Words = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class RankedQuestion:
    """A question with both kinds of candidates, as a model ranks them: ``rank`` is that of the best right sentence.

    ``first`` is the sentence ranked first. Words are those with the largest weights, where the model has any.
    """

    question_id: str
    question: str
    rank: int
    candidates: int
    right: str
    right_probability: float | None
    right_words: Words
    first: str
    first_probability: float | None
    first_words: Words

    @classmethod
    def of(cls, question_id: str, question: str, ranked: Sequence[Ranked], labels: Sequence[int]) -> "RankedQuestion":
        """The question, given its candidates in their order, and the label of each."""
        rank = labels.index(1)
        of_both = (part for each in (ranked[rank], ranked[0]) for part in _shown(each))
        return cls(question_id, question, rank + 1, len(ranked), *of_both)

    @property
    def is_right(self) -> bool:
        """Whether a right sentence is first."""
        return self.rank == 1


def _shown(ranked: Ranked) -> tuple[Any, Any, Any]:
    words = sorted(ranked.attention, key=lambda each: -each[1])[:_WORDS_SHOWN]
    return ranked.sentence, ranked.probability, tuple((word, round(weight, 4)) for word, weight in words)


@dataclass(frozen=True)
class QuestionDifference:
    """A question that only one of two models gets right: what the better and the worse one have first.

    ``rank`` is that of the best right sentence of this model, ``other_rank`` that of the other.
    """

    question_id: str
    question: str
    candidates: int
    rank: int
    other_rank: int
    right: str
    right_words: Words
    wrong: str
    wrong_words: Words

    @classmethod
    def between(cls, this: RankedQuestion, other: RankedQuestion) -> "QuestionDifference":
        """The same question as two models rank it."""
        better, worse = (this, other) if this.is_right else (other, this)
        sentences = better.first, better.first_words, worse.first, worse.first_words
        return cls(this.question_id, this.question, this.candidates, this.rank, other.rank, *sentences)


@dataclass(frozen=True)
class RankingErrors:
    """What a model gets wrong in questions with right and wrong candidates, alone or beside another model.

    A question is right if a right sentence is first. ``others`` are the same questions as the other model ranks them.
    """

    questions: Sequence[RankedQuestion]
    others: Sequence[RankedQuestion] | None = None

    @property
    def right(self) -> int:
        """The number of questions that are right."""
        return sum(each.is_right for each in self.questions)

    @property
    def mistakes(self) -> list[RankedQuestion]:
        """The other questions."""
        return [each for each in self.questions if not each.is_right]

    @property
    def ranks(self) -> dict[str, int]:
        """How many questions have their best right sentence at which ranks."""
        counted = Counter(bisect_left(_LAST_RANKS, each.rank) for each in self.questions)
        return {name: counted[index] for index, name in enumerate(_RANKS)}

    @property
    def won(self) -> list[QuestionDifference]:
        """Questions that only this model gets right."""
        return [QuestionDifference.between(*both) for both in self._both() if both[0].is_right > both[1].is_right]

    @property
    def lost(self) -> list[QuestionDifference]:
        """Questions that only the other model gets right."""
        return [QuestionDifference.between(*both) for both in self._both() if both[0].is_right < both[1].is_right]

    def counts(self) -> dict[str, int]:
        """How many questions both models get right, only this one, only the other, or neither."""
        won, lost = len(self.won), len(self.lost)
        both_right = self.right - won
        neither = len(self.questions) - both_right - won - lost
        return {"both_right": both_right, "only_this": won, "only_other": lost, "neither": neither}

    def to_dict(self) -> dict[str, Any]:
        """All but the questions themselves, as a JSON-serialisable dictionary."""
        shown: dict[str, Any] = {"questions": len(self.questions), "right": self.right, "ranks": self.ranks}
        return shown if self.others is None else shown | {"against": self.counts()}

    def _both(self) -> Iterator[tuple[RankedQuestion, RankedQuestion]]:
        """Each question as both models rank it."""
        return iter(()) if self.others is None else zip(self.questions, self.others, strict=True)


Listed = RankedQuestion | QuestionDifference

_HEADER = (
    *("question_id", "question", "rank", "candidates", "right", "right_probability", "right_words"),
    *("first", "first_probability", "first_words"),
)
_DIFFERENCE_HEADER = (
    *("question_id", "question", "candidates", "rank", "other_rank", "right", "right_words"),
    *("wrong", "wrong_words"),
)
_OPTIONAL = ("right_probability", "first_probability", "candidates", "question_id")
"""Columns that are left out of tables in a narrow terminal, in this order."""


def write_ranking_errors(
    errors: RankingErrors, format: ErrorFormat, names: Sequence[str], most: int | None = None, width: int | None = None
) -> str:
    """The report on a run, or on a run compared with another, in a format; each list has at most ``most`` questions.

    TSV holds one table: the questions that one of two runs gets right, or those that the run gets wrong.
    """
    if format == "jsonl":
        return as_json_lines(_objects(errors, names, most))
    lists = _lists(errors, names)
    if format == "tsv":
        header, first = (_HEADER, ()) if errors.others is None else (_DIFFERENCE_HEADER, ("right_run",))
        rows = [[*([name] if first else []), *_cells(each, header)] for name, found in lists for each in found[:most]]
        return as_tsv((*first, *header), rows)
    lines = list(_lines(errors, names))
    sections = [_ranks_section(errors), *(_section(errors, name, found, most) for name, found in lists if found)]
    return as_text(lines, sections, width)


def _lists(errors: RankingErrors, names: Sequence[str]) -> list[tuple[str, Sequence[Listed]]]:
    """The lists of questions, by the run that gets them right; without another run, those that are wrong."""
    if errors.others is None:
        return [("", errors.mistakes)]
    return [(names[0], errors.won), (names[1], errors.lost)]


def _lines(errors: RankingErrors, names: Sequence[str]) -> Iterator[str]:
    total = len(errors.questions)
    yield (
        f"run {names[0]}: {errors.right:,} of {count_of(total, 'question')} right "
        f"({100 * errors.right / total:.2f} %), {total - errors.right:,} wrong"
    )
    if errors.others is not None:
        counts = errors.counts()
        yield (
            f"against {names[1]}: both right {counts['both_right']:,}, only {names[0]} {counts['only_this']:,}, "
            f"only {names[1]} {counts['only_other']:,}, neither {counts['neither']:,}"
        )


def _ranks_section(errors: RankingErrors) -> Section:
    rows = [(name, count, f"{100 * count / len(errors.questions):.1f}") for name, count in errors.ranks.items()]
    return Section("rank of the best right sentence", ("rank", "questions", "%"), rows)


def _section(errors: RankingErrors, name: str, found: Sequence[Listed], most: int | None) -> Section:
    header = _HEADER if errors.others is None else _DIFFERENCE_HEADER
    title = f"only {name} is right" if name else "a wrong sentence is first"
    rows = [_cells(each, header) for each in found[:most]]
    return without_empty_columns(Section(title, header, rows, left_note(len(found) - len(rows)), _OPTIONAL))


def _objects(errors: RankingErrors, names: Sequence[str], most: int | None) -> Iterator[dict[str, Any]]:
    yield {"type": "summary", "runs": list(names), **errors.to_dict()}
    for each in errors.mistakes[:most]:
        yield {"type": "mistake", **asdict(each)}
    if errors.others is not None:
        for name, found in _lists(errors, names):
            yield from ({"type": "difference", "right_run": name, **asdict(each)} for each in found[:most])


def _cells(row: Listed, header: Sequence[str]) -> list[Cell]:
    values = (getattr(row, name) for name in header)
    return [" ".join(word for word, _ in value) if isinstance(value, tuple) else value for value in values]
