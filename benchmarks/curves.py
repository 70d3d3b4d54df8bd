"""Curves of one number against another, as pictures."""

from matplotlib.figure import Figure


def plot_curves(curves, across, up, path, *, logarithmic):
    """Draws named curves of points; ``logarithmic`` names an axis."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=4)
    axes.set(xlabel=across, ylabel=up, **{f"{logarithmic}scale": "log"})
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
