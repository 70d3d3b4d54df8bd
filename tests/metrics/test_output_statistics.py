import pytest

from antiphon.metrics.output_metrics import Outputs, score_outputs
from antiphon.metrics.output_statistics import SelectionStats

PREDICTED = ["the cat sat on the mat", "a dog", "", "green owls fly by night over the old house"]
WANTED = ["the cat sat on a mat", "a dog barks", "nothing", "green owls fly at night over the old house"]
OUTPUTS = Outputs(
    PREDICTED, [[text] for text in WANTED], [text.split() for text in PREDICTED], [[text.split()] for text in WANTED]
)


@pytest.mark.parametrize("name", ["bleu", "accuracy", "edit_distance", "word_error_rate", "rouge1", "rougeL"])
def test_the_metric_of_summed_statistics_is_the_metric_of_the_corpus(name):
    statistics = SelectionStats.of(name, OUTPUTS)
    value = score_outputs(OUTPUTS, [name])[name].value
    sign = -1 if name in ("edit_distance", "word_error_rate") else 1
    assert statistics.value(statistics.rows.sum(0)) == pytest.approx(sign * value)
    assert len(statistics.rows) == len(statistics.gain) == 4


def test_chrf_is_taken_as_a_mean_of_sentences():
    statistics = SelectionStats.of("chrf", OUTPUTS)
    assert statistics.value(statistics.rows.sum(0)) == pytest.approx(statistics.gain.mean())
