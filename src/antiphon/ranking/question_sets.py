"""Questions to train, to validate and to test on, and their metrics."""

from collections.abc import Iterable, Sequence

from antiphon.exceptions import InputError, RecipeError
from antiphon.metrics.output_metrics import Rankings, compute_ranking_metrics
from antiphon.ranking.question_files import Question, QuestionSet, judgements_of, read_questions, select_questions
from antiphon.recipe.model_sections import MatcherSection, OverlapSection
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import DataSection
from antiphon.terminal import Say, count_of, silent
from antiphon.training.checks import require_library

_SETS: dict[QuestionSet, str] = {
    "all": "",
    "answerable": " with right candidates",
    "mixed": " with right and wrong candidates",
}


def check_questions(recipe: Recipe) -> None:
    """Refuses a recipe that ranks where a library is missing, or the test file has no questions to rank."""
    model, test = recipe.model, recipe.data.test
    require_library(f"model.kind = {model.kind}", "ir_measures", "qa")
    if isinstance(model, OverlapSection) and model.baseline == "bm25":
        require_library("model.baseline = bm25", "bm25s", "qa")
    if isinstance(model, MatcherSection) and model.sentence == "pretrained":
        require_library("model.sentence = pretrained", "transformers", "pretrained")
    if isinstance(test, tuple):
        raise RecipeError("data.test: two files, expected one file of questions and candidates")
    if test is not None and not select_questions(read_questions(test, silent, labelled=True), "mixed"):
        raise InputError(f"{test}: no question has both a right and a wrong candidate, expected at least one")


def training_questions(data: DataSection, say: Say) -> list[Question]:
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


def dev_questions(data: DataSection, say: Say) -> list[Question]:
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


def ranking_values(questions: Sequence[Question], rankings: Rankings) -> dict[str, float]:
    """The value of every ranking metric on questions."""
    metrics = compute_ranking_metrics(judgements_of(questions), rankings)
    return {name: ratio.score().value for name, ratio in metrics.items()}


def _read(data: DataSection, name: str, say: Say) -> list[Question]:
    path = getattr(data, name)
    if path is None:
        raise RecipeError(f"data.{name}: unset, expected a file of questions; give one with --set data.{name}=FILE")
    if isinstance(path, tuple):
        raise RecipeError(f"data.{name}: two files, expected one file of questions and candidates")
    return read_questions(path, say, labelled=True)


def _pairs(questions: Iterable[Question]) -> int:
    return sum(len(question.answers) for question in questions)
