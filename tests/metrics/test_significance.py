import random
import tracemalloc

import numpy as np
import pytest

from antiphon.metrics import output_statistics
from antiphon.metrics.output_metrics import Outputs, RatioStats, score_outputs
from antiphon.metrics.output_statistics import bootstrap, compare_systems

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree"]


def systems(*error_rates, sentences=150):
    """Systems that get every word wrong with a given chance, on the same sentences."""
    draw = random.Random(1)
    wanted = [" ".join(draw.choices(WORDS, k=8)) for _ in range(sentences)]
    found = []
    for rate in error_rates:
        texts = [" ".join("oops" if draw.random() < rate else word for word in text.split()) for text in wanted]
        found.append(Outputs(texts, [[w] for w in wanted], [t.split() for t in texts], [[w.split()] for w in wanted]))
    return found


@pytest.mark.parametrize("name", ["accuracy", "edit_distance", "word_error_rate", "bleu", "chrf", "rouge1", "rougeL"])
def test_a_clear_difference_is_significant_and_none_is_not(name):
    first, same, worse = compare_systems([*systems(0.05), *systems(0.05), *systems(0.3)], name)
    assert first.p_value is None
    assert same.p_value > 0.3
    assert worse.p_value < 0.01
    assert first.low <= first.score.value <= first.high


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_an_interval_holds_only_possible_values(name):
    for compared in compare_systems(systems(0.6, sentences=3), name):
        assert 0 <= compared.low <= compared.high <= 100


@pytest.mark.parametrize("name", ["accuracy", "bleu"])
def test_values_and_signatures_are_those_of_the_metric_itself(name):
    outputs = systems(0.1)
    (compared,) = compare_systems(outputs, name)
    measured = score_outputs(outputs[0], [name])[name]
    assert compared.score.value == pytest.approx(measured.value)
    assert measured.signature.split("|")[-1] in compared.score.signature


@pytest.mark.parametrize("name", ["accuracy", "bleu", "chrf"])
def test_another_seed_draws_other_samples_and_the_same_seed_the_same(name):
    outputs = systems(0.1, 0.12)
    assert compare_systems(outputs, name, seed=3) == compare_systems(outputs, name, seed=3)
    assert compare_systems(outputs, name, seed=3) != compare_systems(outputs, name, seed=4)


def test_a_small_difference_on_few_sentences_is_not_significant():
    _, other = compare_systems(systems(0.10, 0.12, sentences=12), "word_error_rate")
    assert other.p_value > 0.05


def drawn_shares(number, seed):
    draw = np.random.default_rng(seed)
    return RatioStats(draw.random(number), np.ones(number), 100.0, "")


def test_samples_drawn_in_blocks_are_those_drawn_at_once(monkeypatch):
    shares = [drawn_shares(37, seed) for seed in (1, 2)]
    at_once = bootstrap(shares)
    monkeypatch.setattr(output_statistics, "_MAX_DRAWN", 37 * 7)
    assert bootstrap(shares) == at_once


def test_memory_does_not_grow_with_the_number_of_outputs():
    """A hundred thousand outputs, drawn a thousand times at once, would take 800 MB."""
    shares = [drawn_shares(100_000, seed) for seed in (1, 2)]
    tracemalloc.start()
    bootstrap(shares)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
