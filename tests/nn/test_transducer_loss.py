"""The loss for models of others: values, gradients, memory, and messages about what does not fit."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from antiphon import transducer_loss
from tests.lattice.every_path import listed_log_marginal
from tests.lattice.test_lattice import draw_lengths

sizes = st.integers(1, 4)


def draw(seed, B, I, J, V, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, I, V), (B, J, V), (B, I, J)
    source, target, odds = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    targets = torch.randint(V, (B, J), generator=generator)
    return source, target, odds, targets, draw_lengths(seed, B, I), draw_lengths(seed + 1, B, J)


def listed_loss(source, target, odds, targets, final_write):
    """Of one pair without padding, from the softmax of every cell and a list of all paths."""
    joint = (source[:, None] + target[None]).log_softmax(2)
    log_token = joint[:, torch.arange(len(targets)), targets]
    emit = odds.sigmoid()
    if final_write == "forced":
        emit = torch.cat([emit[:-1], torch.ones_like(emit[:1])])
    return -listed_log_marginal(emit.log() + log_token, torch.log1p(-odds.sigmoid()))


@given(sizes, sizes, sizes, st.integers(1, 5), st.sampled_from(["learned", "forced"]), st.integers(0, 10_000))
def test_the_loss_of_each_pair_equals_listing_every_path(B, I, J, V, final_write, seed):
    source, target, odds, targets, *lengths = draw(seed, B, I, J, V)
    targets = targets.masked_fill(torch.arange(J) >= lengths[1][:, None], -100)
    arguments = source, target, odds, targets, *lengths
    losses = transducer_loss(*arguments, reduction="none", final_write=final_write)
    for b, (i, j) in enumerate(zip(*(length.tolist() for length in lengths), strict=True)):
        alone = source[b, :i], target[b, :j], odds[b, :i, :j], targets[b, :j]
        torch.testing.assert_close(losses[b], listed_loss(*alone, final_write))
    torch.testing.assert_close(transducer_loss(*arguments, final_write=final_write), losses.mean())
    torch.testing.assert_close(transducer_loss(*arguments, final_write=final_write, reduction="sum"), losses.sum())


@pytest.mark.parametrize("final_write", ["learned", "forced"])
def test_gradcheck_passes_for_both_logits_and_the_odds(final_write):
    *scores, targets, source_lengths, target_lengths = draw(3, 3, 4, 5, 6)
    leaves = [score.requires_grad_() for score in scores]

    def loss(source, target, odds):
        return transducer_loss(source, target, odds, targets, source_lengths, target_lengths, final_write=final_write)

    assert torch.autograd.gradcheck(loss, leaves)


@pytest.mark.parametrize("shape", [(), (1,), (4, 1), (2, 1, 1), (1, 4, 5)])
def test_odds_of_any_shape_are_broadcast_to_the_cells(shape):
    source, target, _, *rest = draw(1, 2, 4, 5, 6)
    odds = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    loss = transducer_loss(source, target, odds, *rest)
    torch.testing.assert_close(loss, transducer_loss(source, target, odds.expand(2, 4, 5), *rest))
    loss.backward()
    assert odds.grad.shape == shape


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest result of all operations."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        found = function(*arguments, **(keywords or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return found


def test_no_tensor_over_cells_and_vocabulary_is_made():
    I, J, V = 30, 20, 200
    source, target, odds, targets, *lengths = draw(5, 2, I, J, V, torch.float32)
    with LargestTensor() as largest:
        leaves = [score.requires_grad_() for score in (source, target, odds)]
        transducer_loss(*leaves, targets, *lengths).backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
    assert largest.elements <= 2 * (I + J) * (V + I + 1) < 2 * I * J * V


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_loss_is_in_float32_or_float64_and_gradients_in_the_type_of_their_scores(dtype):
    *scores, targets, source_lengths, target_lengths = draw(2, 3, 6, 5, 7)
    leaves = [score.to(dtype).requires_grad_() for score in scores]
    loss = transducer_loss(*leaves, targets.int(), source_lengths.int(), target_lengths.int())
    loss.backward()
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert all(leaf.grad.dtype == dtype for leaf in leaves)
    exact = transducer_loss(*(leaf.detach().double() for leaf in leaves), targets, source_lengths, target_lengths)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)


def test_tokens_that_are_forbidden_by_infinite_logits_have_finite_gradients():
    source, target, odds, targets, *lengths = draw(4, 2, 4, 3, 6)
    targets = targets.clamp(max=4)
    source[:, :, 5] = -math.inf
    leaves = [score.requires_grad_() for score in (source, target, odds)]
    loss = transducer_loss(*leaves, targets, *lengths)
    loss.backward()
    torch.testing.assert_close(loss, transducer_loss(source[..., :5], target[..., :5], odds, targets, *lengths))
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


def test_a_pair_without_tokens_has_an_infinite_loss_and_no_gradient():
    source, target, odds, targets, *_ = draw(4, 3, 2, 3, 4)
    leaves = [score.requires_grad_() for score in (source, target, odds)]
    lengths = torch.tensor([1, 2, 0]), torch.tensor([0, 3, 3])
    losses = transducer_loss(*leaves, targets, *lengths, reduction="none")
    assert losses.isinf().tolist() == [True, False, True]
    losses.sum().backward()
    assert all((leaf.grad[0::2] == 0).all() and (leaf.grad[1] != 0).any() for leaf in leaves)


@pytest.mark.parametrize(("B", "I", "J"), [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 0, 0)])
def test_empty_batches_and_sides_have_losses_too(B, I, J):
    leaves = [torch.zeros(shape, requires_grad=True) for shape in ((B, I, 4), (B, J, 4), (B, I, J))]
    targets = torch.zeros(B, J, dtype=torch.long)
    lengths = torch.full((B,), I), torch.full((B,), J)
    losses = transducer_loss(*leaves, targets, *lengths, reduction="none")
    assert losses.tolist() == [math.inf] * B
    losses.sum().backward()
    assert all(leaf.grad.shape == leaf.shape and (leaf.grad == 0).all() for leaf in leaves)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source_logits": torch.zeros(4, 6)}, r"source_logits is float32 of shape \(4, 6\).*expected.*\(B, I, V\)"),
        ({"source_logits": torch.zeros(2, 4, 6).long()}, "source_logits is int64.*expected floating-point"),
        ({"target_logits": torch.zeros(2, 5, 7)}, r"target_logits .*\(2, 5, 7\).*expected.*\(2, J, 6\)"),
        ({"target_logits": torch.zeros(5, 6)}, r"target_logits .*\(5, 6\)"),
        ({"emit_log_odds": torch.zeros(2, 5, 4)}, r"emit_log_odds .*\(2, 5, 4\).*expected.*\(2, 4, 5\)"),
        ({"emit_log_odds": torch.zeros(1, 2, 4, 5)}, r"emit_log_odds .*\(1, 2, 4, 5\)"),
        ({"targets": torch.zeros(2, 4).long()}, r"targets is int64 .*\(2, 4\).*expected integers of shape \(2, 5\)"),
        ({"targets": torch.zeros(2, 5)}, "targets is float32.*expected integers"),
        ({"targets": torch.full((2, 5), 6)}, "targets holds 6, expected numbers from 0 to 5"),
        ({"targets": torch.full((2, 5), -1)}, "targets holds -1, expected"),
        ({"source_lengths": torch.tensor([4])}, r"source_lengths .*\(1,\).*expected integers of shape \(2,\)"),
        ({"source_lengths": torch.tensor([4.0, 4.0])}, "source_lengths is float32"),
        ({"source_lengths": torch.tensor([4, 5])}, "source_lengths holds 5, expected numbers from 0 to 4"),
        ({"target_lengths": torch.tensor([6, 5])}, "target_lengths holds 6, expected numbers from 0 to 5"),
        ({"target_lengths": torch.tensor([-1, 5])}, "target_lengths holds -1"),
        ({"reduction": "avg"}, "reduction is 'avg', expected one of 'mean', 'sum', 'none'"),
        ({"final_write": True}, "final_write is True, expected one of 'learned', 'forced'"),
    ],
)
def test_what_does_not_fit_is_named_with_what_was_expected(changed, message):
    arguments = {
        "source_logits": torch.zeros(2, 4, 6),
        "target_logits": torch.zeros(2, 5, 6),
        "emit_log_odds": torch.zeros(2, 4, 5),
        "targets": torch.zeros(2, 5, dtype=torch.long),
        "source_lengths": torch.tensor([4, 3]),
        "target_lengths": torch.tensor([5, 5]),
    }
    with pytest.raises(ValueError, match=message):
        transducer_loss(**(arguments | changed))
