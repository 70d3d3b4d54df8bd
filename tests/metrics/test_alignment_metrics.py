import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.data.gold_links import GoldLinks
from antiphon.metrics.alignment_metrics import score_links

LINKS = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)))


def values(found, gold):
    return [score.value for score in score_links(found, gold, "by hand").values()]


def test_the_metrics_are_those_computed_by_hand():
    gold = [GoldLinks.of([(0, 0), (1, 1)], [(1, 2), (2, 2)]), GoldLinks.of([(0, 1)])]
    found = [{(0, 0), (1, 2), (2, 0)}, {(0, 1)}]  # of 4 links 2 are sure and 3 possible; there are 3 sure ones
    assert values(found, gold) == pytest.approx([100 * (1 - 5 / 7), 75.0, 100 * 2 / 3])


def test_links_of_different_pairs_are_different():
    assert values([{(0, 0)}, set()], [GoldLinks.of([]), GoldLinks.of([(0, 0)])]) == [100.0, 0.0, 0.0]


@given(LINKS.filter(bool), LINKS)
def test_the_sure_links_have_no_errors(sure, possible):
    assert values([sure], [GoldLinks.of(sure, possible)]) == [0.0, 100.0, 100.0]


@given(LINKS.filter(bool), LINKS, LINKS)
def test_links_that_are_not_possible_are_all_wrong(sure, possible, found):
    gold = GoldLinks.of(sure, possible)
    assert values([found - gold.possible], [gold]) == [100.0, 0.0, 0.0]


@given(LINKS, LINKS.filter(bool), LINKS)
def test_with_sure_links_alone_the_error_rate_is_one_minus_f1(found, sure, more):
    error, precision, recall = values([found | more], [GoldLinks.of(sure)])
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert error == pytest.approx(100 - f1)


def test_signatures_say_how_links_were_found():
    scores = score_links([set()], [GoldLinks.of([(0, 0)])], "posterior > 0.5")
    assert {score.signature for score in scores.values()} == {"sure and possible links|posterior > 0.5|percent"}
