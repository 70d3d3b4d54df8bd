"""What is kept of training: best weights, a checkpoint to go on from, the log, and when to stop."""

import csv
import math
import time
from typing import Any

import lightning as L

from antiphon.metrics import LOWER_IS_BETTER
from antiphon.run import RunFolder, replaced_whole
from antiphon.train.module import TrainingModule

Row = dict[str, float]


class Keeper(L.Callback):
    """After every epoch: writes the log, keeps the best weights and a checkpoint, stops when nothing gets better.

    Its own state travels in the checkpoint, so that a resumed run knows the best so far and every row of the log.
    """

    def __init__(self, run: RunFolder, metric: str, patience: int) -> None:
        self.run, self.metric, self.patience = run, metric, patience
        self.rows: list[Row] = []
        self.best: Row = {}
        self._started = time.monotonic()
        self._pairs = 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint remembers."""
        return {"rows": self.rows, "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up what a checkpoint remembers."""
        self.rows, self.best = state_dict["rows"], state_dict["best"]

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock."""
        self._started = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keeps all of an epoch that has just been validated."""
        assert isinstance(pl_module, TrainingModule)
        seconds = time.monotonic() - self._started
        row = {
            "epoch": trainer.current_epoch + 1,
            "train_loss": pl_module.train_loss.value,
            **{f"dev_{name}": value for name, value in pl_module.dev_metrics.items()},
            "seconds": seconds,
            "pairs_per_second": pl_module.train_loss.number / seconds,
        }
        self.rows.append(row)
        if self._is_best(row):
            self.best = row
            self.run.save_weights(pl_module.kept_model.state_dict())
        self._write_log()
        if row["epoch"] - self.best["epoch"] >= self.patience:
            trainer.should_stop = True
        with replaced_whole(self.run.checkpoint) as new:
            trainer.save_checkpoint(new)

    @property
    def has_stopped(self) -> bool:
        """Whether patience ran out, which a checkpoint of a stopped run shows."""
        return bool(self.rows) and self.rows[-1]["epoch"] - self.best["epoch"] >= self.patience

    def _is_best(self, row: Row) -> bool:
        name = f"dev_{self.metric}"
        value = row[name]
        if not self.best or math.isnan(self.best[name]):
            return True
        return value < self.best[name] if self.metric in LOWER_IS_BETTER else value > self.best[name]

    def _write_log(self) -> None:
        with replaced_whole(self.run.log) as new, new.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in self.rows)
