"""Pictures: how training went, what a model had read when it wrote each token, and one figure against another.

A picture is written in the format that its file name ends in. All need matplotlib, an extra.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import InputError
from antiphon.storage.atomic import atomic_replacement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1f3a5f"
_PATH = "#c0392b"
_COLOURS = (_INK, _PATH, "#2e8b57", "#b8860b", "#6a5acd")
_LOG_SCALE_FROM = 5.0
"""Ratio of the largest to the smallest loss from which on a logarithmic axis shows more than a linear one."""
_LINKS = {
    "alignment": ("probability, all alignments counted", "best alignment"),
    "attention": ("attention weight", "largest weight"),
}


class PictureError(InputError):
    """The library that draws is not installed."""


@contextmanager
def optional_picture(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Inside, a picture that cannot be drawn for want of a library is left out, and that is said in one line."""
    try:
        yield
    except PictureError:
        say(f'{path} left out: pictures need matplotlib (pip install "antiphon[plots]")')


def plot_training(rows: Sequence[Mapping[str, float]], best: Mapping[str, float], metric: str, path: Path) -> None:
    """Training loss and dev metric over epochs, the best epoch marked."""
    figure = _figure(8.0, 3.6)
    loss, dev = figure.subplots(1, 2)
    epochs, name = [row["epoch"] for row in rows], metric.replace("_", " ")
    losses = [row["train_loss"] for row in rows]
    loss.plot(epochs, losses, color=_INK)
    loss.set(title="training", xlabel="epoch", ylabel="loss per pair (nats)")
    _scale(loss, losses)
    dev.plot(epochs, [row[f"dev_{metric}"] for row in rows], color=_INK, label=f"dev {name}")
    label = f"best: {best[f'dev_{metric}']:.4g} (epoch {best['epoch']:.0f})"
    dev.plot([best["epoch"]], [best[f"dev_{metric}"]], "o", color=_PATH, label=label)
    dev.set(title="held-out pairs", xlabel="epoch", ylabel=f"dev {name}")
    dev.legend(frameon=False)
    for axes in (loss, dev):
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def plot_alignment(
    source_symbols: Sequence[str],
    target_symbols: Sequence[str],
    rows: Sequence[int],
    posterior: NDArray[np.float32] | None,
    path: Path,
    *,
    method: str = "alignment",
) -> None:
    """The grid of the thesis's figures: input down, output across, the best path drawn, posteriors as shade."""
    I, J = len(source_symbols), len(target_symbols)
    figure = _figure(max(3.6, 0.42 * J + 2.2), max(3.2, 0.36 * I + 1.7))
    axes = figure.subplots()
    shade, line = _LINKS[method]
    if posterior is not None:
        image = axes.imshow(posterior, cmap="Blues", vmin=0.0, vmax=1.0, alpha=0.8, aspect="auto")
        figure.colorbar(image, ax=axes, label=shade, shrink=0.8)
    axes.set(xlim=(-0.5, J - 0.5), ylim=(I - 0.5, -0.5), xlabel="output token", ylabel="input symbol read last")
    axes.plot(*_path_corners(rows), color=_PATH, linewidth=1.6, solid_joinstyle="round", label=line)
    axes.plot(range(J), rows, "o", color=_PATH, markersize=4)
    _label_symbols(axes, source_symbols, target_symbols)
    figure.legend(loc="outside lower center", frameon=False)
    axes.set_title(method)
    _save(figure, path)


def plot_curves(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    up: str,
    path: Path,
    *,
    logarithmic: bool = False,
    labels: Sequence[str] = (),
    title: str = "",
) -> None:
    """Named curves of points; ``labels`` stand beside the points of each."""
    figure = _figure(5.6, 3.8)
    axes = figure.subplots()
    for (name, points), colour in zip(curves.items(), _COLOURS, strict=False):
        axes.plot(*zip(*points, strict=True), "o-", color=colour, label=name, markersize=4)
        for label, point in zip(labels, points, strict=False):
            axes.annotate(label, point, textcoords="offset points", xytext=(4, -10), fontsize=7, color="#555555")
    axes.set(xlabel=across, ylabel=up, xscale="log" if logarithmic else "linear", title=title)
    axes.margins(x=0.12, y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    _save(figure, path)


def _scale(axes: "Axes", values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers beside its ticks, where values spread wide."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    if min(values) > 0 and max(values) / min(values) >= _LOG_SCALE_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())


def _label_symbols(axes: "Axes", source_symbols: Sequence[str], target_symbols: Sequence[str]) -> None:
    """A tick for every symbol, and a light grid between them."""
    I, J = len(source_symbols), len(target_symbols)
    axes.set_xticks(range(J), [_literal(symbol) for symbol in target_symbols])
    axes.set_yticks(range(I), [_literal(symbol) for symbol in source_symbols])
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(-0.5, J), minor=True)
    axes.set_yticks(np.arange(-0.5, I), minor=True)
    axes.grid(which="minor", color="#d8dde3", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _literal(symbol: str) -> str:
    """A symbol as it is shown: a space can be seen, a dollar sign starts no formula."""
    return symbol.replace(" ", "␣").replace("$", r"\$")


def _path_corners(rows: Sequence[int]) -> tuple[list[float], list[float]]:
    """The path's corners: down while reading, then right to the token written."""
    across, down = [-0.5], [0.0]
    for column, row in enumerate(rows):
        across += [column - 0.5, column + 0.5]
        down += [float(row), float(row)]
    return across, down


def check_drawing_library() -> None:
    """Refuses to draw without matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise PictureError('pictures need matplotlib, expected it installed: pip install "antiphon[plots]"') from None


def _figure(width: float, height: float) -> "Figure":
    check_drawing_library()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    kind = path.suffix.removeprefix(".")
    with atomic_replacement(path) as new:
        figure.savefig(new, dpi=150, format=kind, metadata={"Software": None} if kind == "png" else None)
