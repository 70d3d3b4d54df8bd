"""What info and compare show is what applies and what is known."""

import shutil

from antiphon import Evaluation
from antiphon.cli.info import applicable_settings
from antiphon.console import PlainConsole
from antiphon.metrics.output_metrics import Score
from antiphon.recipe.schema import Recipe
from antiphon.report.comparison import ComparedSystems, System, as_table
from antiphon.report.tables import format_metric, info_table, metrics_table
from tests.sealing import seal_again


def settings_of(kind):
    recipe = Recipe.model_validate({"model": {"kind": kind}})
    return {f"{section}.{name}" for section, values in applicable_settings(recipe).items() for name in values}


def test_only_settings_of_the_kind_are_shown():
    assert {"model.transition", "search.beam", "train.seed"} <= settings_of("transducer")
    assert not {"search.weights", "model.sentence", "data.more_words", "model.kind"} & settings_of("transducer")
    assert "search.weights" in settings_of("noisy_channel")
    assert not {key for key in settings_of("suffix_rule") if key.startswith(("train.", "search."))}
    assert not {key for key in settings_of("language_model") if key.startswith("search.")}


def test_info_shows_what_was_changed_and_cuts_no_path(toy_run, antiphon):
    shown = antiphon("info", toy_run).out
    assert "train.learning_rate" in shown
    assert "train.clip" not in shown
    assert "train.clip" in antiphon("info", toy_run, "--all").out
    joined = "".join(line.split("│")[2].strip() for line in shown.splitlines() if line.count("│") == 3)
    assert "shipped/toy/train.tsv" in joined
    assert "…" not in shown


def test_a_run_whose_training_was_stopped_is_used_with_a_note(toy_run, antiphon, tmp_path):
    stopped = shutil.copytree(toy_run, tmp_path / "stopped")
    (stopped / "metrics.json").unlink()
    seal_again(stopped)
    told = antiphon("predict", stopped, stdin=b"badu\n")
    assert (told.status, told.out) == (0, "baaduun\n")
    assert told.err == f"antiphon: {stopped}: its training has not ended; this is its best epoch so far\n"
    assert antiphon("predict", toy_run, stdin=b"badu\n").err == ""
    assert antiphon("ensemble", toy_run, stopped, "--out", tmp_path / "both").err == told.err


def test_a_folder_of_runs_is_refused_with_their_names(toy_run, antiphon, tmp_path):
    for name in "ba":
        shutil.copytree(toy_run, tmp_path / name)
    (tmp_path / "no-run").mkdir()
    assert antiphon("info", tmp_path).err.endswith(f"; runs in it: {tmp_path / 'a'}, {tmp_path / 'b'}\n")


def test_numbers_have_the_digits_that_they_deserve(toy_run, antiphon, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("badu\tbaaduun\n")
    shown = antiphon("evaluate", toy_run, pairs).out
    assert "100.00" in shown
    assert "100.0000" not in shown


def test_the_table_of_compare_has_no_row_of_which_nothing_is_known():
    systems = [System("runs/x", "matcher", {"parameters": 3}), System("runs/y", "overlap", {})]
    assert list(as_table(ComparedSystems(systems)).columns[0].cells) == ["kind", "parameters"]


def test_signatures_are_never_shortened(capsys):
    score = Score(1.0, "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0|" + "x" * 60)
    PlainConsole().print(metrics_table(Evaluation(1234, {"bleu": score}, 1234, 0)))
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert shown.count("x") >= 60
    assert "1,234 source" in shown


def test_huge_perplexities_have_an_exponent():
    assert [format_metric("perplexity", value) for value in (2.5e15, 46.5519)] == ["2.5e+15", "46.552"]


def test_info_shows_metrics_with_the_digits_of_their_kind():
    facts = {"dev_accuracy": 66.6667, "dev_perplexity": 1.23456, "parameters": 1234567, "pairs_per_second": 3087.512}
    table = info_table("runs/x", {"metrics": facts | {"training_seconds": 0.31234, "seed": 20261116}})
    assert list(table.columns[1].cells) == ["66.67", "1.235", "1,234,567", "3,088", "0.3123", "20261116"]
