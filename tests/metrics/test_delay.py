import pytest

from antiphon.metrics.delay import Delays, score_delays

# Source tokens read when each token was written, lengths of source and reference; AL, LAAL, AP, DAL.
GOLDEN = [
    ([3, 4, 5, 6, 6, 6], 6, 6, (3.0, 3.0, 0.8333, 3.0)),
    ([2, 4, 6], 6, 6, (3.0, 3.0, 0.3333, 2.0)),
    ([1, 1, 2, 2, 3, 4, 5, 5, 6], 6, 6, (-0.7778, 0.5556, 0.8056, 1.0)),
    ([2, 2, 5, 8, 8], 8, 5, (1.85, 1.85, 0.625, 2.48)),
]


def values(*outputs):
    return [score.value for score in score_delays([Delays(*output) for output in outputs]).values()]


@pytest.mark.parametrize(("read", "source", "reference", "expected"), GOLDEN)
def test_delays_match_known_values(read, source, reference, expected):
    assert values((read, source, reference)) == pytest.approx(expected, abs=5e-5)


def test_delays_are_means_over_outputs_and_pass_over_empty_ones():
    both = values(GOLDEN[0][:3], GOLDEN[3][:3], ([], 4, 2))
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(GOLDEN[0][3], GOLDEN[3][3], strict=True)], abs=5e-5)


def test_waiting_for_the_whole_input_costs_its_length():
    assert values(([7] * 7, 7, 7))[0] == 7.0
