"""Every kernel gives what its reference gives, in value and gradient, for ordinary and for extreme scores."""

import pytest
import torch

from antiphon.kernels import factored_softmax, lstm, marginal
from antiphon.lattice import log_marginal
from antiphon.nn.factored_softmax import log_word_probabilities
from antiphon.nn.next_words import WordTable, log_normalisers_by_sentence, next_words, top_words
from antiphon.nn.recurrent import LSTM
from antiphon.search.beam_search import BeamSearch, search_outputs
from antiphon.search.hypothesis import BeamSettings
from tests.lattice.test_lattice import draw_lengths, draw_moves
from tests.nn.test_factored_softmax import draw
from tests.search.small_models import batch_of, small_model, sources

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero encountered in log")  # of the interpreter
IMPOSSIBLE = float("-inf")


def value_and_gradients(function, scores, *others, weight):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in scores]
    value = function(*leaves, *others)
    gradients = torch.autograd.grad((value * weight).masked_fill(value.isneginf(), 0.0).sum(), leaves)
    return value.detach().cpu(), *(gradient.cpu() for gradient in gradients)


def assert_same_marginal(write, shift, lengths, device):
    weight = torch.linspace(0.5, 2, len(write), dtype=write.dtype)
    wanted = value_and_gradients(log_marginal, (write, shift), *lengths, weight=weight)
    moved = [tensor.to(device) for tensor in (write, shift)]
    found = value_and_gradients(
        marginal.log_marginal, moved, *(length.to(device) for length in lengths), weight=weight.to(device)
    )
    for ours, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("B", "I", "J"), [(1, 1, 1), (2, 1, 5), (3, 6, 1), (4, 7, 5), (2, 70, 9)])
def test_the_marginal_kernel_equals_its_reference(B, I, J, dtype, device):
    write, shift = draw_moves(1, B, I, J, dtype=dtype)
    assert_same_marginal(write, shift, (draw_lengths(2, B, I), draw_lengths(3, B, J)), device)


def test_the_marginal_kernel_is_exact_for_extreme_scores(device):
    write, shift = draw_moves(1, 3, 6, 5, scale=300.0)
    assert_same_marginal(write, shift, (torch.tensor([6, 3, 6]), torch.tensor([5, 5, 2])), device)


def test_impossible_moves_never_become_nan_in_the_marginal_kernel(device):
    write, shift = draw_moves(1, 3, 4, 4)
    write[0, 1, 2] = shift[0, 2, 0] = IMPOSSIBLE
    write[1] = IMPOSSIBLE
    shift[2] = IMPOSSIBLE
    lengths = torch.tensor([4, 4, 4]), torch.tensor([4, 4, 4])
    assert_same_marginal(write, shift, lengths, device)
    assert marginal.log_marginal(write.to(device), shift.to(device), *(n.to(device) for n in lengths))[1] == IMPOSSIBLE


def test_the_marginal_kernel_does_not_look_at_padding(device):
    write, shift = draw_moves(1, 2, 5, 5)
    padded = [scores.clone() for scores in (write, shift)]
    for scores in padded:
        scores[1, 3:] = scores[1, :, 2:] = float("nan")
    lengths = torch.tensor([5, 3]).to(device), torch.tensor([5, 2]).to(device)
    with_padding = marginal.log_marginal(*(scores.to(device) for scores in padded), *lengths)
    assert torch.equal(with_padding, marginal.log_marginal(write.to(device), shift.to(device), *lengths))


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 1000.0])
@pytest.mark.parametrize(("B", "I", "J", "V"), [(1, 1, 1, 1), (2, 5, 3, 40), (2, 66, 17, 130)])
def test_the_softmax_kernel_equals_its_reference(B, I, J, V, scale, device):
    """As close to double precision as single precision allows with logits that large."""
    source, target, words = draw(1, B, I, J, V, scale, torch.float32)
    weight = torch.linspace(-1, 1, I * J).view(I, J)
    exact = value_and_gradients(log_word_probabilities, (source.double(), target.double()), words, weight=weight)
    found = value_and_gradients(
        factored_softmax.log_word_probabilities,
        (source.to(device), target.to(device)),
        words.to(device),
        weight=weight.to(device),
    )
    rounding = 8 * scale * torch.finfo(torch.float32).eps
    for ours, reference in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, reference.float(), rtol=1e-4, atol=rounding + 1e-5)


def test_rows_that_peak_on_different_words_are_rescued_in_the_kernel(device):
    source, target, words = torch.full((1, 1, 3), -200.0), torch.full((1, 1, 3), -200.0), torch.tensor([[2]])
    source[0, 0, 0] = target[0, 0, 1] = 200.0
    log_word = factored_softmax.log_word_probabilities(*(given.to(device) for given in (source, target, words)))
    torch.testing.assert_close(log_word.cpu(), log_word_probabilities(source.double(), target.double(), words).float())


def test_the_softmax_kernel_takes_half_precision_and_sums_in_single(device):
    source, target, words = draw(1, 2, 5, 3, 40, 1.0, torch.float32)
    rounded = source.bfloat16(), target.bfloat16()
    weight = torch.linspace(-1, 1, 15).view(5, 3)
    exact = value_and_gradients(log_word_probabilities, [side.double() for side in rounded], words, weight=weight)
    found = value_and_gradients(
        factored_softmax.log_word_probabilities,
        [side.to(device) for side in rounded],
        words.to(device),
        weight=weight.to(device),
    )
    assert found[0].dtype == torch.float32
    assert found[1].dtype == torch.bfloat16
    torch.testing.assert_close(found[0], exact[0].float())
    for ours, reference in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(ours.float(), reference.float(), rtol=0.02, atol=0.01)


@pytest.mark.parametrize(("B", "T", "H"), [(1, 1, 4), (3, 5, 16), (5, 3, 20), (33, 4, 40), (70, 3, 128)])
def test_the_lstm_kernel_equals_its_reference(B, T, H, device):
    """States, cells, and the gradients of inputs, weights and the state before."""
    torch.manual_seed(1)
    reference = torch.nn.LSTM(6, H, batch_first=True).double()
    leaves = [torch.randn(B, T, 6), torch.randn(B, H), torch.randn(B, H), *reference.parameters()]
    weights = torch.randn(B, T, H), torch.randn(B, H)

    def by_reference(inputs, hidden, cell, *weights):
        named = {name: weight for (name, _), weight in zip(reference.named_parameters(), weights, strict=True)}
        states, (_, last_cell) = torch.func.functional_call(reference, named, (inputs, (hidden[None], cell[None])))
        return states, last_cell[0]

    def by_kernel(inputs, hidden, cell, from_inputs, from_states, *biases):
        gates = torch.nn.functional.linear(inputs, from_inputs, sum(biases))
        states, cells = lstm.lstm_states(gates, from_states, hidden, cell)
        return states, cells[:, -1]

    exact = values_and_all_gradients(by_reference, [leaf.detach().double() for leaf in leaves], weights)
    found = values_and_all_gradients(by_kernel, [leaf.detach().float().to(device) for leaf in leaves], weights)
    assert_as_close_as_products_are(found, exact, device)


def assert_as_close_as_products_are(found, exact, device):
    """Products are in TF32 on a GPU."""
    for ours, wanted in zip(found, exact, strict=True):
        assert (ours - wanted).norm() <= (3e-3 if device == "cuda" else 1e-5) * wanted.norm()


def values_and_all_gradients(function, leaves, weights):
    for leaf in leaves:
        leaf.requires_grad_()
    values = function(*leaves)
    total = sum((value * weight.to(value)).sum() for value, weight in zip(values, weights, strict=True))
    return [tensor.detach().cpu() for tensor in (*values, *torch.autograd.grad(total, leaves))]


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_by_kernels_equals_one_without(layers, device, monkeypatch):
    torch.manual_seed(1)
    reader, lengths = LSTM(6, 20, layers).to(device), torch.tensor([4, 1, 3], device=device)
    inputs, state = torch.randn(3, 4, 6, device=device), torch.randn(2, layers, 3, 20, device=device).unbind()
    ways = []
    for has_kernel in (False, True):
        monkeypatch.setattr(LSTM, "_has_kernel", lambda *_, answer=has_kernel: answer)
        states, after = reader(inputs, state)
        ways.append((states, *after, *reader.last_state(inputs, lengths)))
    assert_as_close_as_products_are(ways[1], ways[0], device)


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize(("B", "I", "K", "V"), [(1, 1, 1, 5), (2, 3, 4, 40), (2, 20, 6, 131)])
def test_words_mixed_by_a_kernel_equal_their_reference(B, I, K, V, scale, device, monkeypatch):
    torch.manual_seed(2)
    source, target = scale * torch.randn(B, I, V), scale * torch.randn(B * K, V)
    sentence, log_weight = torch.arange(B).repeat_interleave(K), torch.randn(B * K, I).double().log_softmax(1)
    wanted = next_words(WordTable.of(source.double()), 0, target.double(), sentence, log_weight)
    monkeypatch.setattr("antiphon.nn.next_words.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_words(WordTable.of(source.to(device)), 0, *given)
    torch.testing.assert_close(found.log_z.cpu(), wanted.log_z.float())
    torch.testing.assert_close(found.log_prob.exp().cpu(), wanted.log_prob.exp().float())
    log_z = log_normalisers_by_sentence(WordTable.of(source.to(device)), *given[:2])
    torch.testing.assert_close(log_z.cpu(), wanted.log_z.float())


@torch.inference_mode()
def test_prefixes_that_are_not_the_same_number_of_each_source_do_without_kernels(device, monkeypatch):
    torch.manual_seed(2)
    source, target, log_weight = torch.randn(3, 4, 13), torch.randn(5, 13), torch.randn(5, 4).double()
    sentence = torch.tensor([0, 0, 0, 2, 2])
    wanted = next_words(WordTable.of(source), 0, target, sentence, log_weight)
    monkeypatch.setattr("antiphon.nn.next_words.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_words(WordTable.of(source.to(device)), 0, *given)
    torch.testing.assert_close(found.log_prob.cpu(), wanted.log_prob)
    torch.testing.assert_close(
        log_normalisers_by_sentence(WordTable.of(source.to(device)), *given[:2]).cpu(), wanted.log_z
    )


@pytest.mark.parametrize("K", [2, 6])
def test_a_source_whose_prefixes_have_no_weight_is_skipped_and_changes_no_other(K, device, monkeypatch):
    torch.manual_seed(2)
    source, target, log_weight = torch.randn(2, 4, 24), torch.randn(2 * K, 24), torch.randn(2 * K, 4).double()
    sentence = torch.arange(2).repeat_interleave(K)
    wanted = next_words(WordTable.of(source), 0, target, sentence, log_weight)
    log_weight[:K] = IMPOSSIBLE
    monkeypatch.setattr("antiphon.nn.next_words.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_words(WordTable.of(source.to(device)), 0, *given)
    assert (found.log_prob[:K] == IMPOSSIBLE).all()
    torch.testing.assert_close(found.log_prob[K:].cpu(), wanted.log_prob[K:])


@pytest.mark.parametrize(("width", "V"), [(1, 130), (3, 400), (10, 1300)])
def test_the_best_words_by_a_kernel_equal_their_reference(width, V, device, monkeypatch):
    torch.manual_seed(3)
    scores = torch.randn(5, V + 4)
    scores[1, 9:] = IMPOSSIBLE
    wanted, wanted_place = scores[:, 4:].topk(width, 1)
    monkeypatch.setattr("antiphon.nn.next_words.has_kernel", lambda logits: True)
    best, place = (found.cpu() for found in top_words(scores.to(device)[:, 4:], width))
    assert torch.equal(best, wanted)
    assert torch.equal(place[wanted > IMPOSSIBLE], wanted_place[wanted > IMPOSSIBLE])
    assert all(len(set(row)) == width for row in place.tolist())


@pytest.mark.parametrize("name", ["transducer", "geometric", "forced"])
@torch.inference_mode()
def test_a_search_by_kernels_finds_what_its_reference_finds(name, device, monkeypatch):
    model, batch = small_model(name, 2, target_size=9).float(), batch_of(sources(4, 2))
    settings = BeamSettings(beam=2, nbest=2, max_length_ratio=1.0, max_length_extra=1)
    wanted = search_outputs(model, batch, settings)
    monkeypatch.setattr("antiphon.nn.next_words.has_kernel", lambda logits: True)
    monkeypatch.setattr("antiphon.nn.transition._fits_factors", lambda *sides: False)  # as on a GPU
    found = BeamSearch(model.to(device), batch.to(device), settings, static_shapes=True).run()
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], rel=1e-4)
