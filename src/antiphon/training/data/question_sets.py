"""Training and dev questions, and files that are copied into a new run: word vectors, encoder, word counts."""

import json
import shutil
from collections.abc import Iterable, Sequence
from typing import cast

from torch import nn

from antiphon.exceptions import InputError, RecipeError
from antiphon.ranking.cross_encoder import CrossEncoder
from antiphon.ranking.matcher import Matcher, PairModel
from antiphon.ranking.pretrained_encoder import (
    WordPieces,
    find_encoder,
    load_published,
    read_encoder_config,
    read_pooling,
    save_tokeniser,
)
from antiphon.ranking.question_files import Question, QuestionSet, judgements_of, read_questions, select_questions
from antiphon.ranking.ranking_metrics import Rankings, compute_ranking_metrics
from antiphon.ranking.saved_rankers import matcher_settings, save_words, word_splitter
from antiphon.ranking.stop_words import read_stop_words
from antiphon.ranking.word_overlap import Overlap
from antiphon.ranking.word_vectors import read_vectors
from antiphon.recipe.schema import DataSection, Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.terminal import Say, count_of


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


_SETS: dict[QuestionSet, str] = {
    "all": "",
    "answerable": " with right candidates",
    "mixed": " with right and wrong candidates",
}


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


def learn_overlap(data: DataSection, questions: Iterable[Question]) -> Overlap:
    """The document frequency of every word in the sentences of the questions."""
    words = word_splitter(data)
    return Overlap.learn(
        (words(answer.text) for question in questions for answer in question.answers), read_stop_words()
    )


def copy_vectors(recipe: Recipe, run: RunFolder, questions: Iterable[Question]) -> str:
    """Copies the vectors of all words of the questions into the run; returns a line on how many words have one."""
    data, words = recipe.data, word_splitter(recipe.data)
    if data.vectors is None:
        raise RecipeError("data.vectors: unset, expected a file of word vectors; give one with --set data.vectors=FILE")
    texts = (text for question in questions for text in (question.text, *(answer.text for answer in question.answers)))
    wanted = {word for text in texts for word in words(text)}
    known = read_vectors(data.vectors, wanted, data.more_words)
    save_words(run, known)
    found = len(wanted.intersection(known.words))
    return f"vectors: {found:,} of {count_of(len(wanted), 'word')} known, {len(known.words) - found:,} more kept"


def copy_encoder(recipe: Recipe, run: RunFolder) -> None:
    """Copies all but the weights of a pretrained encoder into the run; its weights are saved with the model."""
    folder = find_encoder(matcher_settings(recipe).pretrained)
    load_published(folder)  # an encoder that cannot be loaded is refused before training
    run.encoder_config.parent.mkdir()
    shutil.copyfile(folder / "config.json", run.encoder_config)
    save_tokeniser(folder, run.encoder_tokeniser)
    WordPieces(run.encoder_tokeniser, read_encoder_config(run.encoder_config))
    run.encoder_pooling.write_text(json.dumps({"pooling": read_pooling(folder)}) + "\n", encoding="utf-8")


def load_encoder(matcher: PairModel, recipe: Recipe) -> None:
    """Puts the published weights into a network's encoder."""
    published = load_published(find_encoder(matcher_settings(recipe).pretrained))
    encoder = matcher.encoder if isinstance(matcher, CrossEncoder) else cast(Matcher, matcher).sentence.encoder
    cast(nn.Module, encoder).load_state_dict(published.state_dict())
