"""Whether a sentence answers a question: a bilinear match of their vectors."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from antiphon.ranking.question_batches import MatchBatch
from antiphon.ranking.sentence_models import AttentiveState, SentenceModel


class PairModel(nn.Module):
    """Base class of networks that give the log odds that each sentence of a batch answers its question."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def start_at(self, log_odds: float) -> None:
        """Sets the output bias, so that training starts from the log odds of a right candidate among all pairs."""
        raise NotImplementedError

    def cross_entropy(self, batch: Any) -> Float[Tensor, " B"]:
        """``-log p(label)`` of each pair."""
        return nn.functional.binary_cross_entropy_with_logits(self(batch), batch.labels, reduction="none")


class Matcher(PairModel):
    """``p(right | x, y) = sigmoid(x^T W y + b)`` with the sentence vectors ``x`` and ``y`` of question and answer.

    Thesis: section 4.3, equation of QA matching.
    """

    def __init__(self, sentence: SentenceModel) -> None:
        super().__init__()
        self.sentence = sentence
        self.match = nn.Parameter(sentence.initial_match())
        self.bias = nn.Parameter(torch.tensor(sentence.initial_bias))

    def forward(self, batch: MatchBatch) -> Float[Tensor, " B"]:
        """The log odds that each sentence answers its question."""
        questions = self.sentence.question(batch.questions, batch.question_lengths)[batch.question]
        answers = self.sentence.answer(batch.sentences, batch.sentence_lengths, questions)
        return torch.einsum("bd,de,be->b", questions, self.match, answers) + self.bias

    def start_at(self, log_odds: float) -> None:
        """Sets the bias, unless the sentence model has an initial bias of its own.

        Without it the first gradients would all point to the share of right answers, and drive the sentence vectors of
        an LSTM towards a constant.
        """
        if not self.sentence.initial_bias:
            nn.init.constant_(self.bias, log_odds)

    def attention(self, batch: MatchBatch) -> Float[Tensor, "B I"]:
        """Attention weights of each question over the words of its sentence, for models with attention."""
        assert isinstance(self.sentence, AttentiveState)
        questions = self.sentence.question(batch.questions, batch.question_lengths)[batch.question]
        return self.sentence.attention(batch.sentences, batch.sentence_lengths, questions)
