import numpy as np
import pytest

from antiphon.tune import CandidateTable, find_weights


def table_of(weights, sentences=200, candidates=12, seed=0):
    """Lists whose right candidate is the one that the given weights would pick; the metric is how many are right."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(sentences, candidates, 4))
    gain = np.zeros((sentences, candidates))
    gain[np.arange(sentences), (scores * weights).sum(2).argmax(1)] = 100.0
    return CandidateTable(scores, gain[:, :, None], gain, lambda total: float(total[0]) / sentences)


@pytest.mark.parametrize("weights", [(1.0, 0.5, 0.2, 0.3), (0.1, 1.0, 1.0, -0.8)])
def test_weights_that_explain_the_lists_are_found(weights):
    table = table_of(np.array(weights))
    start = np.array([1.0, 1.0, 1.0, 0.0])
    found = find_weights(table, start)
    assert table.value(found) > max(90.0, table.value(start))


def test_a_score_that_weighs_nothing_stays_out():
    table = table_of(np.array([1.0, 0.5, 0.2, 0.3]))
    found = find_weights(table, np.array([0.0, 1.0, 1.0, 0.0]))
    assert found[0] == 0.0
    assert found[:3].max() == pytest.approx(1.0)


def test_weights_stay_within_reach():
    table, start = table_of(np.array([1.0, 0.01, 5.0, 3.0])), np.array([1.0, 1.0, 1.0, -1.0])
    found = find_weights(table, start, reach=0.5)
    assert table.value(found) > table.value(start)
    assert (found / found[:3].max() >= [0.5, 0.5, 0.5, -np.inf]).all()
    assert table.value(found) < table.value(find_weights(table, start))


def test_very_small_weights_can_grow_within_reach():
    table, start = table_of(np.array([1.0, 0.3, 0.2, 0.5])), np.array([1.0, 0.001, 0.001, 0.0])
    assert table.value(find_weights(table, start, reach=0.5)) > 90.0


def test_only_free_weights_change():
    table, start = table_of(np.array([1.0, 0.3, 0.2, 3.0])), np.array([1.0, 0.001, 0.001, 0.0])
    found = find_weights(table, start, free=np.array([False, False, False, True]))
    assert (found[:3] == start[:3]).all()
    assert found[3] > 1.0


def test_weights_never_get_worse_on_the_lists():
    table = table_of(np.array([1.0, 1.0, 1.0, 0.0]))
    start = np.array([1.0, 1.0, 1.0, 0.0])
    assert table.value(find_weights(table, start)) >= table.value(start) == 100.0


def test_shorter_lists_are_never_picked_beyond_their_end():
    table = table_of(np.array([1.0, 1.0, 1.0, 0.0]), sentences=20)
    table.scores[:, 5:] = -np.inf
    assert table.pick(np.array([0.0, 1.0, -1.0, 2.0])).max() < 5
    assert np.isfinite(table.expected_gain(np.array([1.0, 0.0, 1.0, 0.5])))


def test_a_metric_that_is_no_mean_is_made_better():
    table = table_of(np.array([1.0, 0.2, 0.2, 0.0]))
    squared = CandidateTable(table.scores, table.statistics, table.gain, lambda total: float(total[0]) ** 2)
    start = np.array([0.1, 1.0, 1.0, 0.0])
    assert squared.value(find_weights(squared, start)) > squared.value(start)


def test_a_weight_of_zero_leaves_out_a_score_of_minus_infinity():
    table = table_of(np.array([1.0, 1.0, 1.0, 0.0]), sentences=20)
    weights, others = np.array([1.0, 0.0, 1.0, 0.5]), table.scores[:, :, [0, 2, 3]]
    table.scores[:, ::2, 1] = -np.inf
    assert (table.pick(weights) == (others * [1.0, 1.0, 0.5]).sum(2).argmax(1)).all()
    assert np.isfinite(table.expected_gain(weights))
    assert (table.pick(np.array([1.0, 0.1, 1.0, 0.5])) % 2 == 1).all()


def test_lists_of_which_all_candidates_are_impossible_gain_nothing():
    table = table_of(np.array([1.0, 1.0, 1.0, 0.0]), sentences=20)
    table.scores[:, :, 0] = -np.inf
    assert table.expected_gain(np.array([1.0, 1.0, 1.0, 0.0])) == 0.0
    assert np.isfinite(find_weights(table, np.array([1.0, 1.0, 1.0, 0.0]))).all()
