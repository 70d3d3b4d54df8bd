import builtins
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from antiphon.exceptions import InputError, RunError, how_to_install
from antiphon.report.plots import NO_GLYPH, optional_picture, plot_alignment, plot_training

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [{"epoch": n, "train_loss": 5.0 / n, "dev_accuracy": 10.0 * n} for n in range(1, 6)]


def size_of_png(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_training_is_drawn(tmp_path):
    plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")
    assert min(size_of_png(tmp_path / "training.png")) > 300


def test_a_training_draws_itself(toy_run):
    assert min(size_of_png(toy_run / "training.png")) > 300


def test_an_alignment_grows_with_its_symbols(tmp_path):
    for name, length in (("short", 3), ("long", 30)):
        symbols = [*"abcdefghijklmnopqrstuvwxyzäöüß"[: length - 1], "</s>"]
        posterior = np.eye(length, dtype=np.float32)
        plot_alignment(symbols, symbols, list(range(length)), posterior, tmp_path / f"{name}.png")
    (short_width, short_height), (long_width, long_height) = (
        size_of_png(tmp_path / f"{name}.png") for name in ("short", "long")
    )
    assert long_width > short_width
    assert long_height > short_height


def test_an_alignment_can_be_drawn_without_posteriors(tmp_path):
    plot_alignment(["a", "</s>"], ["b", "</s>"], [0, 1], None, tmp_path / "x.png")
    assert (tmp_path / "x.png").exists()


def texts_of(path):
    """The texts of an SVG picture, in which text is text."""
    return ["".join(element.itertext()).strip() for element in ElementTree.parse(path).iter(f"{SVG}text")]


def draw_every_picture(folder, kind):
    eye = np.eye(2, dtype=np.float32)
    plot_training(ROWS, ROWS[-1], "accuracy", folder / f"training.{kind}")
    plot_alignment(["$a", " "], ["b", "</s>"], [0, 1], eye, folder / f"alignment.{kind}")
    plot_alignment(["a", "</s>"], ["b", "</s>"], [0, 1], eye, folder / f"attention.{kind}", method="attention")


def test_every_picture_names_its_axes_and_has_a_title_and_a_legend(tmp_path):
    draw_every_picture(tmp_path, "svg")
    training = {
        "Training loss",
        "Held-out pairs",
        "epoch",
        "loss per pair (nats)",
        "dev accuracy",
        "best: 50 (epoch 5)",
    }
    alignment = {"Alignment", "last input symbol read", "output token", "most probable alignment"}
    attention = {"Attention (not an alignment)", "input symbol", "output token", "attention weight", "largest weight"}
    assert set(texts_of(tmp_path / "training.svg")) >= training
    assert set(texts_of(tmp_path / "alignment.svg")) >= alignment | {"posterior probability", "$a", "␣", "b", "</s>"}
    assert set(texts_of(tmp_path / "attention.svg")) >= attention
    assert "most probable alignment" not in texts_of(tmp_path / "attention.svg")


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PDF", b"%PDF")]
)
def test_the_ending_of_the_name_is_the_format_and_the_same_picture_is_the_same_file(tmp_path, kind, start):
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        draw_every_picture(tmp_path / name, kind)
    pictures = sorted((tmp_path / "once").iterdir())
    assert len(pictures) == 3
    for picture in pictures:
        assert picture.read_bytes().startswith(start)
        assert picture.read_bytes() == (tmp_path / "again" / picture.name).read_bytes()


@pytest.mark.parametrize(
    ("losses", "ticks", "most"),
    [((5.0, 0.9), {"1", "5"}, 9), ((40.0, 0.5), {"1", "10"}, 12), ((1e4, 0.1), {"1", "100"}, 12)],
)
def test_a_loss_of_wide_range_has_plain_and_few_numbers_beside_its_ticks(tmp_path, losses, ticks, most):
    rows = [{"epoch": n, "train_loss": loss, "dev_accuracy": 5.0} for n, loss in enumerate(losses, 1)]
    plot_training(rows, rows[-1], "accuracy", tmp_path / "training.svg")
    shown = texts_of(tmp_path / "training.svg")
    numbers = shown[shown.index("epoch") + 1 : shown.index("loss per pair (nats)")]
    assert ticks <= set(numbers)
    assert len(numbers) <= most
    assert all(re.fullmatch(r"[\d.,]+", number) for number in numbers)


def test_long_words_are_written_upwards_and_very_long_pairs_are_labelled_in_part(tmp_path):
    words = [f"word{n}" for n in range(160)]
    plot_alignment(["a"], ["thoroughly", "b"], [0, 0], None, tmp_path / "words.svg")
    assert "rotate(-90" in (tmp_path / "words.svg").read_text().partition("thoroughly")[0].rpartition("<text")[2]
    plot_alignment(words, ["a", "b"], [0, 159], None, tmp_path / "long.svg")
    shown = texts_of(tmp_path / "long.svg")
    assert {"word0", "word158"} <= set(shown)
    assert "word159" not in shown
    assert float(re.search(r"height=\"([\d.]+)pt", (tmp_path / "long.svg").read_text())[1]) <= 60 * 72


def test_pictures_without_matplotlib_say_what_to_install(tmp_path, monkeypatch):
    load = builtins.__import__

    def without_matplotlib(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    notes = []
    with optional_picture(tmp_path / "training.png", notes.append):
        plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")
    assert notes == [f"{tmp_path}/training.png skipped: pictures need matplotlib ({how_to_install('plots')})"]
    with pytest.raises(InputError, match=r"pip install -e '\.\[plots\]'"):
        plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")


def test_symbols_without_a_glyph_are_one_note_and_none_where_text_stays_text(tmp_path, capsys, recwarn):
    symbols = ["\U00010400", "\U00010401", "</s>"]
    plot_alignment(symbols, symbols, [0, 1, 2], None, tmp_path / "x.svg")
    assert capsys.readouterr().err == ""
    plot_alignment(symbols, symbols, [0, 1, 2], None, tmp_path / "x.png")
    assert capsys.readouterr().err in ("", f"antiphon: {NO_GLYPH}\n")
    assert not list(recwarn)


def test_a_picture_is_drawn_where_the_variable_names_no_backend(tmp_path):
    program = "import sys, pathlib; from antiphon.report.plots import plot_alignment as plot; "
    program += "plot(['a'], ['b'], [0], None, pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, tmp_path / "x.png"]
    subprocess.run(command, check=True, env=os.environ | {"MPLBACKEND": "nonsense"})
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_is_skipped_and_other_errors_are_not(tmp_path):
    notes = []
    with optional_picture(tmp_path / "training.png", notes.append):
        raise ValueError("no such font")
    assert notes == [f"{tmp_path}/training.png skipped: matplotlib could not draw it (no such font)"]
    with pytest.raises(RunError), optional_picture(tmp_path / "training.png", notes.append):
        raise RunError("the run is damaged")
