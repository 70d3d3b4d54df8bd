import math

import pytest

from antiphon.metrics import accuracy, edit_distance, perplexity, phoneme_error_rate
from antiphon.metrics.task import Outputs, score_outputs


def test_accuracy_compares_after_nfc():
    assert accuracy(["Cafe\u0301", "b", "c", "d"], ["Café", "b", "c", "x"]).value == 75.0


def test_edit_distance_counts_tokens():
    assert edit_distance([["a", "b"], ["c"]], [["a"], ["c"]]).value == 0.5
    assert edit_distance(["kitten"], ["sitting"]).value == 3.0


def test_phoneme_error_rate_is_edits_per_reference_phoneme():
    assert phoneme_error_rate([["F", "OW"], ["N"]], [["F", "AO", "N"], ["N"]]).value == pytest.approx(50.0)


def test_perplexity_is_the_inverse_geometric_mean():
    assert perplexity(math.log(1 / 8), 3).value == pytest.approx(2.0)
    assert math.isfinite(perplexity(-1e9, 1).value)


def test_scores_carry_signatures_and_fit_the_task():
    outputs = Outputs(["a b"], ["a c"], [["a", "b"]], [["a", "c"]])
    scores = score_outputs(outputs, phonemes=True)
    assert {name: score.value for name, score in scores.items()} == {
        "accuracy": 0.0,
        "edit_distance": 1.0,
        "phoneme_error_rate": 50.0,
    }
    assert all(score.signature for score in scores.values())
    assert "phoneme_error_rate" not in score_outputs(outputs, phonemes=False)
