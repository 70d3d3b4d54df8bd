"""Attention from output prefixes to the whole input."""

import pytest
import torch

from antiphon.exceptions import RecipeError
from antiphon.nn.transducer_layers import SourceAttention, SourceContext
from antiphon.recipe.recipe_file import parse_recipe

torch.manual_seed(0)
ATTENTION = SourceAttention(3, 4, dropout=0.0).double().eval()
STATES, SOURCE = torch.randn(2, 5, 3).double(), torch.randn(2, 6, 4).double()


def test_each_prefix_sees_the_mean_of_the_source_weighed_by_its_scores():
    seen = ATTENTION(STATES, SourceContext(SOURCE, torch.ones(2, 6, dtype=torch.bool)))
    for b in range(2):
        for j in range(5):
            weights = (SOURCE[b] @ ATTENTION.query(STATES[b, j]) / 2).softmax(0)
            expected = torch.tanh(ATTENTION.combine(torch.cat([STATES[b, j], weights @ SOURCE[b]])))
            torch.testing.assert_close(seen[b, j], expected)


def test_what_is_padding_is_not_seen():
    valid = torch.arange(6) < torch.tensor([[6], [4]])
    padded = ATTENTION(STATES, SourceContext(SOURCE, valid))
    alone = ATTENTION(STATES[1:], SourceContext(SOURCE[1:, :4], torch.ones(1, 4, dtype=torch.bool)))
    torch.testing.assert_close(padded[1:], alone)


def test_a_source_that_is_still_read_cannot_be_attended_to():
    with pytest.raises(RecipeError, match="attention needs the whole source"):
        parse_recipe({"model": {"encoder": "unidirectional", "context": "attention"}}, "here")
