"""The softmax kernel gives what its reference gives, in value and gradient."""

import math
import os
import subprocess
import sys

import pytest
import torch

from antiphon.nn import factored_softmax_triton
from antiphon.nn.copying import CellCopies
from antiphon.nn.factored_softmax import log_token_probabilities
from tests.gradients import value_and_gradients
from tests.nn.test_factored_softmax import draw

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log"),  # of the interpreter
]


def by_kernel(sides, words, *others, weight, device):
    function = factored_softmax_triton.log_token_probabilities
    there = [side.to(device) for side in sides]
    return value_and_gradients(function, there, words.to(device), *others, weight=weight.to(device))


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0, 1000.0])
@pytest.mark.parametrize(("B", "I", "J", "V"), [(1, 1, 1, 1), (2, 5, 3, 40), (2, 66, 17, 130), (1, 3, 70, 200)])
def test_the_softmax_kernel_equals_its_reference(B, I, J, V, scale, device):
    """As close to double precision as single precision allows with logits that large."""
    source, target, words = draw(1, B, I, J, V, scale, torch.float32)
    weight = torch.linspace(-1, 1, I * J).view(I, J)
    exact = value_and_gradients(log_token_probabilities, (source.double(), target.double()), words, weight=weight)
    found = by_kernel((source, target), words, weight=weight, device=device)
    rounding = 8 * scale * torch.finfo(torch.float32).eps
    for ours, reference in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, reference.float(), rtol=1e-4, atol=rounding + 1e-5)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_copies_by_the_softmax_kernel_equal_those_of_its_reference(scale, device):
    source, target, words = draw(1, 2, 5, 3, 40, scale, torch.float32)
    only_copy = torch.tensor([[[True, False, False]], [[False, False, True]]])
    copies = CellCopies(torch.arange(30).view(2, 5, 3) % 3 == 0, only_copy, 39)
    there = CellCopies(copies.is_copy.to(device), only_copy.to(device), 39)
    weight = torch.linspace(-1, 1, 15).view(5, 3) * (copies.is_copy | ~only_copy)
    exact = value_and_gradients(
        log_token_probabilities, (source.double(), target.double()), words, copies, weight=weight
    )
    found = by_kernel((source, target), words, there, weight=weight, device=device)
    rounding = 8 * scale * torch.finfo(torch.float32).eps
    for ours, reference in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, reference.float(), rtol=1e-4, atol=rounding + 1e-5)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_the_softmax_kernel_keeps_sixteen_bits_where_products_may_be_rounded(precision, device):
    """More than the eleven of TF32; and single precision where they may not."""
    source, target, words = draw(1, 2, 20, 9, 300, 3.0, torch.float32)
    weight = torch.linspace(-1, 1, 180).view(20, 9)
    exact = value_and_gradients(log_token_probabilities, (source.double(), target.double()), words, weight=weight)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        found = by_kernel((source, target), words, weight=weight, device=device)
    finally:
        torch.set_float32_matmul_precision(before)
    tolerance = 1e-5 if precision == "highest" else 2.0**-14
    for ours, reference in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, reference.float(), rtol=tolerance, atol=tolerance)


def test_tokens_that_are_impossible_in_a_whole_part_of_the_vocabulary_add_nothing(device):
    """Their peak is minus infinity there, and the difference of two infinities would not be a number."""
    source, target, words = draw(1, 2, 5, 3, 400, 1.0, torch.float32)
    source[:, :2, :200] = target[:, :1, 300:] = float("-inf")
    words = words % 100 + 200
    weight = torch.linspace(-1, 1, 15).view(5, 3)
    exact = value_and_gradients(log_token_probabilities, (source.double(), target.double()), words, weight=weight)
    found = by_kernel((source, target), words, weight=weight, device=device)
    for ours, reference in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, reference.float(), rtol=1e-4, atol=1e-5)


def test_the_softmax_kernel_takes_logits_at_any_address(device):
    source, target, words = draw(1, 1, 5, 3, 40, 1.0, torch.float32)
    moved = torch.cat([torch.zeros(1), source.flatten()]).to(device)[1:].view_as(source)
    found = factored_softmax_triton.log_token_probabilities(moved, target.to(device), words.to(device))
    torch.testing.assert_close(found.cpu(), log_token_probabilities(source, target, words))


def test_rows_that_peak_on_different_words_are_rescued_in_the_kernel(device):
    source, target, words = torch.full((1, 1, 3), -200.0), torch.full((1, 1, 3), -200.0), torch.tensor([[2]])
    source[0, 0, 0] = target[0, 0, 1] = 200.0
    log_word = factored_softmax_triton.log_token_probabilities(*(given.to(device) for given in (source, target, words)))
    torch.testing.assert_close(log_word.cpu(), log_token_probabilities(source.double(), target.double(), words).float())


def test_the_softmax_kernel_takes_half_precision_and_sums_in_single(device):
    source, target, words = draw(1, 2, 5, 3, 40, 1.0, torch.float32)
    rounded = source.bfloat16(), target.bfloat16()
    weight = torch.linspace(-1, 1, 15).view(5, 3)
    exact = value_and_gradients(log_token_probabilities, [side.double() for side in rounded], words, weight=weight)
    found = by_kernel(rounded, words, weight=weight, device=device)
    assert found[0].dtype == torch.float32
    assert found[1].dtype == torch.bfloat16
    torch.testing.assert_close(found[0], exact[0].float())
    for ours, reference in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(ours.float(), reference.float(), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("confidence", [0.99, 0.998, 0.9999])
@pytest.mark.parametrize(("I", "J"), [(5, 3), (70, 3), (3, 70)])
@pytest.mark.parametrize("is_apart", [False, True])
def test_gradients_of_confident_tokens_keep_their_precision_in_bfloat16(I, J, confidence, is_apart, device):
    """``g - g p`` nearly cancels, so it is summed before it is rounded; also where the product of exponentials is 0."""
    V, offset = 40, 150.0 if is_apart else 0.0
    words = torch.arange(J)[None] % V
    source, target = torch.zeros(1, I, V), torch.zeros(1, J, V)
    log_odds = math.log(confidence / (1 - confidence) * (V - 1))
    target[0, torch.arange(J), words[0]] = log_odds
    source[:, :, -1], target[:, :, -1] = offset, -offset  # the peak of every source is no token of these targets
    rounded = source.bfloat16(), target.bfloat16()
    weight = torch.full((I, J), -1.0)
    exact = value_and_gradients(log_token_probabilities, [side.double() for side in rounded], words, weight=weight)
    found = by_kernel(rounded, words, weight=weight, device=device)
    for ours, reference in zip(found[1:], exact[1:], strict=True):
        torch.testing.assert_close(ours.double(), reference.double(), rtol=0.03, atol=1e-6)


@pytest.mark.parametrize("capability", [80, 90])
def test_the_softmax_kernels_compile_for_gpus_that_are_not_here(capability, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.nn.compile_kernels", str(capability)]
    compiled = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    names = {"_sum_tiles", "_add_parts", "_gradient_tiles", "_gradient_rows"}
    assert set(compiled.stdout.split()) == names
