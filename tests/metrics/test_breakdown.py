"""Groups of pairs have the metrics of their pairs alone; edits are those of the shortest alignments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from antiphon.metrics.breakdown import Traits, break_down, count_edits, edits_between
from antiphon.metrics.output_metrics import Outputs, score_outputs

TRAITS = [
    Traits(("N", "PL"), 3, ()),
    Traits(("PL", "N"), 4, ("source",)),
    Traits(("N", "SG"), 4, ("source", "reference")),
    Traits((), 9, ()),
]


def outputs(predicted, wanted):
    return Outputs(
        predicted, [[text] for text in wanted], list(map(list, predicted)), [[list(text)] for text in wanted]
    )


OUTPUTS = outputs(["aa", "ab", "bb", "c"], ["aa", "aa", "bb", "cc"])


def accuracies(by, traits=TRAITS, found=OUTPUTS):
    return {(each.by, each.name): each.metrics["accuracy"] for each in break_down(found, traits, [by], ["accuracy"])}


def test_a_pair_counts_for_each_of_its_features_and_for_its_tag_in_any_order():
    assert accuracies("features") == {
        ("feature", "N"): pytest.approx(200 / 3),
        ("feature", "PL"): 50.0,
        ("feature", "SG"): 100.0,
        ("tag", "N;PL"): 50.0,
        ("tag", ""): 0.0,
        ("tag", "N;SG"): 100.0,
    }


def test_lengths_and_unseen_symbols_make_groups():
    assert accuracies("length") == {("length", "3"): 100.0, ("length", "4"): 50.0, ("length", "9"): 0.0}
    assert accuracies("unseen") == {
        ("unseen", "none"): 50.0,
        ("unseen", "in source"): 50.0,
        ("unseen", "in reference"): 100.0,
    }


def test_every_metric_of_a_group_is_that_of_its_pairs_alone():
    (group, *_) = break_down(OUTPUTS, TRAITS, ["features"], ["accuracy", "edit_distance", "bleu"])
    alone = score_outputs(OUTPUTS.select([0, 1, 2]), ["accuracy", "edit_distance", "bleu"])
    assert group.metrics == {name: score.value for name, score in alone.items()}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60))
def test_many_lengths_make_few_ranges_that_hold_every_pair_once(lengths):
    traits = [Traits((), length, ()) for length in lengths]
    groups = break_down(outputs(["a"] * len(lengths), ["a"] * len(lengths)), traits, ["length"], ["accuracy"])
    assert len(groups) <= 12
    assert sum(group.pairs for group in groups) == len(lengths)


def test_edits_are_counted_with_the_first_example():
    found = count_edits(outputs(["aXc", "bXd", "ab", "abcd"], ["abc", "bbd", "abc", "abc"]), ["1", "2", "3", "4"])
    assert [(each.kind, each.wanted, each.written, each.count, each.example) for each in found] == [
        ("substitution", "b", "X", 2, "1"),
        ("insertion", "", "d", 1, "4"),
        ("deletion", "c", "", 1, "3"),
    ]


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_edits_are_as_many_as_the_edit_distance(wanted, written):
    assert len(list(edits_between(wanted, written))) == Levenshtein.distance(wanted, written)
