import math

import numpy as np
import pytest

from antiphon.exceptions import RunError
from antiphon.ranking.overlap import Logistic, Overlap

SENTENCES = [["the", "cat", "sat"], ["the", "cat", "cat"], ["a", "dog"]]


def test_words_in_common_are_counted_once_and_weighted_by_rarity():
    overlap = Overlap.learn(SENTENCES, {"the"})
    count, weighted = overlap.features(["the", "cat", "cat", "dog", "owl"], ["cat", "owl", "the", "cat"])
    assert count == 2
    assert weighted == pytest.approx(math.log(4 / 3) + math.log(4 / 1))
    assert overlap.features([], ["cat"]) == (0, 0)


def test_word_frequencies_survive_their_file(tmp_path):
    overlap = Overlap.learn([*SENTENCES, ["sentences", "#"]], {"the"})
    overlap.save(tmp_path / "overlap.tsv")
    again = Overlap.load(tmp_path / "overlap.tsv", {"the"})
    assert (again.sentences, again.document_frequency) == (overlap.sentences, overlap.document_frequency)
    assert (tmp_path / "overlap.tsv").read_text().startswith("sentences\t4\ncat\t2\nthe\t2\n")


@pytest.mark.parametrize("text", ["", "cat\t3\n", "sentences\tmany\n"])
def test_damaged_word_frequencies_are_refused(tmp_path, text):
    (tmp_path / "overlap.tsv").write_text(text)
    with pytest.raises(RunError, match=r"overlap\.tsv"):
        Overlap.load(tmp_path / "overlap.tsv", ())


def test_the_logistic_regression_minimises_its_penalised_loss():
    draw = np.random.default_rng(0)
    features = draw.normal(size=(200, 2))
    labels = (features[:, 0] + draw.normal(size=200) > 0).astype(np.float32)
    l2 = 0.5
    fitted = Logistic.fit(["one", "two"], features, labels, l2)
    residual = 1 / (1 + np.exp(-fitted.log_odds(features))) - labels
    gradient = features.T @ residual + l2 * np.array(fitted.weights)
    np.testing.assert_allclose([*gradient, residual.sum()], 0, atol=1e-2)


def test_a_logistic_regression_survives_its_file_and_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "logistic.json"
    model = Logistic(("a", "b"), (0.25, -1.5), 3.0)
    model.save(path)
    assert Logistic.load(path) == model
    path.write_text('{"names": ["a"], "weights": [1, 2], "intercept": 0}')
    with pytest.raises(RunError, match="2 weights, expected one for each of 1"):
        Logistic.load(path)
    path.write_text("{")
    with pytest.raises(RunError, match="damaged"):
        Logistic.load(path)
