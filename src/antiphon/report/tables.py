"""Tables for the terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from antiphon.ranking.ranking_metrics import RANKING_METRICS
from antiphon.terminal import count_of

if TYPE_CHECKING:
    from antiphon.api import Evaluation


_HUGE = 1e7
_DECIMALS = {"perplexity": 3, "edit_distance": 3, "AP": 3} | dict.fromkeys(RANKING_METRICS, 4)


def format_metric(metric: str, value: float) -> str:
    """A value with a suitable number of digits: two, but more if values are small; huge ones have an exponent."""
    if abs(value) >= _HUGE:
        return f"{value:.3g}"
    return f"{value:.{_DECIMALS.get(metric, 2)}f}"


def metrics_table(evaluation: "Evaluation") -> Table:
    """Every metric with its value and signature."""
    unknown = (
        f"{evaluation.unknown_source:,} source and {evaluation.unknown_target:,} target symbols never seen in training"
    )
    table = Table(title=count_of(evaluation.examples, "pair"), caption=unknown)
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("signature", overflow="fold")
    for name, score in evaluation.metrics.items():
        table.add_row(name, format_metric(name, score.value), score.signature)
    return table


def sweep_table(evaluations: "Mapping[float, Evaluation]") -> Table:
    """A row for every emit bias, with all metrics."""
    table = Table(title="written while reading")
    names = list(next(iter(evaluations.values())).metrics)
    for name in ("emit bias", *names):
        table.add_column(name, justify="right")
    for bias, evaluation in evaluations.items():
        table.add_row(f"{bias:g}", *(format_metric(name, evaluation.metrics[name].value) for name in names))
    return table


def info_table(title: str, facts: Mapping[str, Any]) -> Table:
    """All facts of a run, nested ones with dotted names."""
    table = Table(title=title, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in _flatten(facts):
        table.add_row(name, value)
    return table


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            inner = "" if name == "recipe" else f"{prefix}{name}."
            rows += _flatten(value, inner)
        else:
            rows.append((prefix + name, _text(name, value)))
    return rows


def _text(name: str, value: Any) -> str:
    """A fact as text: dev metrics with the digits of the metric, other numbers with four, or none above 1,000."""
    if name == "parameters":
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if name.startswith("dev_") and name != "dev_metric":
        return format_metric(name.removeprefix("dev_"), value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
