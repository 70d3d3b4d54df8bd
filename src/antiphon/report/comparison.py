"""Compares runs: metrics with intervals and p-values, size, training time and speed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from antiphon.metrics.output_metrics import Outputs, deletion_metrics
from antiphon.metrics.output_statistics import ComparedScore, compare_systems
from antiphon.report.tables import format_metric


@dataclass(frozen=True)
class System:
    """A run, the metrics of its training, and its speed and perplexity on a test set."""

    name: str
    kind: str
    training: dict[str, Any]
    outputs_per_second: float = 0.0
    perplexity: float | None = None


@dataclass(frozen=True)
class ComparedSystems:
    """Systems, and every metric of each, in the same order."""

    systems: Sequence[System]
    metrics: dict[str, list[ComparedScore]] = field(default_factory=dict)


def compare(systems: Sequence[System], outputs: Sequence[Outputs], metrics: Sequence[str]) -> ComparedSystems:
    """The systems by their outputs: given metrics, and those of compression where references are made by deletion."""
    names = [*metrics, *deletion_metrics(outputs[0])]
    return ComparedSystems(systems, {name: compare_systems(outputs, name) for name in names})


def as_json(compared: ComparedSystems) -> dict[str, Any]:
    """Everything as JSON; the others are compared with the first system."""
    return {
        "systems": [
            {
                "run": system.name,
                "kind": system.kind,
                "metrics": {
                    name: {
                        "value": results[index].score.value,
                        "signature": results[index].score.signature,
                        "interval": [results[index].low, results[index].high],
                        "p_value": results[index].p_value,
                    }
                    for name, results in compared.metrics.items()
                },
                "perplexity": system.perplexity,
                "parameters": system.training.get("parameters"),
                "training_seconds": system.training.get("training_seconds"),
                "outputs_per_second": system.outputs_per_second,
            }
            for index, system in enumerate(compared.systems)
        ]
    }


def as_table(compared: ComparedSystems) -> Table:
    """A table for the terminal: a column for each run, and a row for each fact that is known of any."""
    table = Table(show_lines=True)
    (title, *names), *rows = zip(_header(compared), *_rows(compared), strict=True)
    table.add_column(title)
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for row in (each for each in rows if set(each[1:]) != {"-"}):
        table.add_row(*(cell.replace(" [", "\n[").replace("] ", "]\n") for cell in row))
    return table


def notes(compared: ComparedSystems) -> list[str]:
    """What intervals and p-values are, and the signature of each metric."""
    about = ["In brackets: 95 % interval. p: paired bootstrap against the first run, 1,000 resamples."]
    return about + [f"{name}: {results[0].score.signature}" for name, results in compared.metrics.items()]


def _header(compared: ComparedSystems) -> list[str]:
    return ["run", "kind", *compared.metrics, "perplexity", "parameters", "training s", "outputs/s"]


def _rows(compared: ComparedSystems) -> Iterator[list[str]]:
    for index, system in enumerate(compared.systems):
        yield [
            system.name,
            system.kind,
            *(_cell(name, results[index]) for name, results in compared.metrics.items()),
            _known(system.perplexity, ".3f"),
            _known(system.training.get("parameters"), ",.0f"),
            _known(system.training.get("training_seconds"), ",.0f"),
            _known(system.outputs_per_second or None, ",.1f"),
        ]


def _known(value: float | None, digits: str) -> str:
    """A value, or a dash if it is not known."""
    return "-" if value is None else format(value, digits)


def _cell(name: str, result: ComparedScore) -> str:
    value, low, high = (format_metric(name, value_) for value_ in (result.score.value, result.low, result.high))
    text = f"{value} [{low}, {high}]"
    return text if result.p_value is None else f"{text} p={result.p_value:.3f}"
