import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.nn import factored_softmax
from antiphon.nn.factored_softmax import log_token_probabilities


def draw(seed, B, I, J, V, scale=1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randn(B, I, V, generator=generator, dtype=dtype) * scale
    target = torch.randn(B, J, V, generator=generator, dtype=dtype) * scale
    return source, target, torch.randint(V, (B, J), generator=generator)


def naive(source, target, words):
    joint = (source[:, :, None] + target[:, None]).log_softmax(3)
    index = words[:, None, :, None].expand(-1, source.shape[1], -1, -1)
    return joint.gather(3, index)[..., 0]


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.integers(0, 10_000))
def test_factored_equals_the_joint_softmax(B, I, J, V, seed):
    source, target, words = draw(seed, B, I, J, V)
    torch.testing.assert_close(log_token_probabilities(source, target, words), naive(source, target, words))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 100.0, 1000.0])
def test_value_and_gradient_are_exact_for_any_logits(dtype, scale):
    source, target, words = draw(1, 2, 6, 5, 50, scale, dtype)
    weights = torch.rand(2, 6, 5, dtype=dtype)
    logits = [source.requires_grad_(), target.requires_grad_()]
    ours = log_token_probabilities(*logits, words)
    joint = naive(source.double(), target.double(), words)
    rounding = 4 * scale * torch.finfo(dtype).eps  # of logits that large
    torch.testing.assert_close(ours, joint.to(dtype), rtol=1e-5, atol=rounding)
    found = torch.autograd.grad((ours * weights).sum(), logits)
    wanted = torch.autograd.grad((joint * weights).sum(), logits)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=rounding + 1e-6)


def test_rows_that_peak_on_different_words_are_computed_again():
    source, target = torch.full((1, 1, 3), -200.0), torch.full((1, 1, 3), -200.0)
    source[0, 0, 0] = target[0, 0, 1] = 200.0
    log_p = log_token_probabilities(source, target, torch.tensor([[2]]))
    assert log_p.item() == pytest.approx(-400.69, abs=0.01)


def test_recomputing_a_block_at_a_time_changes_nothing(monkeypatch):
    source, target, words = draw(2, 2, 6, 5, 50, 100.0, torch.float32)
    at_once = log_token_probabilities(source, target, words)
    monkeypatch.setattr(factored_softmax, "_BLOCK_ELEMENTS", 50)
    assert torch.equal(log_token_probabilities(source, target, words), at_once)


def test_gradcheck_passes_with_and_without_underflow():
    for scale in (1.0, 400.0):
        source, target, words = draw(3, 2, 3, 2, 4, scale)
        inputs = source.requires_grad_(), target.requires_grad_()
        assert torch.autograd.gradcheck(lambda a, c, w=words: log_token_probabilities(a, c, w), inputs)


def test_words_sum_to_one_in_every_cell():
    source, target, _ = draw(4, 2, 3, 4, 6, 30.0)
    every_word = [log_token_probabilities(source, target, torch.full((2, 4), word)) for word in range(6)]
    total = torch.logsumexp(torch.stack(every_word), 0)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)
