"""Networks that say whether a sentence answers a question, by their vectors or as a cross-encoder, and their losses."""

from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from antiphon.ranking.question_batches import JointBatch, MatchBatch, QuestionBatch
from antiphon.ranking.sentence_models import (
    AttentiveState,
    BagOfWords,
    Bigram,
    FixedVectors,
    LastState,
    Pooling,
    ReaderSizes,
    SentenceModel,
    pool_states,
    text_inputs,
)
from antiphon.recipe.model_sections import MatcherSection


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
        return binary_cross_entropy_with_logits(self(batch), batch.labels, reduction="none")


@dataclass(frozen=True)
class ListwiseLoss:
    """The loss of a pair: minus the log probability of its label, plus ``weight`` times its share of its question's.

    A question of ``mean_candidates`` candidates adds as much as that many pairs, and every other question the same.
    """

    weight: float
    mean_candidates: float

    def __call__(self, model: PairModel, batch: QuestionBatch) -> Float[Tensor, " B"]:
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


class Matcher(PairModel):
    """``p(right | x, y) = sigmoid(x^T W y + b)`` with the sentence vectors ``x`` and ``y`` of question and answer.

    Thesis: section 3.3, equation of QA matching.
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


class CrossEncoder(PairModel):
    """``p(right | x, y) = sigmoid(w s + b)``, where ``s`` are the pooled states of the encoder over both texts at once.

    Every word of the sentence attends to every word of the question, which separate sentence vectors do not allow; in
    return, a sentence has to be encoded again for each question.
    """

    def __init__(self, encoder: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.score = nn.Linear(cast(Any, encoder.config).hidden_size, 1)

    def forward(self, batch: JointBatch) -> Float[Tensor, " B"]:
        """The log odds that each sentence answers its question."""
        return self._log_odds(batch, text_inputs(self.encoder, batch.tokens, batch.valid))

    def start_at(self, log_odds: float) -> None:
        """Sets the output bias, so that training starts from these log odds."""
        nn.init.constant_(self.score.bias, log_odds)

    def saliency(self, batch: JointBatch) -> Float[Tensor, "B I"]:
        """How much each token changes the log odds: the gradient at its vector times the vector, as absolute value."""
        inputs = text_inputs(self.encoder, batch.tokens, batch.valid)
        with torch.enable_grad():
            vectors = cast(Any, self.encoder).get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
            log_odds = self._log_odds(batch, inputs | {"inputs_embeds": vectors}).sum()
            (gradient,) = torch.autograd.grad(log_odds, vectors)
        weights: Tensor = (gradient * vectors.detach()).sum(2).abs() * batch.valid
        return weights

    def _log_odds(self, batch: JointBatch, inputs: dict[str, Tensor]) -> Float[Tensor, " B"]:
        if (getattr(self.encoder.config, "type_vocab_size", None) or 0) > 1:
            inputs = inputs | {"token_type_ids": batch.token_types}
        states: Tensor = self.encoder(**inputs).last_hidden_state
        pooled = pool_states(states, batch.valid, self.pooling)
        return cast(Tensor, self.score(pooled))[:, 0]


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
