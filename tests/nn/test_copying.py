"""Copying of words in one cell, against sums that are written out."""

import itertools
import math

import pytest
import torch

from antiphon.nn.copying import CellCopies, CopyTable, add_row_copy
from antiphon.nn.factored_softmax import log_token_probabilities
from tests.gradients import value_and_gradients

V = 6
COPIED = torch.tensor([[4, V + 1, 5, V + 1, -1], [V, V + 1, 4, -1, -1]])
TARGET = torch.tensor([[5, V + 1, 4, 3], [V + 1, V, 2, 3]])


def draw_logits(scale=1.0):
    torch.manual_seed(0)
    return scale * torch.randn(2, 5, V + 1, dtype=torch.float64), scale * torch.randn(2, 4, V + 1, dtype=torch.float64)


def listed_log_tokens(source, target):
    """The same log probabilities, cell by cell and word by word."""
    classes = (source[:, :, None] + target[:, None]).log_softmax(3)
    impossible = torch.tensor(-math.inf, dtype=torch.float64)
    cells = []
    for b, i, j in itertools.product(range(2), range(5), range(4)):
        word = int(TARGET[b, j])
        ways = [classes[b, i, j, word]] if word < V else []
        ways += [classes[b, i, j, V]] if COPIED[b, i] == word else []
        cells.append(torch.logsumexp(torch.stack(ways), 0) if ways else impossible)
    return torch.stack(cells).view(2, 5, 4)


def log_tokens(source, target):
    copies = CellCopies.of(COPIED, TARGET, V)
    return log_token_probabilities(source, target, TARGET.masked_fill(TARGET >= V, 1), copies)


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_a_token_is_generated_or_copied(scale):
    logits = draw_logits(scale)
    torch.testing.assert_close(log_tokens(*logits), listed_log_tokens(*logits))


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_gradients_are_those_of_the_listed_sums(scale):
    weight = (
        torch.linspace(0.5, 2, 40, dtype=torch.float64).view(2, 5, 4) * listed_log_tokens(*draw_logits()).isfinite()
    )
    found, expected = (
        value_and_gradients(compute, draw_logits(scale), weight=weight) for compute in (log_tokens, listed_log_tokens)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_copies_at_all_positions_of_a_word_add_up_to_its_probability():
    torch.manual_seed(0)
    table = CopyTable.of(COPIED, V)
    sentence = torch.tensor([0, 0, 1])
    log_prob, log_copy = torch.randn(3, V).double(), torch.randn(3, COPIED.shape[1]).double()
    found = table.add_copies(log_prob, log_copy, sentence).exp()
    for n, b in enumerate(sentence.tolist()):
        for word in range(V + 5):
            rows = [i for i in range(COPIED.shape[1]) if COPIED[b, i] == word]
            expected = sum(log_copy[n, i].exp() for i in rows) + (log_prob[n, word].exp() if word < V else 0.0)
            assert found[n, word] == pytest.approx(float(expected))


def test_in_a_known_row_only_its_own_word_is_copied():
    torch.manual_seed(0)
    classes = torch.randn(3, V + 1).double().log_softmax(1)
    found = add_row_copy(classes, torch.tensor([4, V + 7, -1])).exp()
    assert found[0, 4] == pytest.approx(float(classes[0, 4].exp() + classes[0, V].exp()))
    assert found[0, V] == 0
    assert found[1, V] == pytest.approx(float(classes[1, V].exp()))
    assert found[2, V] == 0
    torch.testing.assert_close(found.sum(1)[:2], torch.ones(2).double())
