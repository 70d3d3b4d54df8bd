"""The embedded data are what the demo says they are."""

import gzip
import io
import sys

from rich.console import Console

from antiphon.cli.demo import program_name
from antiphon.demo import FOLDER, pairs_of
from antiphon.demo.lessons import accuracies, closest_pronunciations, learn_to_pronounce, words_won
from antiphon.recipe.recipe_file import load_recipe
from antiphon.serve.run_info import SUGGESTIONS


def words_of(part):
    return {pair.source for pair in pairs_of(part)}


def test_no_held_out_word_is_learnt_from():
    listed = set(gzip.decompress((FOLDER / "scowl.words.txt.gz").read_bytes()).decode().split())
    assert len(listed) > 70_000
    held_out = words_of("dev") | words_of("test")
    assert len(held_out) == 1_500
    for known in (listed, words_of("train"), words_of("few")):
        assert not known & held_out


def test_the_few_pairs_are_some_of_the_many():
    assert len(pairs_of("few")) == 5_000
    assert words_of("few") < words_of("train")


def test_notices_of_the_data_are_shipped():
    for name in ("cmudict", "scowl"):
        assert "Copyright" in (FOLDER / f"{name}.LICENSE").read_text(encoding="utf-8")


def test_the_baseline_pronounces_like_the_closest_spelling():
    known = [pair for pair in pairs_of("few") if pair.source in ("abba", "abbreviated")]
    assert closest_pronunciations(known, ["abbreviate"]) == ["AH B R IY V IY EY T IH D"]


def test_spelling_is_right_only_letter_by_letter():
    held_out = pairs_of("test")[:4]
    spelt = [pair.source for pair in held_out[:3]] + ["x" + held_out[3].source]
    assert list(accuracies({"three of four": spelt}, held_out).columns[1].cells) == ["75.0 %"]


def test_words_won_are_wrong_before_and_right_after():
    held_out = pairs_of("test")[:4]
    right = [pair.source for pair in held_out]
    before, after = ["x", right[1], "x", "x"], [right[0], right[1], "y", right[3]]
    assert list(words_won(before, after, held_out).columns[2].cells) == [right[0], right[3]]


def test_the_demo_works_without_matplotlib_and_shows_samples_after_every_epoch(tmp_path, monkeypatch, plot_training):
    some = pairs_of("test")[:60]
    (tmp_path / "pairs.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in some))
    files = [f"data.{part}={tmp_path / 'pairs.tsv'}" for part in ("train", "dev", "test")]
    recipe = load_recipe(FOLDER / "pronunciation.toml", [*files, "model.hidden_size=8", "train.max_epochs=2"])
    monkeypatch.setattr("antiphon.demo.lessons.load_recipe", lambda _: recipe)
    monkeypatch.setattr("antiphon.demo.lessons.pairs_of", lambda _: some)
    monkeypatch.setattr("antiphon.training.fit.plot_training", plot_training)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = io.StringIO()
    learn_to_pronounce(tmp_path / "demo", Console(file=out, width=80), force=False, threads=1)
    shown = out.getvalue()
    assert shown.count("knight →") == 2
    assert "words wrong" in shown
    assert all(f"{name}.png skipped: pictures need matplotlib" in shown for name in ("training", "alignment"))


def test_the_words_suggested_as_examples_are_held_out():
    suggested = (FOLDER / SUGGESTIONS).read_text().split()
    assert len(suggested) > 4
    assert set(suggested) <= {pair.source for pair in pairs_of("dev")[:400]}


def test_the_next_commands_can_be_typed_however_the_program_was_started(monkeypatch):
    monkeypatch.setenv("PATH", "")
    for started, typed in (("/x/antiphon/__main__.py", "python -m antiphon"), ("/x/bin/antiphon", "/x/bin/antiphon")):
        monkeypatch.setattr(sys, "argv", [started])
        assert program_name() == typed
