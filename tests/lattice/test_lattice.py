import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.lattice import best_path, log_marginal, posteriors, sample_alignments
from antiphon.lattice.paths import from_diagonals, to_diagonals
from antiphon.lite.graphs import best_path as best_path_of_lite
from tests.lattice.every_path import every_path, listed_best, listed_log_marginal, path_score, thesis_log_marginal

sizes = st.integers(1, 4)
seeds = st.integers(0, 10_000)


def draw_moves(seed, B, I, J, scale=1.0, dtype=torch.float64):
    """Move scores of a proper transition: write = emit * word, read = 1 - emit."""
    generator = torch.Generator().manual_seed(seed)
    odds = torch.randn(B, I, J, generator=generator, dtype=dtype) * scale
    word = -torch.rand(B, I, J, generator=generator, dtype=dtype) * scale
    return torch.nn.functional.logsigmoid(odds) + word, torch.nn.functional.logsigmoid(-odds)


def full(length, B=1):
    return torch.full((B,), length)


def draw_lengths(seed, B, longest):
    lengths = torch.randint(1, longest + 1, (B,), generator=torch.Generator().manual_seed(seed))
    lengths[0] = longest
    return lengths


@given(sizes, sizes, seeds)
def test_marginal_equals_listing_every_path(I, J, seed):
    write, read = draw_moves(seed, 1, I, J)
    ours = log_marginal(write, read, full(I), full(J))
    torch.testing.assert_close(ours[0], listed_log_marginal(write[0], read[0]))


@given(sizes, st.integers(1, 6), seeds)
def test_marginal_equals_the_recursion_of_the_thesis(I, J, seed):
    write, read = draw_moves(seed, 1, I, J)
    ours = log_marginal(write, read, full(I), full(J))
    torch.testing.assert_close(ours[0], thesis_log_marginal(write[0], read[0]))


@given(st.integers(1, 4), sizes, st.integers(1, 6), seeds)
def test_padding_changes_nothing(B, I, J, seed):
    write, read = draw_moves(seed, B, I, J)
    source_lengths, target_lengths = draw_lengths(seed, B, I), draw_lengths(seed + 1, B, J)
    outside = torch.arange(I)[None, :, None] >= source_lengths[:, None, None]
    outside = outside | (torch.arange(J)[None, None] >= target_lengths[:, None, None])
    write, read = write.masked_fill(outside, float("nan")), read.masked_fill(outside, float("nan"))
    together = log_marginal(write, read, source_lengths, target_lengths)
    posterior = posteriors(write, read, source_lengths, target_lengths)
    path = best_path(write, read, source_lengths, target_lengths)
    for b, (i, j) in enumerate(zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)):
        alone = write[b : b + 1, :i, :j], read[b : b + 1, :i, :j], full(i), full(j)
        torch.testing.assert_close(together[b], log_marginal(*alone)[0])
        torch.testing.assert_close(posterior.write[b, :i, :j], posteriors(*alone).write[0])
        torch.testing.assert_close(posterior.read[b, :i, :j], posteriors(*alone).read[0])
        assert posterior.write[b].sum() == pytest.approx(j)
        assert path.alignment[b, :j].tolist() == best_path(*alone).alignment[0].tolist()
        assert (path.alignment[b, j:] == -1).all()


@given(sizes, st.integers(1, 6), seeds)
def test_posteriors_obey_their_laws(I, J, seed):
    write, read = draw_moves(seed, 2, I, J, scale=3.0)
    posterior = posteriors(write, read, full(I, 2), full(J, 2))
    torch.testing.assert_close(posterior.write.sum(1), torch.ones(2, J, dtype=torch.float64))
    torch.testing.assert_close(posterior.read[:, :-1].sum(2), torch.ones(2, I - 1, dtype=torch.float64))
    assert (posterior.read[:, -1] == 0).all()


@given(sizes, sizes, seeds)
def test_posterior_of_a_write_is_its_share_of_the_listed_paths(I, J, seed):
    write, read = draw_moves(seed, 1, I, J)
    write.requires_grad_()
    listed_log_marginal(write[0], read[0]).backward()
    torch.testing.assert_close(posteriors(write.detach(), read, full(I), full(J)).write, write.grad)


@given(sizes, sizes, seeds)
def test_best_path_equals_the_best_of_every_path(I, J, seed):
    write, read = draw_moves(seed, 1, I, J)
    found = best_path(write, read, full(I), full(J))
    assert found.log_score.item() == pytest.approx(listed_best(write[0], read[0]))
    assert path_score(tuple(found.alignment[0].tolist()), write[0], read[0]).item() == pytest.approx(
        found.log_score.item()
    )


@given(sizes, sizes, seeds)
def test_among_equal_paths_both_twins_take_the_one_that_reads_sooner(I, J, seed):
    """With scores of 0 and -1 nearly every pair has several best paths; their sums are exact."""
    draw = torch.Generator().manual_seed(seed)
    write, read = (-torch.randint(0, 2, (1, I, J), generator=draw).double() for _ in range(2))
    write[0, :-1, -1] = float("-inf")  # the last token is the end symbol
    scored = ((path_score(rows, write[0], read[0]).item(), rows[::-1]) for rows in every_path(I, J))
    expected = list(max(scored)[1][::-1])
    assert best_path(write, read, full(I), full(J)).alignment[0].tolist() == expected
    columns = [(write[:, :, j].numpy(), read[:, :, j].numpy()) for j in range(J)]
    assert best_path_of_lite(columns, np.array([I]), np.array([J])).tolist() == [expected]


def test_gradcheck_passes_on_a_ragged_batch():
    write, read = draw_moves(3, 3, 4, 5)
    lengths = torch.tensor([4, 1, 3]), torch.tensor([5, 2, 1])
    inputs = write.requires_grad_(), read.requires_grad_()
    assert torch.autograd.gradcheck(lambda w, s: log_marginal(w, s, *lengths), inputs)


@given(sizes, st.integers(1, 6), seeds)
def test_analytic_gradient_equals_the_recorded_one(I, J, seed):
    moves = [draw_moves(seed, 1, I, J)[k].requires_grad_() for k in (0, 1)]
    analytic = torch.autograd.grad(log_marginal(*moves, full(I), full(J)).sum(), moves)
    recorded = torch.autograd.grad(thesis_log_marginal(moves[0][0], moves[1][0]), moves, allow_unused=True)
    for ours, theirs in zip(analytic, recorded, strict=True):
        torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_extreme_scores_stay_finite_in_value_and_gradient(dtype, scale):
    moves = [tensor.requires_grad_() for tensor in draw_moves(7, 3, 12, 9, scale, dtype)]
    log_p = log_marginal(*moves, torch.tensor([12, 1, 5]), torch.tensor([9, 4, 9]))
    log_p.sum().backward()
    assert log_p.dtype == dtype
    assert torch.isfinite(log_p).all()
    assert all(torch.isfinite(move.grad).all() for move in moves)


def test_a_pair_without_any_path_has_probability_zero_and_no_gradient():
    write = torch.full((1, 2, 2), -math.inf, requires_grad=True)
    read = torch.zeros(1, 2, 2, requires_grad=True)
    log_p = log_marginal(write, read, full(2), full(2))
    log_p.sum().backward()
    assert log_p.item() == -math.inf
    assert (write.grad == 0).all()
    assert (read.grad == 0).all()


@given(sizes, sizes)
def test_diagonals_and_back_is_the_same_grid(I, J):
    grid = torch.arange(2.0 * I * J).reshape(2, I, J)
    diagonals = to_diagonals(grid)
    assert diagonals.shape == (I + J, 2, I)
    assert all(diagonals[i + j, b, i] == grid[b, i, j] for b in range(2) for i in range(I) for j in range(J))
    assert torch.equal(from_diagonals(diagonals), grid)


def test_samples_follow_the_posterior_over_every_path():
    write, read = draw_moves(5, 1, 3, 3)
    paths = {rows: path_score(rows, write[0], read[0]) for rows in every_path(3, 3)}
    log_p = torch.stack(list(paths.values())).logsumexp(0)
    drawn = sample_alignments(write, read, full(3), full(3), 20_000, generator=torch.Generator().manual_seed(1))
    counts = Counter(map(tuple, drawn[:, 0].tolist()))
    assert counts.keys() <= paths.keys()
    for rows, score in paths.items():
        p = (score - log_p).exp().item()
        assert counts[rows] / 20_000 == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 20_000))


def test_the_expected_moves_of_samples_are_the_posteriors():
    write, read = draw_moves(8, 3, 5, 4, dtype=torch.float32)
    lengths = torch.tensor([5, 1, 3]), torch.tensor([4, 2, 1])
    drawn = sample_alignments(write, read, *lengths, 10_000, generator=torch.Generator().manual_seed(2))
    assert drawn.shape == (10_000, 3, 4)
    rows = torch.arange(5)[:, None]
    wrote = drawn[:, :, None] == rows
    first = torch.zeros_like(drawn[:, :, :1])
    did_read = (rows >= torch.cat([first, drawn[:, :, :-1]], 2)[:, :, None]) & (rows < drawn[:, :, None])
    expected = posteriors(write, read, *lengths)
    torch.testing.assert_close(wrote.float().mean(0), expected.write, rtol=0, atol=0.02)
    torch.testing.assert_close(did_read.float().mean(0), expected.read, rtol=0, atol=0.02)


@given(sizes, st.integers(1, 6), seeds)
def test_a_generator_repeats_its_samples_and_padding_changes_none_of_their_laws(I, J, seed):
    write, read = draw_moves(seed, 2, I, J)
    lengths = draw_lengths(seed, 2, I), draw_lengths(seed + 1, 2, J)
    one, other = (
        sample_alignments(write, read, *lengths, 5, generator=torch.Generator().manual_seed(seed)) for _ in range(2)
    )
    assert torch.equal(one, other)
    for b, (i, j) in enumerate(zip(lengths[0].tolist(), lengths[1].tolist(), strict=True)):
        assert (one[:, b, j:] == -1).all()
        assert (one[:, b, j - 1] == i - 1).all()
        assert (one[:, b, :j].diff(dim=1) >= 0).all()
        assert (one[:, b, :j] >= 0).all()


def assert_no_path(moves, lengths, where):
    """Every function says of the pairs ``where`` that they have no path, and gradients are 0 there."""
    leaves = [move.clone().requires_grad_() for move in moves]
    log_p = log_marginal(*leaves, *lengths)
    log_p.sum().backward()
    assert (log_p == -math.inf).tolist() == where.tolist()
    assert all((leaf.grad[where] == 0).all() and not leaf.grad.isnan().any() for leaf in leaves)
    assert all((posterior[where] == 0).all() for posterior in posteriors(*moves, *lengths))
    path, samples = best_path(*moves, *lengths), sample_alignments(*moves, *lengths, 3)
    assert (path.log_score == -math.inf).tolist() == where.tolist()
    assert samples.shape == (3, len(where), moves[0].shape[2])
    assert (path.alignment[where] == -1).all()
    assert (samples[:, where] == -1).all()
    assert (samples[:, ~where, :1] >= 0).all()


def test_a_side_without_tokens_has_no_path():
    lengths = torch.tensor([1, 3, 0, 0, 3, 2]), torch.tensor([0, 0, 4, 0, 4, 1])
    where = torch.tensor([True, True, True, True, False, False])
    assert_no_path(draw_moves(6, 6, 3, 4), lengths, where)


def test_impossible_moves_leave_no_path_and_no_nan():
    write, read = draw_moves(7, 3, 3, 4)
    write[0], read[1] = -math.inf, -math.inf  # the second pair can never reach its last row
    write[2, :-1] = -math.inf  # the third writes all in the last row
    assert_no_path((write, read), (full(3, 3), full(4, 3)), torch.tensor([True, True, False]))
    assert (best_path(write, read, full(3, 3), full(4, 3)).alignment[2] == 2).all()


@pytest.mark.parametrize(("B", "I", "J"), [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 0, 0)])
def test_empty_lattices_have_results_of_their_shapes(B, I, J):
    moves = torch.zeros(2, B, I, J)
    assert_no_path(tuple(moves), (full(I, B), full(J, B)), torch.ones(B, dtype=torch.bool))
    assert posteriors(*moves, full(I, B), full(J, B)).read.shape == (B, I, J)
    assert best_path(*moves, full(I, B), full(J, B)).alignment.shape == (B, J)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_single_precision(dtype):
    write, read = (move.to(dtype).requires_grad_() for move in draw_moves(9, 2, 40, 30))
    lengths = torch.tensor([40, 7], dtype=torch.int32), torch.tensor([30, 9], dtype=torch.int32)
    log_p = log_marginal(write, read, *lengths)
    log_p.sum().backward()
    single = [move.detach().float() for move in (write, read)]
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p, log_marginal(*single, *lengths))
    assert write.grad.dtype == read.grad.dtype == dtype
    assert posteriors(write, read, *lengths).write.dtype == torch.float32
    torch.testing.assert_close(best_path(write, read, *lengths), best_path(*single, *lengths))
    assert sample_alignments(write, read, *lengths).dtype == torch.long


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("function", [log_marginal, posteriors, best_path, sample_alignments])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"log_write": torch.zeros(3, 4)}, r"log_write is float32 of shape \(3, 4\).*expected.*\(B, I, J\)"),
        ({"log_read": torch.zeros(2, 4, 3)}, r"log_read .*\(2, 4, 3\).*expected.*\(2, 3, 4\)"),
        ({"log_read": torch.zeros(2, 3, 4).long()}, "log_read is int64.*expected floating-point"),
        ({"source_lengths": torch.tensor([3])}, r"source_lengths .*\(1,\).*expected integers of shape \(2,\)"),
        ({"target_lengths": torch.tensor([4, 5])}, "target_lengths holds 5, expected numbers from 0 to 4"),
        ({"source_lengths": torch.tensor([-1, 3])}, "source_lengths holds -1, expected numbers from 0 to 3"),
    ],
)
def test_what_does_not_fit_is_named_with_what_was_expected(function, changed, message):
    arguments = {
        "log_write": torch.zeros(2, 3, 4),
        "log_read": torch.zeros(2, 3, 4),
        "source_lengths": torch.tensor([3, 2]),
        "target_lengths": torch.tensor([4, 4]),
    }
    with pytest.raises(ValueError, match=message):
        function(**(arguments | changed))
