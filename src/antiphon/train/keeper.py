"""What is kept of training: best weights, a checkpoint to go on from, the log, and when to stop."""

import csv
import time
from pathlib import Path

import lightning as L

from antiphon.metrics import LOWER_IS_BETTER
from antiphon.runs.run_folder import RunFolder
from antiphon.train.checkpoint import Checkpoint, save_checkpoint
from antiphon.train.module import TrainingModule
from antiphon.train.processes import agreed, first_alone

Row = dict[str, float]


class Keeper(L.Callback):
    """After every epoch: writes the log, keeps the best weights and a checkpoint, stops when nothing gets better.

    All of an epoch is written in one change of the run. A checkpoint holds every row of the log and the best so far,
    so a resumed run knows them. An epoch whose loss or weights are not finite ends training: nothing of it is kept, and
    ``problem`` says so.
    """

    def __init__(self, run: RunFolder, metric: str, patience: int, checkpoint: Checkpoint | None = None) -> None:
        self.run, self.metric, self.patience = run, metric, patience
        self.rows: list[Row] = checkpoint["rows"] if checkpoint else []
        self.best: Row = checkpoint["best"] if checkpoint else {}
        self.problem = ""
        self._started = self._trained = time.monotonic()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Starts the clock."""
        self._started = time.monotonic()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stops the clock of training proper."""
        self._trained = time.monotonic()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keeps all of an epoch that has just been validated."""
        assert isinstance(pl_module, TrainingModule)
        pl_module.train_loss.add_up()
        if not pl_module.is_finite:
            self.problem = f"the loss or the weights are not finite in epoch {pl_module.epoch + 1}"
            trainer.should_stop = True
            return
        first_alone(lambda: self._keep(pl_module))
        trainer.should_stop = agreed(self.is_out_of_patience)

    def _keep(self, module: TrainingModule) -> None:
        row = {
            "epoch": module.epoch + 1,
            "train_loss": module.train_loss.value,
            **{f"dev_{name}": value for name, value in module.dev_metrics.items()},
            "seconds": time.monotonic() - self._started,
            "pairs_per_second": module.train_loss.number / (self._trained - self._started),
        }
        self.rows.append(row)
        with self.run.changed() as new:
            if self._is_best(row):
                self.best = row
                new.save_weights(module.kept_model.state_dict())
            self._write_log(new.log)
            checkpoint = Checkpoint(
                epochs=module.epoch + 1,
                module=module.state_dict(),
                optimiser=module.optimizer.state_dict(),
                rows=self.rows,
                best=self.best,
            )
            save_checkpoint(checkpoint, new.checkpoint)

    @property
    def is_out_of_patience(self) -> bool:
        """Whether the dev metric has not got better for too many epochs."""
        return bool(self.rows) and self.rows[-1]["epoch"] - self.best["epoch"] >= self.patience

    def _is_best(self, row: Row) -> bool:
        return not self.best or self._rank(row) < self._rank(self.best)

    def _rank(self, row: Row) -> tuple[float, float]:
        """Lower is better; among equals, the lower perplexity."""
        value = row[f"dev_{self.metric}"]
        return value if self.metric in LOWER_IS_BETTER else -value, row["dev_perplexity"]

    def _write_log(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in self.rows)
