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


@given(st.integers(1, 6), st.integers(0, 200), st.integers(0, 10_000))
def test_the_best_of_many_words_are_found_block_by_block(width, more, seed):
    pairs = draw_pairs(seed, 3, 3, 8, 64 * 2 * width + 5 + more)
    found = best_words(*pairs, width=width, first_word=4, end=3)
    joint = (pairs[0][pairs[2]] + pairs[1][pairs[3]]).log_softmax(1)
    log_prob, place = joint[:, 4:].topk(width, 1)
    torch.testing.assert_close(found.log_prob, log_prob)
    assert torch.equal(found.token, place + 4)


def test_known_normalisers_are_taken():
    pairs = draw_pairs(1, 3, 3, 8, 20)
    log_z = (pairs[0][pairs[2]] + pairs[1][pairs[3]]).logsumexp(1)
    for ours, wanted in zip(
        best_words(*pairs, width=5, first_word=4, end=3, log_z=log_z + 1),
        best_words(*pairs, width=5, first_word=4, end=3),
        strict=True,
    ):
        torch.testing.assert_close(ours, wanted - 1 if ours.is_floating_point() else wanted)
