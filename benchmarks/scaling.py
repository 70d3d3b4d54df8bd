"""How a training step grows with input length, output length, vocabulary and batch, as JSON and as a picture."""

from pathlib import Path

from benchmarks.training_step import device, measure_size, set_up_as_training_does

BASE = {"B": 16, "I": 25, "J": 25, "V": 1000, "H": 128}
CURVES = {"I": (10, 25, 50, 100), "J": (10, 25, 50, 100), "V": (100, 1000, 5000, 20_000), "B": (4, 16, 64)}
KINDS = ("transducer", "attention", "naive_joint")
TITLES = {"I": "input tokens", "J": "output tokens", "V": "vocabulary", "B": "pairs of a batch"}


def measure():
    set_up_as_training_does()
    rows = [
        {"axis": axis} | row
        for axis, values in CURVES.items()
        for value in values
        for row in measure_size(**BASE | {axis: value}, kinds=KINDS, rounds=3)
        if row["model"] in KINDS
    ]
    draw(rows, Path(__file__).parent / "results" / f"scaling_{device()}.png")
    return rows


def draw(rows, path):
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator

    figure, panels = pyplot.subplots(1, len(CURVES), figsize=(14, 3.7), layout="constrained")
    for panel, axis in zip(panels, CURVES, strict=True):
        for model, way in dict.fromkeys((row["model"], row["way"]) for row in rows):
            points = [
                (row[axis], row["step_ms"])
                for row in rows
                if (row["axis"], row["model"], row["way"]) == (axis, model, way)
            ]
            panel.plot(*zip(*points, strict=True), marker="o", label=f"{model.replace('_', ' ')}, {way}")
        panel.set(xlabel=TITLES[axis], ylabel="ms a step", xscale="log", yscale="log")
        panel.set_xticks(CURVES[axis], [f"{value:,}" for value in CURVES[axis]])
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        panel.grid(visible=True, alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=len(lines[0]), fontsize="small", frameon=False)
    others = ", ".join(f"{name} {value:,}" for name, value in BASE.items())
    figure.suptitle(f"training step on {rows[0]['device']}; but for the axis: {others}", fontsize="medium")
    figure.savefig(path, dpi=110)
