"""Pictures: how training went, what a model had read when it wrote each token, and one figure against another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from antiphon.errors import InputError
from antiphon.storage.atomic import replaced_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INK = "#1f3a5f"
_PATH = "#c0392b"
_COLOURS = (_INK, _PATH, "#2e8b57", "#b8860b", "#6a5acd")


def plot_training(rows: Sequence[Mapping[str, float]], best: Mapping[str, float], metric: str, path: Path) -> None:
    """Training loss and dev metric over epochs, the best epoch marked."""
    figure = _figure(7.0, 3.6)
    loss, dev = figure.subplots(1, 2)
    epochs = [row["epoch"] for row in rows]
    values = [row[f"dev_{metric}"] for row in rows]
    loss.plot(epochs, [row["train_loss"] for row in rows], color=_INK)
    loss.set(xlabel="epoch", ylabel="training loss per pair (nats)", yscale="log")
    dev.plot(epochs, values, color=_INK)
    dev.plot([best["epoch"]], [best[f"dev_{metric}"]], "o", color=_PATH)
    label = f"{best[f'dev_{metric}']:.4g} (epoch {best['epoch']:.0f})"
    dev.set(xlabel="epoch", ylabel=f"dev {metric.replace('_', ' ')}", title=f"best {label}")
    for axes in (loss, dev):
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def plot_alignment(
    source_symbols: Sequence[str],
    target_symbols: Sequence[str],
    rows: Sequence[int],
    posterior: NDArray[np.float32] | None,
    path: Path,
) -> None:
    """The grid of the thesis's figures: input down, output across, the best path drawn, posteriors as shade."""
    I, J = len(source_symbols), len(target_symbols)
    figure = _figure(max(3.0, 0.42 * J + 1.2), max(2.4, 0.36 * I + 0.9))
    axes = figure.subplots()
    if posterior is not None:
        axes.imshow(posterior, cmap="Blues", vmin=0.0, vmax=1.3, aspect="auto")
    axes.set(xlim=(-0.5, J - 0.5), ylim=(I - 0.5, -0.5))
    across, down = _path_corners(rows)
    axes.plot(across, down, color=_PATH, linewidth=1.6, solid_joinstyle="round")
    axes.plot(range(J), rows, "o", color=_PATH, markersize=4)
    axes.set_xticks(range(J), target_symbols)
    axes.set_yticks(range(I), source_symbols)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(-0.5, J), minor=True)
    axes.set_yticks(np.arange(-0.5, I), minor=True)
    axes.grid(which="minor", color="#d8dde3", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    _save(figure, path)


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    up: str,
    path: Path,
    *,
    logarithmic: bool = False,
    labels: Sequence[str] = (),
) -> None:
    """Named curves of points; ``labels`` stand beside the points of each."""
    figure = _figure(5.6, 3.8)
    axes = figure.subplots()
    for (name, points), colour in zip(curves.items(), _COLOURS, strict=False):
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=name, markersize=4)
        for label, point in zip(labels, points, strict=False):
            axes.annotate(label, point, textcoords="offset points", xytext=(4, -10), fontsize=7, color="#555555")
    axes.set(xlabel=across, ylabel=up, xscale="log" if logarithmic else "linear")
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    _save(figure, path)


def _path_corners(rows: Sequence[int]) -> tuple[list[float], list[float]]:
    """The path's corners: down while reading, then right to the token written."""
    across, down = [-0.5], [0.0]
    for column, row in enumerate(rows):
        across += [column - 0.5, column + 0.5]
        down += [float(row), float(row)]
    return across, down


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError('pictures need matplotlib, expected it installed: pip install "antiphon[plots]"') from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    with replaced_whole(path) as new:
        figure.savefig(new, dpi=150, format="png", metadata={"Software": None})
