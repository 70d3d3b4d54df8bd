"""Models that rank given answers."""

import math
from collections.abc import Iterable, Iterator, Sequence

from antiphon.api.inputs import PairLike
from antiphon.api.model import Model
from antiphon.api.results import Alignment, Evaluation, Ranked
from antiphon.data.codec import PairCodec, TextCodec
from antiphon.data.tokenise import Words
from antiphon.data.vocab import Vocab
from antiphon.exceptions import InputError
from antiphon.metrics import RatioStats
from antiphon.metrics.breakdown import By
from antiphon.ranking.question_files import Answer, Judgements, Question, QuestionSet, judgements_of, select_questions
from antiphon.ranking.rankers import MatchRanker, rankings_of
from antiphon.ranking.ranking_metrics import compute_ranking_metrics
from antiphon.ranking.saved_rankers import load_ranker
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_normalisation
from antiphon.runs.run_folder import RunFolder

Attention = list[tuple[tuple[str, float], ...]]
"""For each candidate, its words and how much the question looks at each."""


class RankingModel(Model):
    """A matcher, or a baseline of it: it ranks given sentences and writes none."""

    def __init__(self, recipe: Recipe, folder: RunFolder, device: str) -> None:
        self.knows_words = folder.words.exists()
        words = TextCodec(
            build_normalisation(recipe.data), Words(), folder.vocab("words") if self.knows_words else Vocab(())
        )
        self.ranker = load_ranker(folder, recipe, device)
        matcher = self.ranker.matcher if isinstance(self.ranker, MatchRanker) else None
        super().__init__(recipe, PairCodec(words, words), matcher)

    @property
    def answers(self) -> bool:
        """It chooses among answers, but writes none."""
        return False

    @property
    def gives_probabilities(self) -> bool:
        """It has none of a target given a source."""
        return False

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences from the likeliest answer to the least likely; equals stay in their order."""
        if not sentences:
            raise InputError("rank: no sentences, expected at least one candidate")
        asked = Question("", question, tuple(Answer(str(place), text) for place, text in enumerate(sentences)))
        (ranked,) = self.rank_questions([asked], explain=explain)
        return ranked

    def align(self, pairs: Iterable[PairLike]) -> Iterator[Alignment]:
        """Refuses: a ranking has no alignment."""
        raise self._cannot("align", "a transducer or an attention model")

    def evaluate(
        self,
        pairs: Iterable[PairLike],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
        by: Sequence[By] = (),
    ) -> Evaluation:
        """Refuses: it is questions that are evaluated, by ``evaluate_questions``."""
        raise self._cannot("evaluate pairs", "evaluate_questions")

    def rank_questions(self, questions: Sequence[Question], *, explain: bool = False) -> list[list[Ranked]]:
        """The candidates of every question, the likeliest first."""
        nothing: list[Attention] = [[()] * len(question.answers) for question in questions]
        looked = self._attention(questions) if explain else nothing
        return [
            self._ranked(question, scores.tolist(), attention)
            for question, scores, attention in zip(questions, self.ranker.score(questions), looked, strict=True)
        ]

    def evaluate_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> Evaluation:
        """MAP, MRR and P@1 over a set of labelled questions, or over all questions that ``judged`` judges."""
        asked = select_questions(questions, which)
        measured = self.measure_questions(questions, which=which, judged=judged)
        texts = (
            [question.text for question in asked],
            [answer.text for question in asked for answer in question.answers],
        )
        of_questions, of_answers = [
            sum(map(self.codec.source.count_unknown, side)) if self.knows_words else 0 for side in texts
        ]
        return Evaluation(
            len(texts[1]), {name: shares.score() for name, shares in measured.items()}, of_questions, of_answers
        )

    def measure_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> dict[str, RatioStats]:
        """What every question adds to each measure."""
        asked = select_questions(questions, which)
        if not asked:
            raise InputError(f"--questions {which}: none of {len(questions)} questions belongs to it, expected some")
        about = which if judged is None else f"of qrels, {len(asked)} ranked: {which}"
        return compute_ranking_metrics(judged or judgements_of(asked), rankings_of(self.ranker, asked), about)

    def unknown_questions(self, questions: Sequence[Question]) -> int:
        """How many questions have no word that the model knows."""
        if not self.knows_words:
            return 0
        source = self.codec.source
        return sum(source.count_unknown(question.text) == len(source.tokens(question.text)) for question in questions)

    def _ranked(self, question: Question, scores: list[float], attention: Attention) -> list[Ranked]:
        is_matcher = self.kind == "matcher"
        ranked = [
            Ranked(answer.text, place, score, 0.5 + 0.5 * math.tanh(score / 2) if is_matcher else None, looked)
            for place, (answer, score, looked) in enumerate(zip(question.answers, scores, attention, strict=True))
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)

    def _attention(self, questions: Sequence[Question]) -> list[Attention]:
        if not isinstance(self.ranker, MatchRanker) or not self.ranker.attends:
            raise self._cannot("explain", "a matcher with model.sentence = lstm_attention")
        weights = iter(self.ranker.attention(questions))
        words = self.codec.target.tokens
        return [
            [tuple(zip(words(answer.text), next(weights).tolist(), strict=False)) for answer in question.answers]
            for question in questions
        ]
