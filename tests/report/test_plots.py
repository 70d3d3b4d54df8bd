import builtins

import numpy as np
import pytest

from antiphon.errors import InputError
from antiphon.report.plots import plot_alignment, plot_training

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


def test_pictures_without_matplotlib_say_what_to_install(tmp_path, monkeypatch):
    load = builtins.__import__

    def without_matplotlib(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(InputError, match=r"pip install \"antiphon\[plots\]\""):
        plot_training(ROWS, ROWS[-1], "accuracy", tmp_path / "training.png")
