"""Error reports on answer selection: where right sentences ended up, and which words of them were looked at."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from antiphon.report.error_report import ErrorFormat
from antiphon.report.tables import (
    Cell,
    Section,
    as_json_lines,
    as_markdown,
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
class QuestionDifference(RankedQuestion):
    """A question that only one of two models gets right, as this one ranks it, and what the other does."""

    other_rank: int
    other_first: str
    other_first_words: Words

    @classmethod
    def between(cls, this: RankedQuestion, other: RankedQuestion) -> "QuestionDifference":
        """The same question as two models rank it."""
        return cls(**vars(this), other_rank=other.rank, other_first=other.first, other_first_words=other.first_words)


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
        return self._where(lambda this, other: this.is_right and not other.is_right)

    @property
    def lost(self) -> list[QuestionDifference]:
        """Questions that only the other model gets right."""
        return self._where(lambda this, other: other.is_right and not this.is_right)

    @property
    def neither(self) -> list[QuestionDifference]:
        """Questions that both models get wrong."""
        return self._where(lambda this, other: not this.is_right and not other.is_right)

    def counts(self) -> dict[str, int]:
        """How many questions both models get right, only this one, only the other, or neither."""
        won, lost, neither = len(self.won), len(self.lost), len(self.neither)
        both_right = len(self.questions) - won - lost - neither
        return {"both_right": both_right, "only_this": won, "only_other": lost, "neither": neither}

    def to_dict(self) -> dict[str, Any]:
        """All but the questions themselves, as a JSON-serialisable dictionary."""
        shown: dict[str, Any] = {"questions": len(self.questions), "right": self.right, "ranks": self.ranks}
        return shown if self.others is None else shown | {"against": self.counts()}

    def _where(self, holds: Callable[[RankedQuestion, RankedQuestion], bool]) -> list[QuestionDifference]:
        both = zip(self.questions, self.others or (), strict=self.others is not None)
        return [QuestionDifference.between(this, other) for this, other in both if holds(this, other)]


_HEADER = (
    *("question_id", "question", "rank", "candidates", "right", "right_probability", "right_words"),
    *("first", "first_probability", "first_words"),
)
_DIFFERENCE_HEADER = (
    *("question_id", "question", "candidates", "rank", "other_rank", "right", "right_words"),
    *("first", "first_words", "other_first", "other_first_words"),
)
_OPTIONAL = ("right_probability", "first_probability", "other_first_words", "first_words", "candidates", "question_id")
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
    return as_markdown(lines, sections) if format == "markdown" else as_text(lines, sections, width)


def _lists(errors: RankingErrors, names: Sequence[str]) -> list[tuple[str, Sequence[RankedQuestion]]]:
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


def _section(errors: RankingErrors, name: str, found: Sequence[RankedQuestion], most: int | None) -> Section:
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
            for each in found[:most]:
                yield {"type": "difference", "right_run": name, **asdict(each)}


def _cells(row: RankedQuestion, header: Sequence[str]) -> list[Cell]:
    values = (getattr(row, name) for name in header)
    return [" ".join(word for word, _ in value) if isinstance(value, tuple) else value for value in values]
