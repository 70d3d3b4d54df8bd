"""The kernels of a decoding step give what their references give."""

import pytest
import torch

from antiphon.nn.factored_softmax import TokenTable, log_normalisers_by_sentence, next_tokens, top_tokens

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log"),  # of the interpreter
]
IMPOSSIBLE = float("-inf")


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize(("B", "I", "K", "V"), [(1, 1, 1, 5), (2, 3, 4, 40), (2, 20, 6, 131)])
def test_next_tokens_of_a_kernel_equal_their_reference(B, I, K, V, scale, device, monkeypatch):
    torch.manual_seed(2)
    source, target = scale * torch.randn(B, I, V), scale * torch.randn(B * K, V)
    sentence, log_weight = torch.arange(B).repeat_interleave(K), torch.randn(B * K, I).double().log_softmax(1)
    wanted = next_tokens(TokenTable.of(source.double()), target.double(), sentence, log_weight)
    monkeypatch.setattr("antiphon.nn.factored_softmax.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_tokens(TokenTable.of(source.to(device)), *given)
    torch.testing.assert_close(found.log_z.cpu(), wanted.log_z.float())
    torch.testing.assert_close(found.log_prob.exp().cpu(), wanted.log_prob.exp().float())
    log_z = log_normalisers_by_sentence(TokenTable.of(source.to(device)), *given[:2])
    torch.testing.assert_close(log_z.cpu(), wanted.log_z.float())


@torch.inference_mode()
def test_kernels_need_the_same_number_of_prefixes_of_each_source(device, monkeypatch):
    torch.manual_seed(2)
    source, target, log_weight = torch.randn(3, 4, 13), torch.randn(5, 13), torch.randn(5, 4).double()
    sentence = torch.tensor([0, 0, 0, 2, 2])
    wanted = next_tokens(TokenTable.of(source), target, sentence, log_weight)
    monkeypatch.setattr("antiphon.nn.factored_softmax.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_tokens(TokenTable.of(source.to(device)), *given)
    torch.testing.assert_close(found.log_prob.cpu(), wanted.log_prob)
    torch.testing.assert_close(
        log_normalisers_by_sentence(TokenTable.of(source.to(device)), *given[:2]).cpu(), wanted.log_z
    )


@pytest.mark.parametrize("K", [2, 6])
def test_a_source_whose_prefixes_have_no_weight_is_skipped_and_changes_no_other(K, device, monkeypatch):
    torch.manual_seed(2)
    source, target, log_weight = torch.randn(2, 4, 24), torch.randn(2 * K, 24), torch.randn(2 * K, 4).double()
    sentence = torch.arange(2).repeat_interleave(K)
    wanted = next_tokens(TokenTable.of(source), target, sentence, log_weight)
    log_weight[:K] = IMPOSSIBLE
    monkeypatch.setattr("antiphon.nn.factored_softmax.has_kernel", lambda logits: True)
    given = [tensor.to(device) for tensor in (target, sentence, log_weight)]
    found = next_tokens(TokenTable.of(source.to(device)), *given)
    assert (found.log_prob[:K] == IMPOSSIBLE).all()
    torch.testing.assert_close(found.log_prob[K:].cpu(), wanted.log_prob[K:])


@pytest.mark.parametrize(("width", "V"), [(1, 130), (3, 400), (10, 1300)])
def test_the_best_words_by_a_kernel_equal_their_reference(width, V, device, monkeypatch):
    torch.manual_seed(3)
    scores = torch.randn(5, V + 4)
    scores[1, 9:] = IMPOSSIBLE
    wanted, wanted_place = scores[:, 4:].topk(width, 1)
    monkeypatch.setattr("antiphon.nn.factored_softmax.has_kernel", lambda logits: True)
    best, place = (found.cpu() for found in top_tokens(scores.to(device)[:, 4:], width))
    assert torch.equal(best, wanted)
    assert torch.equal(place[wanted > IMPOSSIBLE], wanted_place[wanted > IMPOSSIBLE])
    assert all(len(set(row)) == width for row in place.tolist())
