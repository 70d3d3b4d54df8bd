"""Networks that say whether a sentence answers a question, and their losses."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from antiphon.ranking.question_batches import MatchBatch, QuestionBatch
from antiphon.ranking.sentence_models import (
    AttentiveState,
    BagOfWords,
    Bigram,
    FixedVectors,
    LastState,
    ReaderSizes,
    SentenceModel,
)
from antiphon.recipe.model_sections import MatcherSection


@dataclass(frozen=True)
class ListwiseLoss:
    """The loss of a pair: minus the log probability of its label, plus ``weight`` times its share of its question's.

    A question of ``mean_candidates`` candidates adds as much as that many pairs, and every other question the same.
    """

    weight: float
    mean_candidates: float

    def __call__(self, model: "Matcher", batch: QuestionBatch) -> Float[Tensor, " B"]:
        """The loss of each pair."""
        log_odds = model(batch.pairs)
        pointwise = binary_cross_entropy_with_logits(log_odds, batch.labels, reduction="none")
        listwise = self.mean_candidates * question_loss(log_odds, batch.labels, batch.question)
        return pointwise + self.weight * listwise


def question_loss(
    log_odds: Float[Tensor, " B"], labels: Float[Tensor, " B"], question: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Each pair's share of its question's cross entropy, between right candidates and a softmax over all candidates.

    ``-1/R sum_r log p(r)`` over the ``R`` right candidates ``r``, where ``p(r) = exp(s_r) / sum_c exp(s_c)`` and ``s``
    are the log odds: each right candidate has the same share of the target, so all of them have to be at the top, as
    for mean average precision. 0 for a question without a right candidate. The shares of the ``C`` candidates are
    equal and sum to the cross entropy, so that every question weighs the same, however many candidates it has.
    """
    same: Bool[Tensor, "B B"] = question[:, None] == question
    log_sum = log_odds.expand_as(same).masked_fill(~same, -torch.inf).logsumexp(1)
    right = same * labels
    count = right.sum(1)
    mean_of_right = (right * log_odds).sum(1) / count.clamp(min=1)
    return (log_sum - mean_of_right) * (count > 0) / same.sum(1)


class Matcher(nn.Module):
    """``p(right | x, y) = sigmoid(x^T W y + b)`` with the sentence vectors ``x`` and ``y`` of question and answer.

    Thesis: section 3.3, equation of QA matching.
    """

    def __init__(self, sentence: SentenceModel) -> None:
        super().__init__()
        self.sentence = sentence
        self.match = nn.Parameter(sentence.initial_match())
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, batch: MatchBatch) -> Float[Tensor, " B"]:
        """The log odds that each sentence answers its question."""
        questions = self.sentence.question(batch.questions, batch.question_lengths)[batch.question]
        answers = self.sentence.answer(batch.sentences, batch.sentence_lengths, questions)
        return torch.einsum("bd,de,be->b", questions, self.match, answers) + self.bias

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def cross_entropy(self, batch: MatchBatch) -> Float[Tensor, " B"]:
        """``-log p(label)`` of each pair."""
        return binary_cross_entropy_with_logits(self(batch), batch.labels, reduction="none")

    def start_at(self, log_odds: float) -> None:
        """Sets the bias to the log odds of a right candidate among all pairs.

        Without that the first gradients would all point to the share of right answers, and drive the sentence vectors
        of an LSTM towards a constant.
        """
        nn.init.constant_(self.bias, log_odds)

    def attention(self, batch: MatchBatch) -> Float[Tensor, "B I"]:
        """Attention weights of each question over the words of its sentence, for models with attention."""
        assert isinstance(self.sentence, AttentiveState)
        questions = self.sentence.question(batch.questions, batch.question_lengths)[batch.question]
        return self.sentence.attention(batch.sentences, batch.sentence_lengths, questions)


def build_matcher(settings: MatcherSection, vectors: Tensor, stops: Tensor) -> Matcher:
    """An untrained matcher over word vectors, ``stops`` are the ids of stop words."""
    words = FixedVectors(vectors)
    if settings.sentence == "bag_of_words":
        return Matcher(BagOfWords(words, stops))
    if settings.sentence == "bigram":
        return Matcher(Bigram(words))
    sentence = LastState if settings.sentence == "lstm" else AttentiveState
    sizes = ReaderSizes(**{field.name: getattr(settings, field.name) for field in fields(ReaderSizes)})
    return Matcher(sentence(words, sizes, shared=settings.shared))
