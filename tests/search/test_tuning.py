import numpy as np
import pytest

from antiphon.search.tuning import CandidateLists, find_weights


def lists_of(weights, sentences=200, candidates=12, seed=0):
    """Lists whose right candidate is the one that the given weights would pick."""
    draw = np.random.default_rng(seed)
    parts = draw.normal(size=(sentences, candidates, 4))
    right = (parts * weights).sum(2).argmax(1)
    gain = np.zeros((sentences, candidates))
    gain[np.arange(sentences), right] = 100.0
    return CandidateLists(parts, gain)


@pytest.mark.parametrize("weights", [(1.0, 0.5, 0.2, 0.3), (0.1, 1.0, 1.0, -0.8)])
def test_weights_that_explain_the_lists_are_found(weights):
    lists = lists_of(np.array(weights))
    start = np.array([1.0, 1.0, 1.0, 0.0])
    found = find_weights(lists, start)
    assert lists.value(found) > max(90.0, lists.value(start))


def test_a_part_that_weighs_nothing_stays_out():
    lists = lists_of(np.array([1.0, 0.5, 0.2, 0.3]))
    found = find_weights(lists, np.array([0.0, 1.0, 1.0, 0.0]))
    assert found[0] == 0.0
    assert found[:3].max() == pytest.approx(1.0)


def test_weights_never_get_worse_on_the_lists():
    lists = lists_of(np.array([1.0, 1.0, 1.0, 0.0]))
    start = np.array([1.0, 1.0, 1.0, 0.0])
    assert lists.value(find_weights(lists, start)) >= lists.value(start) == 100.0


def test_shorter_lists_are_never_picked_beyond_their_end():
    lists = lists_of(np.array([1.0, 1.0, 1.0, 0.0]), sentences=20)
    lists.parts[:, 5:] = -np.inf
    assert lists.pick(np.array([0.0, 1.0, -1.0, 2.0])).max() < 5
    assert np.isfinite(lists.expected_value(np.array([1.0, 0.0, 1.0, 0.5])))


def test_a_quality_of_the_callers_own_is_made_better():
    lists = lists_of(np.array([1.0, 0.2, 0.2, 0.0]))
    start = np.array([0.1, 1.0, 1.0, 0.0])

    def quality(weights):
        return -float((lists.pick(weights) != lists.gain.argmax(1)).sum())

    assert quality(find_weights(lists, start, quality=quality)) > quality(start)
