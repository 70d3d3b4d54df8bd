"""Questions with candidate answers: files of published formats, and which of them are used.

* a TSV whose first line names its columns: ``question_id question candidate_id sentence label``, or WikiQA's
  ``QuestionID Question DocumentID DocumentTitle SentenceID Sentence Label``; the label is optional if it is not
  needed
* ``<QApairs>`` files, whose first line of each block is a sentence with tabs between its words
* TREC qrels, ``question 0 candidate label``, which judge candidates read from elsewhere
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from antiphon.exceptions import InputError, RecipeError
from antiphon.terminal import Say, count_of
from antiphon.torch_free.readers import read_lines
from antiphon.torch_free.results import Ranked

if TYPE_CHECKING:
    from antiphon.recipe.sections import DataSection

QuestionSet = Literal["all", "answerable", "mixed"]
"""Every question, those with a right candidate, or those with both a right and a wrong one."""
Judgements = dict[str, dict[str, int]]
"""The label of every candidate of every question, by their ids."""
_EXPECTED_HEADER = "expected a first line of question_id, question, candidate_id, sentence and, if known, label"


class Answer(NamedTuple):
    """A candidate: a sentence, and whether it answers the question (1), does not (0), or is not judged (None)."""

    id: str
    text: str
    label: int | None = None


class Question(NamedTuple):
    """A question and its candidates, at least one."""

    id: str
    text: str
    answers: tuple[Answer, ...]


class _Columns(NamedTuple):
    """Where the columns of a table are; ``label`` is None if there is none."""

    question_id: int
    question: int
    answer_id: int
    sentence: int
    label: int | None


_COLUMNS = {
    ("question_id", "question", "candidate_id", "sentence", "label"): _Columns(0, 1, 2, 3, 4),
    ("question_id", "question", "candidate_id", "sentence"): _Columns(0, 1, 2, 3, None),
    ("questionid", "question", "documentid", "documenttitle", "sentenceid", "sentence", "label"): _Columns(
        0, 1, 4, 5, 6
    ),
    ("questionid", "question", "documentid", "documenttitle", "sentenceid", "sentence"): _Columns(0, 1, 4, 5, None),
}
"""The columns of each known first line, in lower case."""


class _Row(NamedTuple):
    """One candidate as read from a file; an empty ``answer_id`` marks a question that has none."""

    where: str
    question_id: str
    question: str
    answer_id: str
    sentence: str
    label: int | None


def read_questions(path: Path, say: Callable[[str], None], *, labelled: bool = False) -> list[Question]:
    """All questions of a file in their order; with ``labelled``, a file without labels is refused.

    Questions without candidates, which the TREC files have, are skipped; ``say`` gets a message with their number.
    """
    return parse_questions(read_lines(path), str(path), say, labelled=labelled)


def parse_questions(
    lines: Iterator[str], name: str, say: Callable[[str], None], *, labelled: bool = False
) -> list[Question]:
    """The questions in some lines; ``name`` is the name of the file in messages."""
    first = next(lines, "")
    if first.lstrip().startswith("<QApairs"):
        rows = _read_qa_pairs(name, chain([first], lines))
    else:
        rows = _read_table(name, first, lines)
    found = _collect(rows)
    questions = [question for question in found if question.answers]
    if len(questions) < len(found):
        say(f"{name}: {count_of(len(found) - len(questions), 'question')} without candidates left out")
    if not questions:
        raise InputError(f"{name}: no questions, {_EXPECTED_HEADER}")
    if labelled and any(answer.label is None for question in questions for answer in question.answers):
        raise InputError(f"{name}: no labels, expected a column of 0 and 1")
    return questions


def select_questions(questions: Iterable[Question], which: QuestionSet) -> list[Question]:
    """The questions of a set, by their own labels."""
    return [question for question in questions if which == "all" or _belongs(question, which)]


def in_trec_order(question: Question, ranked: Sequence[Ranked]) -> list[Ranked]:
    """The candidates, best first; equal scores by id descending, as in a TREC run and in the metrics."""
    by_id = sorted(ranked, key=lambda each: question.answers[each.index].id, reverse=True)
    return sorted(by_id, key=lambda each: -each.score)


def judgements_of(questions: Iterable[Question]) -> Judgements:
    """The labels of the questions; a candidate without one counts as wrong."""
    return {question.id: {answer.id: answer.label or 0 for answer in question.answers} for question in questions}


def read_qrels(path: Path) -> Judgements:
    """The judgements of a TREC qrels file."""
    judged: Judgements = {}
    for line_number, line in enumerate(read_lines(path), 1):
        columns = line.split()
        where = f"{path}:{line_number}"
        if not columns:
            continue
        if len(columns) != 4:
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected question 0 candidate label")
        question, _, answer, label = columns
        if answer in judged.setdefault(question, {}):
            raise InputError(f"{where}: candidate {answer} of question {question} appears twice, expected it once")
        judged[question][answer] = _parse_label(label, where)
    if not judged:
        raise InputError(f"{path}: no judgements, expected lines of question 0 candidate label")
    return judged


def check_judgements(judged: Mapping[str, Mapping[str, int]], questions: Sequence[Question], path: Path) -> None:
    """Refuses judgements that are about none of these questions."""
    if not any(question.id in judged for question in questions):
        raise InputError(f"{path}: judges none of the {len(questions)} questions, expected the same question ids")


def _belongs(question: Question, which: QuestionSet) -> bool:
    labels = {answer.label or 0 for answer in question.answers}
    return 1 in labels and (which == "answerable" or 0 in labels)


def _read_table(name: str, header: str, lines: Iterator[str]) -> Iterator[_Row]:
    names = tuple(column.strip().lower() for column in header.split("\t"))
    at = _COLUMNS.get(names)
    if at is None:
        raise InputError(f"{name}:1: {header[:60]!r}, {_EXPECTED_HEADER}")
    for line_number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        columns, where = [column.strip() for column in line.split("\t")], f"{name}:{line_number}"
        if len(columns) != len(names):
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected {len(names)} as in the first line")
        label = None if at.label is None else _parse_label(columns[at.label], where)
        _check_id(columns[at.answer_id], "candidate", where)
        question = columns[at.question_id], columns[at.question]
        yield _Row(where, *question, columns[at.answer_id], columns[at.sentence], label)


def _read_qa_pairs(name: str, lines: Iterator[str]) -> Iterator[_Row]:
    """The candidates of ``<QApairs>`` blocks, numbered from 0 within each question."""
    question_id, question, answers, block = "", "", 0, ""
    for line_number, line in enumerate(lines, 1):
        where, text = f"{name}:{line_number}", line.strip()
        if opened := re.fullmatch(r"""<QApairs id=['"](.*)['"]>""", text):
            question_id, question, answers = opened[1], "", 0
        elif text in ("<question>", "<positive>", "<negative>"):
            block = text.strip("<>")
        elif text == "</QApairs>":
            if not answers:
                yield _Row(where, question_id, question, "", "", None)
        elif block:
            words = " ".join(line.split("\t"))
            if block == "question":
                question = words
            else:
                yield _Row(where, question_id, question, f"{question_id}-{answers}", words, int(block == "positive"))
                answers += 1
            block = ""


def _collect(rows: Iterable[_Row]) -> list[Question]:
    texts: dict[str, str] = {}
    answers: dict[str, dict[str, Answer]] = {}
    for row in rows:
        _check_id(row.question_id, "question", row.where)
        if texts.setdefault(row.question_id, row.question) != row.question:
            raise InputError(
                f"{row.where}: question {row.question_id} had another text before, expected one for each id"
            )
        known = answers.setdefault(row.question_id, {})
        if not row.answer_id:
            continue
        if row.answer_id in known:
            raise InputError(
                f"{row.where}: candidate {row.answer_id} of question {row.question_id} appears twice, expected it once"
            )
        known[row.answer_id] = Answer(row.answer_id, row.sentence, row.label)
    return [Question(id, text, tuple(answers[id].values())) for id, text in texts.items()]


def _check_id(id: str, noun: str, where: str) -> None:
    if not id or len(id.split()) != 1:
        raise InputError(f"{where}: {noun} id {id!r}, expected one word: TREC files are split at spaces")


def _parse_label(text: str, where: str) -> int:
    if text.strip() not in ("0", "1"):
        raise InputError(f"{where}: label {text.strip()!r}, expected 0 or 1")
    return int(text)


_SETS: dict[QuestionSet, str] = {
    "all": "",
    "answerable": " with right candidates",
    "mixed": " with right and wrong candidates",
}


def training_questions(data: "DataSection", say: Say) -> list[Question]:
    """The training questions of the set ``data.questions``; both right and wrong candidates are needed."""
    read = _read(data, "train", say)
    questions = select_questions(read, data.questions)
    if not questions:
        raise InputError(f"{data.train}: no question is in the set {data.questions}, expected at least one")
    labels = {answer.label for question in questions for answer in question.answers}
    if len(labels) < 2:
        raise InputError(f"{data.train}: every candidate has label {labels.pop()}, expected both 0 and 1")
    say(_describe("train", questions, read, data.questions))
    return questions


def dev_questions(data: "DataSection", say: Say) -> list[Question]:
    """The dev questions that have both right and wrong candidates, so that their ranking matters."""
    read = _read(data, "dev", say)
    questions = select_questions(read, "mixed")
    if not questions:
        raise InputError(f"{data.dev}: no question has both a right and a wrong candidate, expected at least one")
    say(_describe("dev", questions, read, "mixed"))
    return questions


def _describe(name: str, questions: Sequence[Question], read: Sequence[Question], which: QuestionSet) -> str:
    """The numbers of questions and pairs of a file, and how many questions it has that are not used."""
    counted = count_of(len(read), "question")
    if len(questions) < len(read):
        counted = f"{len(questions):,} of {counted}"
    return f"{name}: {counted}{_SETS[which]}, {count_of(_pairs(questions), 'pair')}"


def _read(data: "DataSection", name: str, say: Say) -> list[Question]:
    path = getattr(data, name)
    if path is None:
        raise RecipeError(f"data.{name}: unset, expected a file of questions; give one with --set data.{name}=FILE")
    if isinstance(path, tuple):
        raise RecipeError(f"data.{name}: two files, expected one file of questions and candidates")
    return read_questions(path, say, labelled=True)


def _pairs(questions: Iterable[Question]) -> int:
    return sum(len(question.answers) for question in questions)
