"""Every sentence model against an example computed by hand, and on the shortest texts there are."""

import pytest
import torch

from antiphon.ranking.matchers import (
    AttentiveState,
    BagOfWords,
    Bigram,
    FixedVectors,
    LastState,
    Matcher,
    ReaderSizes,
)
from antiphon.ranking.question_batches import MatchBatch

VECTORS = torch.tensor([[0.0, 0.0], [9.0, 9.0], [1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])


def fixed():
    return FixedVectors(VECTORS)


def bag_of_words():
    return BagOfWords(fixed(), torch.tensor([4]))


def bigram():
    return Bigram(fixed())


def last_state():
    return LastState(fixed(), ReaderSizes(3, layers=2))


def attentive():
    return AttentiveState(fixed(), ReaderSizes(3))


def both_directions():
    return LastState(fixed(), ReaderSizes(3, layers=2, bidirectional=True, pooling="max"), shared=True)


def attentive_in_both_directions():
    return AttentiveState(fixed(), ReaderSizes(3, bidirectional=True, pooling="mean"))


ALL = [bag_of_words, bigram, last_state, attentive, both_directions, attentive_in_both_directions]


def lstm_by_hand(lstm, vectors):
    """The states of a one-layer LSTM, gate by gate."""
    hidden = cell = torch.zeros(lstm.hidden_size)
    states = []
    for vector in vectors:
        gates = lstm.weight_ih_l0 @ vector + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0
        write, forget, new, show = gates.chunk(4)
        cell = forget.sigmoid() * cell + write.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states)


def test_a_bag_of_words_is_the_mean_without_stop_words():
    vector = bag_of_words().read(torch.tensor([[2, 4, 3, 0]]), torch.tensor([3]))
    torch.testing.assert_close(vector, torch.tensor([[2.0, 0.5]]))


def test_a_bigram_model_is_the_mean_over_neighbours():
    model = bigram()
    with torch.no_grad():
        model.left.weight.copy_(torch.eye(2))
        model.right.weight.copy_(2 * torch.eye(2))
        model.left.bias.fill_(0.1)
    vector = model.read(torch.tensor([[2, 4, 3, 0]]), torch.tensor([3]))
    pairs = torch.tensor([[1 + 2 * 0.5 + 0.1, 2 + 2 * 0.5 + 0.1], [0.5 + 2 * 3 + 0.1, 0.5 - 2 * 1 + 0.1]])
    torch.testing.assert_close(vector[0], pairs.tanh().mean(0))


def test_an_lstm_gives_its_last_state_and_questions_have_their_own():
    model = LastState(fixed(), ReaderSizes(3))
    tokens, lengths = torch.tensor([[2, 4, 3, 0]]), torch.tensor([3])
    question, answer = model.question(tokens, lengths), model.answer(tokens, lengths, torch.zeros(1, 3))
    vectors = VECTORS[[2, 4, 3]]
    torch.testing.assert_close(question[0], lstm_by_hand(model.question_reader.lstm, vectors)[-1])
    torch.testing.assert_close(answer[0], lstm_by_hand(model.answer_reader.lstm, vectors)[-1])
    assert not torch.equal(question, answer)


def test_a_shared_lstm_reads_both():
    model = LastState(fixed(), ReaderSizes(3, layers=2), shared=True)
    tokens, lengths = torch.tensor([[2, 4]]), torch.tensor([2])
    assert torch.equal(model.question(tokens, lengths), model.answer(tokens, lengths, torch.zeros(1, 3)))


def test_before_training_the_vectors_of_texts_differ_and_one_lstm_matches_by_their_product():
    torch.manual_seed(0)
    vectors = FixedVectors(torch.randn(50, 20))
    model = LastState(vectors, ReaderSizes(20, layers=3, forget_bias=1.0), shared=True)
    tokens = torch.randint(50, (40, 9))
    states = model.question(tokens, torch.full((40,), 9))
    assert states.std(0).mean() > 2 * states.mean(0).abs().mean()
    assert torch.equal(Matcher(model).match, torch.eye(20))
    lstm = model.answer_reader.lstm
    torch.testing.assert_close(lstm.weight_hh_l1[:20] @ lstm.weight_hh_l1[:20].T, torch.eye(20))
    assert lstm.bias_ih_l0.tolist() == [0.0] * 20 + [1.0] * 20 + [0.0] * 40


@pytest.mark.parametrize("pooling", ["last", "mean", "max"])
def test_states_of_both_directions_are_pooled(pooling):
    model = LastState(fixed(), ReaderSizes(3, bidirectional=True, pooling=pooling))
    vectors, reader = VECTORS[[2, 4, 3]], model.answer_reader
    states = lstm_by_hand(reader.lstm, vectors)
    leftward = lstm_by_hand(reader.leftward, vectors.flip(0)).flip(0)
    both = torch.cat([states, leftward], 1)
    expected = {"last": torch.cat([states[-1], leftward[0]]), "mean": both.mean(0), "max": both.max(0).values}[pooling]
    answer = model.answer(torch.tensor([[2, 4, 3, 0]]), torch.tensor([3]), torch.zeros(1, 6))
    torch.testing.assert_close(answer[0], expected)


def test_attention_combines_the_states_that_the_question_looks_at_with_the_last():
    model = attentive()
    tokens, lengths, question = torch.tensor([[2, 4, 3, 0]]), torch.tensor([3]), torch.tensor([[0.3, -0.2, 0.9]])
    states = lstm_by_hand(model.answer_reader.lstm, VECTORS[[2, 4, 3]])
    scores = torch.stack(
        [
            model.weight.weight[0] @ (model.of_question.weight @ question[0] + model.of_state.weight @ s).tanh()
            for s in states
        ]
    )
    alpha = scores.softmax(0)
    context = alpha @ states
    torch.testing.assert_close(model.attention(tokens, lengths, question)[0], torch.cat([alpha, torch.zeros(1)]))
    expected = (model.of_context.weight @ context + model.of_last.weight @ states[-1]).tanh()
    torch.testing.assert_close(model.answer(tokens, lengths, question)[0], expected)


def test_the_match_is_bilinear():
    matcher = Matcher(bag_of_words())
    with torch.no_grad():
        matcher.match.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        matcher.bias.fill_(0.5)
    batch = match_batch([[2]], [0, 0], [[3], [2]])
    x, y = VECTORS[2], VECTORS[[3, 2]]
    torch.testing.assert_close(matcher(batch), (x @ matcher.match @ y.T + 0.5).detach())


@pytest.mark.parametrize("make", ALL)
def test_gradients_are_finite_for_one_word_and_for_none(make):
    torch.manual_seed(0)
    matcher = Matcher(make())
    matcher.cross_entropy(match_batch([[2], []], [0, 1, 1], [[3], [], [2, 3, 4]])).sum().backward()
    gradients = [parameter.grad for parameter in matcher.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("make", ALL)
def test_padding_and_batching_change_nothing(make):
    torch.manual_seed(0)
    matcher = Matcher(make()).eval()
    questions, sentences = [[2, 3], [4, 2, 3]], [[3, 2, 4, 2], [2], [4, 3]]
    together = matcher(match_batch(questions, [0, 1, 1], sentences))
    apart = [matcher(match_batch([questions[q]], [0], [s])) for q, s in zip([0, 1, 1], sentences, strict=True)]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)


def match_batch(questions, question, sentences):
    return MatchBatch(*pad(questions), torch.tensor(question), *pad(sentences), torch.ones(len(sentences)))


def pad(texts):
    width = max(1, *map(len, texts))
    padded = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    return padded, torch.tensor([max(1, len(text)) for text in texts])
