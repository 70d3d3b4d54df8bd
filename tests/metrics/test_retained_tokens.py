from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.metrics.output_metrics import (
    Outputs,
    deletion_metrics,
    is_subsequence,
    retained_positions,
    score_outputs,
    shared_retained,
)

TOKENS = st.lists(st.sampled_from("abc"), max_size=5)


def outputs(predicted, references, sources):
    """Outputs of words between spaces, one reference each."""
    split = [text.split() for text in predicted]
    return Outputs(
        predicted, [[r] for r in references], split, [[r.split()] for r in references], [s.split() for s in sources]
    )


def value(name, *texts):
    return score_outputs(outputs(*texts), [name])[name].value


def every_longest(text, source):
    """All sets of positions of longest common subsequences, by listing every subsequence of the source."""
    for size in range(len(source), -1, -1):
        chosen = combinations(range(len(source)), size)
        found = [set(each) for each in chosen if is_subsequence([source[n] for n in each], text)]
        if found:
            return found
    raise AssertionError


@given(TOKENS, TOKENS, TOKENS)
def test_retained_positions_equal_listing_every_subsequence(text, reference, source):
    of_reference = retained_positions(reference, source)
    assert set(of_reference) in every_longest(reference, source)
    most = max(len(of_reference & each) for each in every_longest(text, source))
    assert shared_retained(text, reference, source) == most


def test_a_reference_takes_the_earliest_positions():
    assert retained_positions(["the", "dog"], ["the", "cat", "and", "the", "dog"]) == {0, 4}


def test_f1_of_retained_tokens_is_the_one_computed_by_hand():
    source, reference = "a b c d e", "a c e"
    assert value("retained_f1", ["a c e"], [reference], [source]) == 100.0
    assert value("retained_f1", ["a b e"], [reference], [source]) == pytest.approx(200 / 3)
    assert value("retained_f1", ["e c a"], [reference], [source]) == pytest.approx(100 / 3)  # one is in order
    assert value("retained_f1", ["a x"], [reference], [source]) == pytest.approx(40.0)
    assert value("retained_f1", [""], [reference], [source]) == 0.0


def test_sentences_are_averaged_or_taken_together():
    texts = ["a", "a b c"], ["a", "d e f"], ["a b", "a b c d e f"]
    assert value("retained_f1", *texts) == pytest.approx(50.0)
    assert value("retained_f1_micro", *texts) == pytest.approx(25.0)


def test_the_best_of_several_references_counts():
    several = Outputs(["a b"], [["c", "a b"]], [["a", "b"]], [[["c"], ["a", "b"]]], [["a", "b", "c"]])
    assert score_outputs(several, ["retained_f1"])["retained_f1"].value == 100.0


def test_rates_are_means_over_sentences():
    texts = ["aa", "b c"], ["aa b", "b"], ["aa b", "b c d e"]
    assert value("compression_rate", *texts) == pytest.approx(50.0)
    assert value("reference_compression_rate", *texts) == pytest.approx((100 + 25) / 2)
    assert value("compression_rate_chars", *texts) == pytest.approx((100 * 2 / 4 + 100 * 3 / 7) / 2)


def test_metrics_of_compression_are_for_references_made_by_deletion():
    sources = ["a b c"] * 10
    assert "retained_f1" in deletion_metrics(outputs(["x"] * 10, ["a c"] * 9 + ["c a"], sources))
    assert deletion_metrics(outputs(["a"] * 10, ["a c"] * 8 + ["c a"] * 2, sources)) == []
    assert deletion_metrics(Outputs(["a"], [["a"]], [["a"]], [[["a"]]])) == []


def test_selected_outputs_keep_their_sources():
    both = outputs(["a", "b"], ["a", "c"], ["a x", "b c"])
    assert score_outputs(both.select([1]), ["retained_f1"])["retained_f1"].value == 0.0
