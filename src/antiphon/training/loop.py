"""The training loop: from the start or from a checkpoint to the last epoch, early stopping, or an interrupt.

Each update is one ``Step`` (``step.py``), which calls the loss of the model.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from antiphon.exceptions import RunError, interrupt_status, is_disk_full, is_out_of_memory
from antiphon.recipe.sections import TrainSection
from antiphon.runs.run_folder import RunFolder, publish
from antiphon.storage.tensors import load_finite
from antiphon.training.callback import Callback, UpdateProgress
from antiphon.training.distributed import (
    all_reduce_sum,
    broadcast,
    broadcast_weights,
    gradient_group,
    on_rank_zero,
    world_size,
)
from antiphon.training.optimisation import Optimisation, Schedule
from antiphon.training.state import History, Row, TrainingState, save_checkpoint
from antiphon.training.step import CudaGraphStep, OutOfMemoryRetry, Step
from antiphon.training.task import DevResult, TrainingSetup

T = TypeVar("T")

_UPDATES_BETWEEN_AGREEMENTS = 10
"""Updates after which several processes agree whether a checkpoint is due: that takes a broadcast."""


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Training was stopped by Ctrl-C or SIGTERM; the last checkpoint is complete, if the run is ``resumable``."""

    def __init__(self, message: str, status: int, *, resumable: bool) -> None:
        super().__init__(message)
        self.status, self.resumable = status, resumable


class TrainingLoop:
    """Trains, validates after each epoch, and saves log, best weights and checkpoint."""

    def __init__(
        self,
        setup: TrainingSetup,
        state: TrainingState,
        history: History,
        run: RunFolder,
        settings: TrainSection,
        callbacks: Sequence[Callback] = (),
        place: Path | None = None,
    ) -> None:
        """``place`` is where the run goes once it has weights, if it is elsewhere until then."""
        self.setup, self.state, self.history, self.run_folder = setup, state, history, run
        self.settings, self.callbacks = settings, callbacks
        self.optimisation, self.schedule = Optimisation.of(settings, setup.pairs), Schedule.of(settings)
        self.place = place or run.path
        self.step = self._new_step()
        self._saved = time.monotonic()

    def run(self) -> None:
        """Trains for the epochs that are left."""
        max_epochs = self.schedule.max_epochs
        with _matmul_precision(self.optimisation.precision), self.explained_errors():
            try:
                self._call(lambda callback: callback.on_train_begin(self.history, max_epochs))
                while self.state.epoch < max_epochs and not self.history.has_converged:
                    if not self._run_epoch() or broadcast(any(each.stop_training for each in self.callbacks)):
                        return  # callbacks, which only rank 0 has, may want training to end
            finally:
                self._call(lambda callback: callback.on_train_end())

    def validate_best(self) -> Mapping[str, float]:
        """Further dev metrics of the best weights, once training has ended."""
        if self.setup.validate_best is None or not self.history.rows:
            return {}
        model = self.state.evaluated_model.eval()
        model.load_state_dict(load_finite(self.run_folder.trained_weights()))
        with torch.inference_mode():
            return self.setup.validate_best(model, self._in_micro_batches)

    def _run_epoch(self) -> bool:
        """Trains and validates an epoch and saves it; False, and nothing is saved, if it is not finite."""
        started = time.monotonic() - self.state.seconds
        self._train_epoch(started)
        trained = time.monotonic()
        result = self._validate()
        self.state.loss.all_reduce()
        if result is None:
            self.history.problem = f"the loss or the weights are not finite in epoch {self.state.epoch + 1}"
            return False
        row = broadcast(
            {
                "epoch": self.state.epoch + 1,
                "train_loss": self.state.loss.value,
                **{f"dev_{name}": value for name, value in result.metrics.items()},
                "seconds": time.monotonic() - started,
                "pairs_per_second": self.state.loss.count / (trained - started),
            }
        )
        self._save_epoch(row, result)
        self._call(lambda callback: callback.on_epoch_end(self.state.epoch, row, self.state.evaluated_model))
        return True

    def _train_epoch(self, started: float) -> None:
        """Makes every update of the epoch that has not been made yet."""
        state = self.state
        state.start_epoch(self.optimisation.seed)
        state.model.train()
        plan = self.setup.batches.plan(state.epoch)
        scheduler = self.schedule.scheduler(state.optimiser, state.epoch, len(plan), state.update)
        for indices in plan[state.update :]:
            shard = self.setup.batches.shard(state.epoch, state.update, indices)
            state.loss.add(*self.step(shard))
            state.update += 1
            self._call_update_end(len(plan))
            scheduler.step()
            if state.update < len(plan) and self._checkpoint_is_due():
                self._save(seconds=time.monotonic() - started)

    @torch.inference_mode()
    def _validate(self) -> DevResult | None:
        """The result on the dev set; None if losses or weights are not finite."""
        if not self._is_finite():
            return None
        result = self.setup.validate(self.state.evaluated_model.eval(), self._in_micro_batches)
        return result if math.isfinite(result.loss) else None

    def _is_finite(self) -> bool:
        """Whether the losses of this epoch and all weights are finite, in all processes."""
        return all_reduce_sum(not self.state.is_finite()) == [0]

    def _in_micro_batches(self, batch: Any, compute: Callable[[Any], T]) -> list[T]:
        """The results of ``compute`` on a dev batch, split where memory runs out."""
        device = self.state.device
        return self.state.dev_limit.retry(
            batch, lambda parts: [compute(part.to(device)) for part in parts], self.step.release_graphs
        )

    def _save_epoch(self, row: Row, result: DevResult) -> None:
        """Adds an epoch to the history and saves all of it."""
        is_best = self.history.add(row)
        self.state.finish_epoch()
        self._save(best=result if is_best else None)

    def _save(self, *, best: DevResult | None = None, seconds: float = 0.0) -> None:
        """Saves a checkpoint, after an epoch the log, and weights that are the best, all in one change of the run."""
        checkpoint = self.state.checkpoint(self.history, seconds)

        def write() -> None:
            with self.run_folder.changed() as new:
                if best:
                    new.save_weights(self.state.evaluated_model.state_dict())
                    if best.save_with_weights:
                        best.save_with_weights(new)
                if not self.state.update:
                    self.history.write_csv(new.log)
                save_checkpoint(checkpoint, new.checkpoint)
            if best and self.is_waiting:
                self.run_folder = publish(self.run_folder, self.place)

        on_rank_zero(write)
        self._saved = time.monotonic()

    @property
    def is_waiting(self) -> bool:
        """Whether an old run is still in the place of this one, which has no weights yet."""
        return self.run_folder.path != self.place

    @contextmanager
    def explained_errors(self) -> Iterator[None]:
        """Inside, errors after an interrupt, a full disk or a lack of memory say what the user can do."""
        try:
            yield
        except KeyboardInterrupt as interrupt:
            kept = f"{self._kept_run()}; " if self.is_waiting else ""
            message = f"{self.place}: stopped; {kept}{self._next_step()}"
            raise Interrupted(message, interrupt_status(interrupt), resumable=not self.is_waiting) from interrupt
        except OSError as error:
            if is_disk_full(error):
                raise RunError(
                    f"{self.place}: the disk is full; {self._kept_run()}, free some space and {self._next_step()}"
                ) from error
            raise
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise RunError(
                    f"{self.place}: out of memory; {self._kept_run()}, free some memory and {self._next_step()}, or "
                    "start again with a lower train.max_batch_cells or a smaller model"
                ) from error
            raise

    def _kept_run(self) -> str:
        if self.is_waiting:
            return "the old run is unchanged"
        is_saved = self.run_folder.checkpoint.exists()
        return "the last checkpoint is complete" if is_saved else "no checkpoint was saved yet"

    def _next_step(self) -> str:
        return "start again with --force" if self.is_waiting else "continue with --resume"

    def _checkpoint_is_due(self) -> bool:
        """Whether the last checkpoint is too long ago, as rank 0 decides, and there is something finite to save."""
        if world_size() > 1 and self.state.update % _UPDATES_BETWEEN_AGREEMENTS:
            return False
        is_late = broadcast(time.monotonic() - self._saved >= 60 * self.settings.checkpoint_minutes)
        return is_late and self._is_finite()

    def _new_step(self) -> OutOfMemoryRetry:
        """The step, as a CUDA graph where that is possible, with retries after out-of-memory errors."""
        state, optimisation = self.state, self.optimisation
        group = gradient_group(state.device)
        broadcast_weights(state.model, group)
        step = Step(
            state.model, self.setup.loss, state.optimiser, optimisation.clip, state.ema, optimisation.bfloat16, group
        )
        captures = self.setup.uses_cuda_graphs and state.device.type == "cuda" and world_size() == 1
        graph_step = CudaGraphStep(step, self.settings.batch_size) if captures else None
        return OutOfMemoryRetry(step, state.limit, graph_step)

    def _call(self, method: Callable[[Callback], None]) -> None:
        """Calls a method of every callback."""
        for callback in self.callbacks:
            method(callback)

    def _call_update_end(self, updates: int) -> None:
        """Tells every callback of an update."""
        optimiser, loss = self.state.optimiser, self.state.loss
        progress = UpdateProgress(
            self.state.epoch + 1,
            self.state.update,
            updates,
            lambda: loss.value,
            lambda: float(optimiser.param_groups[0]["lr"]),
        )
        self._call(lambda callback: callback.on_update_end(progress))


@contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    """Inside, a GPU may multiply in TF32 unless float32 is asked for."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "float32" or not torch.cuda.is_available() else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
