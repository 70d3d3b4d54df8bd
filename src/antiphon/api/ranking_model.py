"""Models that rank given sentences by how well they answer a question."""

import math
from collections.abc import Sequence

from antiphon.api.model import Model
from antiphon.exceptions import InputError
from antiphon.metrics.output_metrics import RatioStats, compute_ranking_metrics
from antiphon.ranking.questions import (
    Answer,
    Judgements,
    Question,
    QuestionSet,
    in_trec_order,
    judgements_of,
    select_questions,
)
from antiphon.ranking.rankers import ExplainRanking, MatchRanker, WordWeights, load_ranker, rankings_of
from antiphon.recipe.schema import Recipe
from antiphon.report.ranking_errors import RankedQuestion, RankingErrors
from antiphon.runs.build import build_normalisation
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.codec import PairCodec, TextCodec, Words
from antiphon.torch_free.inputs import check_several
from antiphon.torch_free.results import Evaluation, Ranked
from antiphon.torch_free.vocab import Vocab


class RankingModel(Model):
    """A matcher or a baseline: it ranks given sentences and writes none."""

    can_score = False

    def __init__(self, recipe: Recipe, folder: RunFolder, device: str) -> None:
        self.knows_words = folder.words.exists()
        words = TextCodec(
            build_normalisation(recipe.data), Words(), folder.vocab("words") if self.knows_words else Vocab(())
        )
        self.ranker = load_ranker(folder, recipe, device)
        module = self.ranker.matcher if isinstance(self.ranker, MatchRanker) else None
        super().__init__(recipe, PairCodec(words, words), module)

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "RankingModel":
        """The ranker of a run folder."""
        return cls(recipe, folder, device)

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences, the most probable answer first; ties keep their order."""
        check_several(sentences, "rank")
        sentences = list(sentences)
        if not isinstance(question, str) or not all(isinstance(sentence, str) for sentence in sentences):
            raise InputError("rank: the question or a sentence is not text, expected strings")
        if not sentences:
            raise InputError("rank: no sentences, expected at least one candidate")
        given = Question("", question, tuple(Answer(str(index), text) for index, text in enumerate(sentences)))
        (ranked,) = self.rank_questions([given], explain=explain)
        return ranked

    def rank_questions(self, questions: Sequence[Question], *, explain: bool = False) -> list[list[Ranked]]:
        """The candidates of every question, the most probable answer first."""
        nothing: list[list[WordWeights]] = [[()] * len(question.answers) for question in questions]
        weights = self._word_weights(questions) if explain else nothing
        return [
            self._ranked(question, scores.tolist(), of_words)
            for question, scores, of_words in zip(questions, self.ranker.score(questions), weights, strict=True)
        ]

    def question_errors(self, questions: Sequence[Question], *, against: "RankingModel | None" = None) -> RankingErrors:
        """The questions with right and wrong candidates as this model ranks them, and as another one does."""
        mixed = select_questions(questions, "mixed")
        if not mixed:
            raise InputError(
                f"none of the {len(questions)} questions has both a right and a wrong candidate, expected at least one"
            )
        return RankingErrors(self._placed(mixed), None if against is None else against._placed(mixed))

    def _placed(self, questions: Sequence[Question]) -> list[RankedQuestion]:
        ranked = self.rank_questions(questions, explain=self._explain is not None)
        return [_placed(question, in_trec_order(question, of)) for question, of in zip(questions, ranked, strict=True)]

    def evaluate_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> Evaluation:
        """MAP, MRR and P@1 over a set of labelled questions, or over all questions that ``judged`` judges."""
        selected = select_questions(questions, which)
        measured = self.question_metrics(questions, which=which, judged=judged)
        texts = (
            [question.text for question in selected],
            [answer.text for question in selected for answer in question.answers],
        )
        of_questions, of_answers = [
            sum(map(self.codec.source.count_unknown, side)) if self.knows_words else 0 for side in texts
        ]
        return Evaluation(
            len(texts[1]), {name: stats.score() for name, stats in measured.items()}, of_questions, of_answers
        )

    def question_metrics(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> dict[str, RatioStats]:
        """The contribution of every question to each metric."""
        selected = select_questions(questions, which)
        if not selected:
            raise InputError(
                f"--questions {which}: none of the {len(questions)} questions is in this set, expected at least one"
            )
        about = which if judged is None else f"of qrels, {len(selected)} ranked: {which}"
        return compute_ranking_metrics(judged or judgements_of(selected), self.scores_by_id(selected), about)

    def scores_by_id(self, questions: Sequence[Question]) -> dict[str, dict[str, float]]:
        """The score of every candidate, by the ids of question and candidate."""
        return rankings_of(self.ranker, questions)

    def unknown_questions(self, questions: Sequence[Question]) -> int:
        """The number of questions without any word that the model knows."""
        if not self.knows_words:
            return 0
        source = self.codec.source
        return sum(source.count_unknown(question.text) == len(source.tokens(question.text)) for question in questions)

    def _ranked(self, question: Question, scores: list[float], weights: list[WordWeights]) -> list[Ranked]:
        is_matcher = isinstance(self.ranker, MatchRanker)
        ranked = [
            Ranked(answer.text, index, score, _sigmoid(score) if is_matcher else None, of_words)
            for index, (answer, score, of_words) in enumerate(zip(question.answers, scores, weights, strict=True))
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)

    @property
    def _explain(self) -> ExplainRanking | None:
        """What gives the weights of words, where the ranker has such weights."""
        return self.ranker.explain if isinstance(self.ranker, MatchRanker) else None

    def _word_weights(self, questions: Sequence[Question]) -> list[list[WordWeights]]:
        if self._explain is None:
            raise self._cannot("explain", "a matcher with model.sentence = lstm_attention")
        weights = iter(self._explain(questions))
        return [[next(weights) for _ in question.answers] for question in questions]


def _placed(question: Question, ranked: Sequence[Ranked]) -> RankedQuestion:
    """A question, given its candidates in their order."""
    return RankedQuestion.of(
        question.id, question.text, ranked, [question.answers[each.index].label or 0 for each in ranked]
    )


def _sigmoid(log_odds: float) -> float:
    """The probability with these log odds; written so that it cannot overflow."""
    return 0.5 + 0.5 * math.tanh(log_odds / 2)
