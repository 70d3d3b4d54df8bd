"""Pictures: training curves, alignments and attention.

The ending of the file name is the format: png, svg or pdf; in the last two, text stays text. All need matplotlib, an
extra.
"""

import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import AntiphonError, InputError, how_to_install
from antiphon.storage.files import atomic_replacement
from antiphon.terminal import Say, one_line, print_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#1f3a5f"
_PATH = "#c0392b"
_GOLD = "#b8860b"
_LOG_SCALE_FROM = 5.0
"""Smallest ratio of the largest to the smallest loss for a logarithmic axis."""
_MAX_INCHES = 60.0
"""Largest side of a picture; symbols of longer pairs are drawn smaller, and not all are labelled."""
_LONGEST_UPRIGHT = 5
"""Characters of an output token; with a longer one, all are written upwards so that none overlap."""
_MAX_LABELS = 140
"""Maximum number of symbols that are labelled along an axis."""


class _Wording(NamedTuple):
    """The title of a picture of links, and what its colours and its markers show."""

    title: str
    shade: str
    marked: str


_WORDING = {
    "alignment": _Wording("Alignment", "posterior probability", "most probable alignment"),
    "attention": _Wording("Attention (not an alignment)", "attention weight", "largest weight"),
}
_SAVING: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}
"""No dates and versions in the files, so that the same picture is the same file."""


class PictureError(InputError):
    """The library that draws is not installed."""


@contextmanager
def optional_picture(path: Path, say: Say) -> Iterator[None]:
    """Inside, a picture is skipped where the drawing library is missing or fails; ``say`` gets one line about it."""
    try:
        yield
    except PictureError:
        say(f"{path} skipped: pictures need matplotlib ({how_to_install('plots')})")
    except (AntiphonError, OSError):
        raise
    except Exception as error:
        say(f"{path} skipped: matplotlib could not draw it ({one_line(str(error))})")


def plot_training(rows: Sequence[Mapping[str, float]], best: Mapping[str, float], metric: str, path: Path) -> None:
    """Training loss and dev metric over epochs, the best epoch marked."""
    figure = _figure(8.0, 3.6)
    loss, dev = figure.subplots(1, 2)
    epochs, name = [row["epoch"] for row in rows], metric.replace("_", " ")
    losses = [row["train_loss"] for row in rows]
    loss.plot(epochs, losses, color=_INK)
    loss.set(title="Training loss", xlabel="epoch", ylabel="loss per pair (nats)")
    _scale(loss, losses)
    dev.plot(epochs, [row[f"dev_{metric}"] for row in rows], color=_INK, label=f"dev {name}")
    label = f"best: {best[f'dev_{metric}']:.4g} (epoch {best['epoch']:.0f})"
    dev.plot([best["epoch"]], [best[f"dev_{metric}"]], "o", color=_PATH, label=label)
    dev.set(title="Held-out pairs", xlabel="epoch", ylabel=f"dev {name}")
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
    gold: Collection[tuple[int, int]] = (),
) -> None:
    """The lattice of a pair: input down, output across, posteriors or attention weights as shades.

    For an alignment the path is drawn, as in the figures of the thesis; attention has no path, only largest weights.
    ``gold`` links, of an input and an output position, are framed.
    """
    I, J = len(source_symbols), len(target_symbols)
    figure = _figure(_inches(0.42 * J + 2.2, 3.6), _inches(0.36 * I + 1.7, 3.2))
    axes = figure.subplots()
    wording = _WORDING[method]
    if posterior is not None:
        image = axes.imshow(posterior, cmap="Blues", vmin=0.0, vmax=1.0, alpha=0.8, aspect="auto")
        figure.colorbar(image, ax=axes, label=wording.shade, shrink=0.8)
    axes.set(xlim=(-0.5, J - 0.5), ylim=(I - 0.5, -0.5), xlabel="output token", ylabel="last input symbol read")
    dots: dict[str, Any] = {"color": _PATH, "marker": "o", "markersize": 4.0}
    if method == "alignment":
        axes.plot(*_path_corners(rows), color=_PATH, linewidth=1.6, solid_joinstyle="round", label=wording.marked)
        axes.plot(range(J), rows, linestyle="none", **dots)
    else:
        axes.set_ylabel("input symbol")
        axes.plot(range(J), rows, linestyle="none", label=wording.marked, **dots)
    if gold:
        down, across = zip(*sorted(gold), strict=True)
        frame: dict[str, Any] = {"marker": "s", "markersize": 15.0, "markerfacecolor": "none", "color": _GOLD}
        axes.plot(across, down, linestyle="none", label="gold link", **frame)
    _label_symbols(axes, source_symbols, target_symbols)
    figure.legend(loc="outside lower center", frameon=False)
    axes.set_title(wording.title)
    _save(figure, path)


def _inches(wanted: float, least: float) -> float:
    return min(max(wanted, least), _MAX_INCHES)


def _scale(axes: "Axes", values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers beside its ticks, if the values have a wide range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ratio = max(values) / min(values) if min(values) > 0 else 0.0
    if ratio < _LOG_SCALE_FROM:
        return
    subs = [1.0, 2.0, 3.0, 5.0, 7.0] if ratio < 30 else [1.0, 2.0, 5.0] if ratio < 1000 else [1.0]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _label_symbols(axes: "Axes", source_symbols: Sequence[str], target_symbols: Sequence[str]) -> None:
    """A tick for every symbol, unless there are too many, and a light grid between them."""
    I, J = len(source_symbols), len(target_symbols)
    is_long = max(map(len, target_symbols)) > _LONGEST_UPRIGHT
    across, down = (range(0, length, 1 + (length - 1) // _MAX_LABELS) for length in (J, I))
    fonts = _fonts()
    axes.set_xticks(across, [_literal(target_symbols[j]) for j in across], fontfamily=fonts)
    axes.set_yticks(down, [_literal(source_symbols[i]) for i in down], fontfamily=fonts)
    axes.tick_params(axis="x", labelrotation=90.0 if is_long else 0.0)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(-0.5, J), minor=True)
    axes.set_yticks(np.arange(-0.5, I), minor=True)
    axes.grid(which="minor", color="#d8dde3", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _literal(symbol: str) -> str:
    """A symbol with visible spaces, in which a dollar sign starts no formula."""
    return symbol.replace(" ", "␣").replace("$", r"\$")


def _path_corners(rows: Sequence[int]) -> tuple[list[float], list[float]]:
    """The corners of the path: down for each read, right for each token written."""
    across, down = [-0.5], [0.0]
    for column, row in enumerate(rows):
        across += [column - 0.5, column + 0.5]
        down += [float(row), float(row)]
    return across, down


def check_drawing_library() -> None:
    """Refuses to draw without matplotlib."""
    try:
        _import_matplotlib()
    except ImportError:
        raise PictureError(f"pictures need matplotlib, expected it installed: {how_to_install('plots')}") from None


def _import_matplotlib() -> None:
    """Imports matplotlib, also where MPLBACKEND names no backend: files are drawn by Agg, SVG and PDF without one."""
    is_first = "matplotlib" not in sys.modules
    backend = os.environ.pop("MPLBACKEND", None) if is_first else None
    try:
        import matplotlib.figure
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


def _figure(width: float, height: float) -> "Figure":
    check_drawing_library()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    """Writes the picture in the format of the file name."""
    import matplotlib

    kind = path.suffix.removeprefix(".").lower()
    text_as_text = matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "antiphon", "pdf.fonttype": 42})
    with atomic_replacement(path) as new, text_as_text, _noted_missing_symbols(kind):
        figure.savefig(new, dpi=150, format=kind, **_SAVING[kind])


NO_GLYPH = "no installed font has some of the symbols, so they are drawn as boxes; SVG keeps them as text"
_FALLBACK_FONTS = (
    *(
        f"Noto Sans {name}"
        for name in ("CJK SC", "CJK JP", "CJK KR", "Arabic", "Hebrew", "Devanagari", "Thai", "Symbols")
    ),
    *("WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC", "Hiragino Sans", "Malgun Gothic", "AppleGothic"),
    *("Segoe UI Symbol", "Arial Unicode MS", "FreeSans", "Unifont"),
)
"""Fonts with many scripts that systems have, for symbols that matplotlib's own font lacks."""


def _fonts() -> list[str]:
    """The usual font, then installed ones with further scripts."""
    from matplotlib.font_manager import fontManager

    return ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in fontManager.get_font_names())]


@contextmanager
def _noted_missing_symbols(kind: str) -> Iterator[None]:
    """Inside, matplotlib's warnings about symbols without a glyph are one note; SVG has text, which viewers draw."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if kind != "svg" and any("missing from" in str(each.message) for each in caught):
        print_note(NO_GLYPH)
