import math

import pytest
import sacrebleu

from antiphon.exceptions import how_to_install
from antiphon.metrics.output_metrics import RATIO_METRICS, Outputs, missing_metrics_note, perplexity, score_outputs


def outputs(predicted, *references):
    """Outputs of words between spaces; ``references`` are parallel lists."""
    wanted = [list(texts) for texts in zip(*references, strict=True)]
    return Outputs(predicted, wanted, [p.split() for p in predicted], [[w.split() for w in ws] for ws in wanted])


def value(name, *arguments):
    return score_outputs(outputs(*arguments), [name])[name].value


def test_accuracy_compares_after_nfc():
    assert value("accuracy", ["Cafe\u0301", "b", "c", "d"], ["Café", "b", "c", "x"]) == 75.0


def test_edit_distance_counts_tokens():
    assert value("edit_distance", ["a b", "c"], ["a", "c"]) == 0.5


def test_error_rates_are_edits_per_reference_token():
    assert value("symbol_error_rate", ["F OW", "N"], ["F AO N", "N"]) == pytest.approx(50.0)
    assert value("word_error_rate", ["a b c", ""], ["a b", "x y"]) == pytest.approx(75.0)


def test_the_best_of_several_references_counts():
    assert value("accuracy", ["a", "b"], ["x", "b"], ["a", "y"]) == 100.0
    assert value("word_error_rate", ["a b"], ["a b c d"], ["a x"]) == pytest.approx(50.0)
    assert value("rouge1", ["a b"], ["x"], ["a b"]) == 100.0


def test_bleu_and_chrf_are_those_of_sacrebleu():
    predicted, wanted = ["the cat sat on the mat", "a dog ran"], ["the cat sat on a mat", "the dog ran off"]
    scores = score_outputs(outputs(predicted, wanted), ["bleu", "chrf"])
    assert scores["bleu"].value == sacrebleu.BLEU(tokenize="none").corpus_score(predicted, [wanted]).score
    assert scores["chrf"].value == sacrebleu.CHRF().corpus_score(predicted, [wanted]).score
    assert "tok:none" in scores["bleu"].signature


def test_metrics_without_their_library_are_named(monkeypatch):
    assert missing_metrics_note(["bleu", "rouge1", "rougeL"]) is None
    monkeypatch.delitem(RATIO_METRICS, "rouge1")
    missing = f"rouge1: rouge-score is missing, expected it installed: {how_to_install('summarisation')}"
    assert missing_metrics_note(["bleu", "rouge1", "rougeL"]) == missing


def test_rouge_keeps_hashes_and_chinese():
    assert value("rouge1", ["## 人 口"], ["## 人 口"]) == 100.0
    assert value("rouge2", ["a b c"], ["a b d"]) == pytest.approx(50.0)
    assert value("rougeL", ["a x b"], ["a b"]) == pytest.approx(80.0)


def test_perplexity_is_the_inverse_geometric_mean():
    assert perplexity(math.log(1 / 8), 3).value == pytest.approx(2.0)
    assert math.isfinite(perplexity(-1e9, 1).value)


def test_every_score_carries_a_signature():
    names = ["accuracy", "edit_distance", "symbol_error_rate", "word_error_rate", "bleu", "chrf", "rouge1", "rougeL"]
    scores = score_outputs(outputs(["a b"], ["a c"]), names)
    assert list(scores) == names
    assert all(score.signature for score in scores.values())
