import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.nn.best_words import best_words


def draw_pairs(seed, cells, prefixes, M, V, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randn(cells, V, generator=generator, dtype=dtype)
    target = torch.randn(prefixes, V, generator=generator, dtype=dtype)
    cell, prefix = (torch.randint(size, (M,), generator=generator) for size in (cells, prefixes))
    return source, target, cell, prefix, torch.rand(M, generator=generator) < 0.7


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 30), st.integers(2, 9), st.integers(0, 10_000))
def test_the_best_words_are_those_of_the_softmax_in_order(cells, prefixes, M, V, seed):
    source, target, cell, prefix, wanted = draw_pairs(seed, cells, prefixes, M, V)
    found = best_words(source, target, cell, prefix, wanted, width=V - 1, first_word=1, end=0)
    joint = (source[cell] + target[prefix]).log_softmax(1)
    log_prob, order = joint[:, 1:].sort(1, descending=True)
    torch.testing.assert_close(found.log_prob, log_prob)
    assert torch.equal(found.token, order + 1)
    torch.testing.assert_close(found.log_end, joint[:, 0])
