"""How training went, in one form for every kind of model."""

from collections.abc import Mapping
from datetime import date

import torch

from antiphon import __version__
from antiphon.recipe.schema import TrainSection
from antiphon.runs.run_folder import RunFolder


def save_summary(
    run: RunFolder,
    settings: TrainSection,
    dev: Mapping[str, float],
    *,
    parameters: int,
    seconds: float,
    pairs_per_second: float,
    best_epoch: int = 1,
    epochs: int = 1,
    stopped: str = "",
) -> None:
    """Leaves ``metrics.json`` in the run, which makes it a trained one; ``dev`` is what the best epoch measured.

    ``stopped`` says why training ended before it should have.
    """
    run.save_metrics(
        {
            "best_epoch": best_epoch,
            "epochs": epochs,
            **{f"dev_{name}": value for name, value in dev.items()},
            "parameters": parameters,
            "training_seconds": round(seconds, 1),
            "pairs_per_second": round(pairs_per_second, 1),
            "seed": settings.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
            "torch": torch.__version__,
            **({"stopped": stopped} if stopped else {}),
        }
    )
