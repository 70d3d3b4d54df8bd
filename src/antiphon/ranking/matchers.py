"""Networks that say whether a sentence answers a question: a bilinear match of their vectors, or a cross-encoder."""

from dataclasses import fields
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from antiphon.ranking.question_batches import JointBatch, MatchBatch
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
        return nn.functional.binary_cross_entropy_with_logits(self(batch), batch.labels, reduction="none")


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
        return Matcher(Bigram(words, settings.dropout))
    sentence = LastState if settings.sentence == "lstm" else AttentiveState
    sizes = ReaderSizes(**{field.name: getattr(settings, field.name) for field in fields(ReaderSizes)})
    return Matcher(sentence(words, sizes, shared=settings.shared))
