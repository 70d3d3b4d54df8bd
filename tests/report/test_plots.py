import builtins

import numpy as np
import pytest

from antiphon.exceptions import InputError
from antiphon.report.plots import optional_picture, plot_alignment, plot_curves, plot_training

ROWS = [{"epoch": n, "train_loss": 5.0 / n, "dev_accuracy": 10.0 * n} for n in range(1, 6)]


def size_of_png(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_training_is_drawn(tmp_path):
    plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")
    assert min(size_of_png(tmp_path / "training.png")) > 300


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


def test_every_picture_names_its_axes_and_the_formats_follow_the_file_name(tmp_path):
    plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.svg")
    plot_alignment(["$a", " "], ["b", "</s>"], [0, 1], np.eye(2, dtype=np.float32), tmp_path / "alignment.svg")
    plot_curves({"bleu": [(1.0, 2.0)]}, "delay", "bleu", tmp_path / "curves.svg", labels=["emit bias 0"], title="sweep")
    texts = {
        "training": ["epoch", "loss per pair (nats)", "dev accuracy", "best: 50 (epoch 5)"],
        "alignment": [
            "input symbol read last",
            "output token",
            "best alignment",
            "probability, all alignments counted",
        ],
        "curves": ["delay", "bleu", "emit bias 0", "sweep"],
    }
    for name, wanted in texts.items():
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert all(f"<!-- {text} -->" in drawn for text in wanted), name


def test_a_loss_that_spreads_wide_has_plain_numbers_beside_its_ticks(tmp_path):
    plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.svg")
    drawn = (tmp_path / "training.svg").read_text()
    assert "<!-- 5 -->" in drawn
    assert "10^" not in drawn


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
    assert notes == [f'{tmp_path}/training.png left out: pictures need matplotlib (pip install "antiphon[plots]")']
    with pytest.raises(InputError, match=r"pip install \"antiphon\[plots\]\""):
        plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")
