"""Networks that say whether a sentence answers a question: sentence models, their match, and its losses.

Every sentence model reads questions by ``question`` and candidates by ``answer``; an answer may use the vector of
its question.  Word vectors are fixed.  Thesis: section 3.3.
"""

from dataclasses import dataclass, fields
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from antiphon.nn.recurrent import LSTM, Dropout, mirror_index, take_flat, valid_positions
from antiphon.ranking.question_batches import MatchBatch, QuestionBatch
from antiphon.recipe.model_sections import MatcherSection


def pool_states(
    states: Float[Tensor, "B I D"], valid: Bool[Tensor, "B I"], pooling: Literal["mean", "max"]
) -> Float[Tensor, "B D"]:
    """The pooled states of each text; ``valid`` is True at its tokens."""
    if pooling == "max":
        return states.masked_fill(~valid[:, :, None], -torch.inf).amax(1)
    return (states * valid[:, :, None]).sum(1) / valid.sum(1, keepdim=True)


@dataclass(frozen=True)
class ReaderSizes:
    """What the LSTMs of a sentence model share; ``state_dropout`` is between their layers and on their states."""

    hidden_size: int
    layers: int = 1
    dropout: float = 0.0
    forget_bias: float = 0.0
    state_dropout: float = 0.0
    pooling: Literal["last", "mean", "max"] = "last"
    bidirectional: bool = False
    initial_weights: Literal["orthogonal", "random"] = "orthogonal"

    @property
    def output_size(self) -> int:
        """Size of a state, both directions together."""
        return self.hidden_size * (2 if self.bidirectional else 1)


class FixedVectors(nn.Module):
    """Fixed word vectors; not part of the weights, since the run folder has a file for them."""

    vectors: Tensor

    def __init__(self, vectors: Float[Tensor, "V E"]) -> None:
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)

    @property
    def size(self) -> int:
        """Size of a word vector."""
        return self.vectors.shape[1]

    def forward(self, tokens: Int[Tensor, "B I"]) -> Float[Tensor, "B I E"]:
        """The vector of each token."""
        return self.vectors[tokens]


class SentenceModel(nn.Module):
    """Base class of sentence models: token ids to vectors of ``output_size``."""

    output_size: int

    def read(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The vector of each text, by itself."""
        raise NotImplementedError

    def question(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The vector of each question."""
        return self.read(tokens, lengths)

    def answer(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], question: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B D"]:
        """The vector of each candidate for a question, given by its vector."""
        return self.read(tokens, lengths)

    def initial_match(self) -> Float[Tensor, "D D"]:
        """The initial matching matrix: uniform, as in a linear layer."""
        reach = self.output_size**-0.5
        return torch.empty(self.output_size, self.output_size).uniform_(-reach, reach)


class BagOfWords(SentenceModel):
    """``x = 1/|x| sum_i x_i`` over the words that are not in the stop list."""

    weights: Tensor

    def __init__(self, vectors: FixedVectors, stops: Int[Tensor, " S"]) -> None:
        super().__init__()
        self.vectors, self.output_size = vectors, vectors.size
        counted = torch.ones(len(vectors.vectors))
        counted[stops] = 0.0
        self.register_buffer("weights", counted, persistent=False)

    def read(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The mean of each text's word vectors; zero if it has only stop words."""
        counted = self.weights[tokens] * valid_positions(lengths, tokens.shape[1])
        summed = torch.einsum("bi,bie->be", counted, self.vectors(tokens))
        return summed / counted.sum(1, keepdim=True).clamp(min=1.0)


class Bigram(SentenceModel):
    """``x = 1/(|x|-1) sum_i tanh(W_L x_i + W_R x_{i+1} + b)``; a single word is paired with padding."""

    def __init__(self, vectors: FixedVectors) -> None:
        super().__init__()
        self.vectors, self.output_size = vectors, vectors.size
        self.left = nn.Linear(vectors.size, vectors.size)
        self.right = nn.Linear(vectors.size, vectors.size, bias=False)

    def read(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The mean over each text's pairs of neighbouring words."""
        padded = nn.functional.pad(self.vectors(tokens), (0, 0, 0, 1))
        bigrams = torch.tanh(self.left(padded[:, :-1]) + self.right(padded[:, 1:]))
        count = (lengths - 1).clamp(min=1)
        valid = valid_positions(count, bigrams.shape[1])[:, :, None]
        return (bigrams * valid).sum(1) / count[:, None]


class LSTMReader(nn.Module):
    """An LSTM over fixed word vectors with dropout on them; it gives all states and one vector of each text.

    If ``bidirectional``, a second LSTM reads from the right, and the states of both are concatenated.
    """

    def __init__(self, vectors: FixedVectors, sizes: ReaderSizes) -> None:
        super().__init__()
        self.vectors, self.pooling = vectors, sizes.pooling
        self.dropout, self.state_dropout = Dropout(sizes.dropout), Dropout(sizes.state_dropout)
        self.lstm = _new_lstm(vectors.size, sizes)
        self.leftward = _new_lstm(vectors.size, sizes) if sizes.bidirectional else None

    def forward(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B I H"], Float[Tensor, "B H"]]:
        """The state at each token, and the vector of each text."""
        embedded = self.dropout(self.vectors(tokens))
        states: Tensor = self.lstm(embedded)[0]
        last = states[torch.arange(len(states), device=states.device), lengths - 1]
        if self.leftward is not None:
            mirror = mirror_index(lengths, tokens.shape[1])
            leftward = take_flat(self.leftward(take_flat(embedded, mirror))[0], mirror)
            states, last = torch.cat([states, leftward], 2), torch.cat([last, leftward[:, 0]], 1)
        valid = valid_positions(lengths, tokens.shape[1])
        pooled = last if self.pooling == "last" else pool_states(states, valid, self.pooling)
        return self.state_dropout(states), self.state_dropout(pooled)


def _new_lstm(input_size: int, sizes: ReaderSizes) -> LSTM:
    """An LSTM whose gates start with orthogonal weights and no bias but that of the forget gates, unless all is random.

    With the usual small weights and random biases, the last states of two texts differ little before training.
    """
    if sizes.initial_weights == "random":
        return LSTM(input_size, sizes.hidden_size, sizes.layers, sizes.state_dropout, sizes.forget_bias)
    lstm = LSTM(input_size, sizes.hidden_size, sizes.layers, sizes.state_dropout)
    for name, weight in lstm.named_parameters():
        if name.startswith("weight"):
            for gate in weight.data.chunk(4):
                nn.init.orthogonal_(gate)
        else:
            nn.init.zeros_(weight)
            if name.startswith("bias_ih"):
                nn.init.constant_(weight.data[sizes.hidden_size : 2 * sizes.hidden_size], sizes.forget_bias)
    return lstm


class LastState(SentenceModel):
    """The last state of an LSTM, or all states pooled; questions and answers have their own LSTM or share one."""

    def __init__(self, vectors: FixedVectors, sizes: ReaderSizes, *, shared: bool = False) -> None:
        super().__init__()
        self.output_size = sizes.output_size
        self.answer_reader = LSTMReader(vectors, sizes)
        self._own_reader = None if shared else LSTMReader(vectors, sizes)
        self._starts_as_product = shared and sizes.initial_weights == "orthogonal"

    @property
    def question_reader(self) -> LSTMReader:
        """The LSTM of questions; a shared one is saved once."""
        return self.answer_reader if self._own_reader is None else self._own_reader

    def initial_match(self) -> Float[Tensor, "D D"]:
        """The identity if one LSTM reads both texts: similar ones match from the start, unless all is random."""
        return torch.eye(self.output_size) if self._starts_as_product else super().initial_match()

    def question(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The vector that the question's LSTM gives."""
        return cast(Tensor, self.question_reader(tokens, lengths)[1])

    def answer(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], question: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B D"]:
        """The vector that the answer's LSTM gives."""
        return cast(Tensor, self.answer_reader(tokens, lengths)[1])


class AttentiveState(LastState):
    """The answer's pooled states combined with attention of the question over its states.

    ``alpha_i ~ exp(w tanh(W_h h + W_s s_i))``, ``c = sum_i alpha_i s_i``, ``y = tanh(W_c c + W_y s)``, where ``h`` is
    the vector of the question, ``s_i`` are the states of the answer, and ``s`` is the last of them, or all pooled.
    """

    def __init__(self, vectors: FixedVectors, sizes: ReaderSizes, *, shared: bool = False) -> None:
        super().__init__(vectors, sizes, shared=shared)
        hidden_size = self.output_size
        self.of_question = nn.Linear(hidden_size, hidden_size, bias=False)
        self.of_state = nn.Linear(hidden_size, hidden_size, bias=False)
        self.weight = nn.Linear(hidden_size, 1, bias=False)
        self.of_context = nn.Linear(hidden_size, hidden_size, bias=False)
        self.of_last = nn.Linear(hidden_size, hidden_size, bias=False)

    def answer(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], question: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B D"]:
        """The attended states combined with the pooled states."""
        states, pooled = self.answer_reader(tokens, lengths)
        context = torch.einsum("bi,bih->bh", self._attention(states, lengths, question), states)
        return torch.tanh(self.of_context(context) + self.of_last(pooled))

    def attention(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], question: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B I"]:
        """Attention weights over the words of the answer; each row sums to 1."""
        return self._attention(self.answer_reader(tokens, lengths)[0], lengths, question)

    def _attention(
        self, states: Float[Tensor, "B I H"], lengths: Int[Tensor, " B"], question: Float[Tensor, "B H"]
    ) -> Float[Tensor, "B I"]:
        scores = self.weight(torch.tanh(self.of_question(question)[:, None] + self.of_state(states)))[:, :, 0]
        weights: Tensor = scores.masked_fill(~valid_positions(lengths, states.shape[1]), -torch.inf).softmax(1)
        return weights


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
