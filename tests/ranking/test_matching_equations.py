"""The matcher against the equations of thesis chapter 3, written again from plain tensors, loss and all gradients."""

import torch

from antiphon.ranking.matchers import AttentiveState, FixedVectors, LastState, Matcher, ReaderSizes
from antiphon.ranking.question_batches import MatchBatch

HIDDEN, LAYERS, VECTORS = 4, 3, 9
QUESTIONS = [[2, 5, 3], [7]]
PAIRS = [(0, [3, 2, 8, 4, 2], 1.0), (1, [6], 0.0), (1, [4, 3, 7], 1.0), (0, [8, 8], 0.0)]


def lstm_states(weights, prefix, inputs):
    """``c_t = f c_{t-1} + i g``, ``h_t = o tanh(c_t)`` for every word, layer after layer."""
    for layer in range(LAYERS):
        from_input, from_state = (weights[f"{prefix}weight_{kind}_l{layer}"] for kind in ("ih", "hh"))
        bias = weights[f"{prefix}bias_ih_l{layer}"] + weights[f"{prefix}bias_hh_l{layer}"]
        h = c = torch.zeros(HIDDEN, dtype=torch.float64)
        outputs = []
        for x in inputs:
            i, f, g, o = (from_input @ x + from_state @ h + bias).split(HIDDEN)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        inputs = outputs
    return torch.stack(inputs)


def match_probability(weights, vectors, question, sentence, *, attends):
    """``sigmoid(x^T W y + b)`` of one question and one sentence."""
    x = lstm_states(weights, "sentence._own_reader.lstm.", vectors[question])[-1]
    states = lstm_states(weights, "sentence.answer_reader.lstm.", vectors[sentence])
    y = states[-1]
    if attends:
        of = {name: weights[f"sentence.{name}.weight"] for name in ("of_question", "of_state", "of_context", "of_last")}
        scores = [
            weights["sentence.weight.weight"][0] @ torch.tanh(of["of_question"] @ x + of["of_state"] @ s)
            for s in states
        ]
        alpha = torch.stack(scores).exp()
        context = (alpha / alpha.sum()) @ states
        y = torch.tanh(of["of_context"] @ context + of["of_last"] @ y)
    return torch.sigmoid(x @ weights["match"] @ y + weights["bias"])


def check_against_equations(sentence_model, *, attends):
    torch.manual_seed(3)
    vectors = torch.randn(VECTORS, 5, dtype=torch.float64)
    matcher = Matcher(sentence_model(FixedVectors(vectors), ReaderSizes(HIDDEN, LAYERS, forget_bias=0.5))).double()
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in matcher.named_parameters()}
    expected = torch.zeros((), dtype=torch.float64)
    for question, sentence, label in PAIRS:
        p = match_probability(weights, vectors, QUESTIONS[question], sentence, attends=attends)
        expected = expected - label * p.log() - (1 - label) * (1 - p).log()
    loss = matcher.cross_entropy(match_batch()).sum()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for name, weight in matcher.named_parameters():
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0, name
        torch.testing.assert_close(weight.grad, weights[name].grad, rtol=1e-9, atol=1e-12, msg=name)


def match_batch():
    questions, sentences = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
        for texts in (QUESTIONS, [sentence for _, sentence, _ in PAIRS])
    )
    lengths = [
        torch.tensor([len(text) for text in texts]) for texts in (QUESTIONS, [sentence for _, sentence, _ in PAIRS])
    ]
    of_pairs = torch.tensor([question for question, _, _ in PAIRS])
    return MatchBatch(
        questions,
        lengths[0],
        of_pairs,
        sentences,
        lengths[1],
        torch.tensor([label for _, _, label in PAIRS], dtype=torch.float64),
    )


def test_three_layers_of_lstm_have_the_loss_and_gradients_of_the_equations():
    check_against_equations(LastState, attends=False)


def test_attention_has_the_loss_and_gradients_of_the_equations():
    check_against_equations(AttentiveState, attends=True)
