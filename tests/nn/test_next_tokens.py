import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.nn.factored_softmax import (
    TokenTable,
    log_normalisers_by_sentence,
    multiply_by_sentence,
    next_tokens,
    top_tokens,
)


def draw(seed, B, I, N, V, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    source = scale * torch.randn(B, I, V, generator=generator, dtype=torch.float64)
    target = scale * torch.randn(N, V, generator=generator, dtype=torch.float64)
    sentence = torch.randint(B, (N,), generator=generator).sort().values
    return source, target, sentence, torch.randn(N, I, generator=generator, dtype=torch.float64)


@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.integers(2, 9), st.sampled_from([1.0, 1e3]),
    st.integers(0, 10_000),
)  # fmt: skip
def test_the_mixture_is_the_weighted_sum_of_softmaxes_for_any_logits(B, I, N, V, scale, seed):
    source, target, sentence, log_weight = draw(seed, B, I, N, V, scale)
    found = next_tokens(TokenTable.of(source), target, sentence, log_weight)
    joint = (source[sentence] + target[:, None]).log_softmax(2)
    torch.testing.assert_close(found.log_prob.exp(), (log_weight[:, :, None] + joint).logsumexp(1).exp())
    log_z = (source[sentence] + target[:, None]).logsumexp(2)
    torch.testing.assert_close(found.log_z, log_z)
    torch.testing.assert_close(log_normalisers_by_sentence(TokenTable.of(source), target, sentence), log_z)


@pytest.mark.parametrize("gather", [0, 2**40])
def test_products_by_sentence_are_the_same_by_copies_and_by_a_loop(gather, monkeypatch):
    monkeypatch.setattr("antiphon.nn.factored_softmax._SMALL_GATHER", gather)
    left, right = torch.randn(7, 3), torch.randn(4, 3, 5)
    sentence = torch.tensor([0, 0, 2, 2, 2, 3, 3])
    wanted = torch.stack([row @ right[s] for row, s in zip(left, sentence, strict=True)])
    torch.testing.assert_close(multiply_by_sentence(left, right, sentence), wanted)


@given(st.integers(1, 6), st.integers(0, 200), st.integers(0, 10_000))
def test_the_best_of_many_words_are_found_block_by_block(width, more, seed):
    scores = torch.randn(8, 64 * 2 * width + 5 + more, generator=torch.Generator().manual_seed(seed))
    best, place = top_tokens(scores, width)
    wanted, wanted_place = scores.topk(width, 1)
    assert torch.equal(best, wanted)
    assert torch.equal(place, wanted_place)
