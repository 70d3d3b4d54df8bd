"""The summary of a training (``metrics.json``), in the same form for every kind of model."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from statistics import fmean

import torch

from antiphon import __version__
from antiphon.recipe.schema import TrainSection
from antiphon.runs.run_folder import RunFolder
from antiphon.training.history import History


@dataclass(frozen=True)
class Summary:
    """How training went; ``dev`` are the dev metrics of the best epoch, ``stopped`` is why it ended too early."""

    dev: Mapping[str, float]
    parameters: int
    seconds: float
    pairs_per_second: float
    best_epoch: int = 1
    epochs: int = 1
    stopped: str = ""

    @classmethod
    def of(cls, history: History, parameters: int, more: Mapping[str, float]) -> "Summary":
        """The summary of a history; ``more`` are further dev metrics."""
        best = {name.removeprefix("dev_"): value for name, value in history.best.items() if name.startswith("dev_")}
        return cls(
            {**best, **more},
            parameters,
            seconds=sum(row["seconds"] for row in history.rows),
            pairs_per_second=fmean(row["pairs_per_second"] for row in history.rows),
            best_epoch=int(history.best["epoch"]),
            epochs=len(history.rows),
            stopped=history.problem,
        )


def save_summary(run: RunFolder, settings: TrainSection, summary: Summary) -> None:
    """Writes ``metrics.json`` into the run, which makes it a trained one."""
    run.save_metrics(
        {
            "best_epoch": summary.best_epoch,
            "epochs": summary.epochs,
            **{f"dev_{name}": value for name, value in summary.dev.items()},
            "parameters": summary.parameters,
            "training_seconds": round(summary.seconds, 1),
            "pairs_per_second": round(summary.pairs_per_second, 1),
            "seed": settings.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
            "torch": torch.__version__,
            **({"stopped": summary.stopped} if summary.stopped else {}),
        }
    )
