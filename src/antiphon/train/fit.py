"""Training from a recipe to a finished run folder."""

import errno
import logging
import warnings
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from rich.console import Console
from torch.utils.data import DataLoader, Dataset

from antiphon import __version__
from antiphon.build import build_beam, build_model, count_parameters, fitting_measures
from antiphon.config import Recipe
from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus, plan_batches
from antiphon.device import choose_device, choose_threads
from antiphon.errors import InputError, RecipeError, RunError, count_of
from antiphon.kinds import KINDS
from antiphon.report.plots import plot_training
from antiphon.run import RunFolder, staged_run
from antiphon.train.checkpoint import Checkpoint, load_checkpoint
from antiphon.train.count import train_suffix_rules
from antiphon.train.keeper import Keeper
from antiphon.train.module import EpochBatches, Optimisation, TrainingModule, Validation
from antiphon.train.prepare import Prepared, prepare, prepare_again
from antiphon.train.progress import ProgressBar


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """Training was stopped by Ctrl-C; the last checkpoint is whole."""


def train(
    recipe: Recipe,
    out: Path,
    *,
    console: Console,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
) -> RunFolder:
    """Trains what the recipe describes and leaves it in the folder ``out``."""
    _check_kind(recipe)
    if resume and (out / "recipe.toml").exists():
        run = RunFolder.open(out)
        stored = run.recipe()
        _refuse_other_settings(stored, recipe, out)
        if run.metrics():
            console.print(f"{out}: training has ended already, nothing to resume")
            return run
        prepared = prepare_again(stored, run, console.print)
    elif recipe.model.kind == "suffix_rule":
        with staged_run(out, force=force) as run:
            train_suffix_rules(recipe, run, console.print)
        return RunFolder(out)
    else:
        with staged_run(out, force=force) as run:
            prepared = prepare(recipe, run, console.print)
        run = RunFolder(out)
    torch.set_num_threads(threads or choose_threads(prepared.recipe, len(prepared.codec.target.vocab)))
    checkpoint = load_checkpoint(run.checkpoint)
    module = _training_module(prepared, checkpoint)
    keeper = Keeper(run, prepared.recipe.train.dev_metric, prepared.recipe.train.patience, checkpoint)
    kind = prepared.recipe.model.kind
    parameters, threads_used = count_parameters(module.model), torch.get_num_threads()
    console.print(f"{kind}: {parameters:,} parameters, {count_of(threads_used, 'thread')}")
    _fit(prepared, run, module, keeper, console, device)
    _finish(prepared.recipe, run, keeper, module)
    return run


def _check_kind(recipe: Recipe) -> None:
    """Refuses what cannot be trained, and a dev metric that the kind cannot have."""
    kind, metric = recipe.model.kind, recipe.train.dev_metric
    if kind == "noisy_channel":
        raise RecipeError("model.kind = noisy_channel: made of trained runs by antiphon combine, expected another kind")
    possible = [] if kind == "suffix_rule" else ["perplexity"]
    if kind != "language_model":
        possible += fitting_measures(recipe.data)
    if metric not in possible:
        raise RecipeError(f"train.dev_metric = {metric}: not for this {kind}, expected {' or '.join(possible)}")


def _training_module(prepared: Prepared, checkpoint: Checkpoint | None) -> TrainingModule:
    recipe, codec = prepared.recipe, prepared.codec
    settings = recipe.train
    torch.manual_seed(settings.seed)
    written, read = int(prepared.train.target_lengths.sum()), int(prepared.train.source_lengths.sum())
    model = build_model(
        recipe.model, len(codec.source.vocab), len(codec.target.vocab), emit_probability=written / (written + read)
    )
    optimisation = Optimisation(
        learning_rate=settings.learning_rate,
        final_learning_rate=settings.final_learning_rate,
        max_epochs=settings.max_epochs,
        average=settings.average,
        seed=settings.seed,
    )
    beam = build_beam(recipe.search, beam=settings.dev_beam)
    measures = fitting_measures(recipe.data)
    validation = Validation(settings.dev_metric, codec, beam, KINDS[recipe.model.kind].search, measures)
    return TrainingModule(model, optimisation, validation, checkpoint)


def _fit(
    prepared: Prepared, run: RunFolder, module: TrainingModule, keeper: Keeper, console: Console, device: str
) -> None:
    settings = prepared.recipe.train
    epochs_left = settings.max_epochs - module.epochs_before
    if keeper.is_out_of_patience or not epochs_left:
        return
    _quieten_lightning()
    trainer = L.Trainer(
        max_epochs=epochs_left,
        gradient_clip_val=settings.clip,
        accelerator=choose_device(device),
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[keeper, ProgressBar(console, keeper, settings.max_epochs)],
    )
    batches = EpochBatches(
        prepared.train,
        batch_size=settings.batch_size,
        max_cells=settings.max_batch_cells,
        seed=settings.seed,
        epoch=lambda: module.epoch,
    )
    try:
        trainer.fit(
            module,
            # A loader draws a number when it starts: from its own generator, so that dropout's are left alone.
            DataLoader(batches, batch_size=None, generator=torch.Generator()),
            _dev_batches(prepared.dev, settings.max_batch_cells),
        )
    except SystemExit as stopped:  # this is how Lightning passes Ctrl-C on
        raise Interrupted(f"{run.path}: stopped; go on with --resume") from stopped
    except OSError as error:
        raise _disk_trouble(error, run) from error


def _dev_batches(dev: Corpus, max_cells: int) -> DataLoader[Batch]:
    plan = plan_batches(dev.source_lengths, dev.target_lengths, batch_size=64, max_cells=max_cells)
    return DataLoader(cast(Dataset[Batch], dev), sampler=plan, batch_size=None, generator=torch.Generator())


def _finish(recipe: Recipe, run: RunFolder, keeper: Keeper, module: TrainingModule) -> None:
    with suppress(InputError):  # no plotting library, no picture: log.csv says the same
        plot_training(keeper.rows, keeper.best, recipe.train.dev_metric, run.plot)
    seconds = sum(row["seconds"] for row in keeper.rows)
    best: dict[str, Any] = {name: value for name, value in keeper.best.items() if name.startswith("dev_")}
    run.save_metrics(
        {
            "best_epoch": int(keeper.best["epoch"]),
            "epochs": len(keeper.rows),
            **best,
            "parameters": count_parameters(module.model),
            "training_seconds": round(seconds, 1),
            "pairs_per_second": round(sum(row["pairs_per_second"] for row in keeper.rows) / len(keeper.rows), 1),
            "seed": recipe.train.seed,
            "date": date.today().isoformat(),
            "antiphon": __version__,
            "torch": torch.__version__,
        }
    )
    run.checkpoint.unlink(missing_ok=True)
    run.discard_corpus()


def _refuse_other_settings(stored: Recipe, asked: Recipe, out: Path) -> None:
    before, now = stored.model_dump(mode="json"), asked.model_dump(mode="json")
    for section, values in before.items():
        for name, value in values.items():
            wanted = now[section][name]
            if wanted != value and not (name in ("features", "forget_bias") and wanted is None):
                raise RecipeError(
                    f"{out}: {section}.{name} is {value!r} in the run, expected the same but {wanted!r} was asked for; "
                    "--resume goes on with the settings a run began with"
                )


def _disk_trouble(error: OSError, run: RunFolder) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return RunError(
            f"{run.path}: the disk is full; the last checkpoint is whole, make room and go on with --resume"
        )
    return error


def _quieten_lightning() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for message in (".*does not have many workers.*", ".*`isinstance.treespec, LeafSpec.` is deprecated.*"):
        warnings.filterwarnings("ignore", message)
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
