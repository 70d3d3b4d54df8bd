"""Error reports on answer selection: where right sentences ended up, and which words of them were looked at."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from antiphon.report.tables import Listing, Report, Row, Section, against_line
from antiphon.terminal import count_of
from antiphon.torch_free.results import Ranked

_WORDS_SHOWN = 5
"""Words of a sentence that are shown, those looked at most."""
_LAST_RANKS = (1, 2, 3, 5, 10)
"""The last rank of each group of ranks."""
_RANKS = ("1", "2", "3", "4 to 5", "6 to 10", "more than 10")

Words = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class RankedQuestion(Row):
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
class QuestionDifference(Row):
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


def ranking_report(errors: RankingErrors, names: Sequence[str], most: int | None = None) -> Report:
    """What is written of a run, or of a run compared with another; each list has at most ``most`` questions."""
    summary = {"runs": list(names), **errors.to_dict()}
    return Report(summary, _lines(errors, names), [_ranks_section(errors)], list(_listings(errors, names, most)))


def _lines(errors: RankingErrors, names: Sequence[str]) -> list[str]:
    total, right = len(errors.questions), errors.right
    of_all = f"{right:,} of {count_of(total, 'question')} right ({100 * right / total:.2f} %), {total - right:,} wrong"
    against = [] if errors.others is None else [against_line(names, errors.counts())]
    return [f"run {names[0]}: {of_all}", *against]


def _ranks_section(errors: RankingErrors) -> Section:
    rows = [(name, count, f"{100 * count / len(errors.questions):.1f}") for name, count in errors.ranks.items()]
    return Section("rank of the best right sentence", ("rank", "questions", "%"), rows)


def _listings(errors: RankingErrors, names: Sequence[str], most: int | None) -> Iterator[Listing]:
    rows = errors.mistakes[:most]
    left = len(errors.mistakes) - len(rows)
    yield Listing("mistake", "a wrong sentence is first", _HEADER, rows, left, _OPTIONAL)
    if errors.others is not None:
        for name, found in zip(names, (errors.won, errors.lost), strict=True):
            shown, labels = found[:most], {"right_run": name}
            title, left = f"only {name} is right", len(found) - len(shown)
            yield Listing("difference", title, _DIFFERENCE_HEADER, shown, left, _OPTIONAL, labels)
