"""``antiphon train``: trains a recipe and prints the result."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from antiphon.cli.options import Device, Force, RecipeName, Settings, Threads, load_run
from antiphon.terminal import Say

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.recipe.schema import Recipe
    from antiphon.runs.run_folder import RunFolder


Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for the run; default: runs/NAME-OF-RECIPE.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was stopped, or make it longer.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only read the data and estimate memory and time; write nothing.")
]


def train(
    recipe: RecipeName,
    settings: Settings = None,
    out: Out = None,
    resume: Resume = False,
    force: Force = False,
    dry: DryRun = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a recipe and write the model to a run folder.

    torchrun trains one model on several processes, and restarts those that are lost:
    torchrun --nproc-per-node N --max-restarts 3 -m antiphon train ... --resume

    Examples:
      antiphon train toy
      antiphon train g2p --set data.train=a.tsv --set data.dev=b.tsv
      antiphon train toy --set model.layers=2 --out runs/two-layers
      antiphon train toy --dry-run
    """
    from antiphon.console import PlainConsole
    from antiphon.recipe.recipe_file import spooled
    from antiphon.training.distributed import from_rank_zero, is_rank_zero, on_rank_zero, process_group
    from antiphon.training.dry_run import dry_run

    with ExitStack() as copies:
        with process_group():
            console = PlainConsole(stderr=True, quiet=not is_rank_zero())
            say = partial(console.print, soft_wrap=True)
            loaded = from_rank_zero(lambda: copies.enter_context(spooled(read_recipe(recipe, settings, say))))
            if dry:
                on_rank_zero(lambda: dry_run(loaded, say=say, device=device, threads=threads))
                return
            folder = out or Path("runs") / Path(recipe).stem
            options: Options = {"resume": resume, "force": force, "device": device, "threads": threads}
            resuming = resume_command(recipe, settings or [], folder)
            run = run_training(loaded, folder, console, say, options, resuming)
            if not is_rank_zero():
                return
        report(run, recipe, settings or [], console, device, threads)


class Options(TypedDict):
    """Options of training."""

    resume: bool
    force: bool
    device: str
    threads: int | None


def read_recipe(name: str, settings: list[str] | None, say: Say) -> "Recipe":
    """The recipe of a name or a path with settings on top."""
    from antiphon.recipe.recipe_file import find_recipe, load_recipe

    return load_recipe(find_recipe(name), settings or (), say)


def resume_command(recipe: str, settings: Sequence[str], folder: Path) -> str:
    """The command that resumes a run."""
    options = [part for each in settings for part in ("--set", each)]
    return shlex.join(["antiphon", "train", recipe, "--resume", *options, "--out", str(folder)])


def run_training(
    recipe: "Recipe",
    folder: Path,
    console: "Console",
    say: Say,
    options: Options,
    resuming: str,
) -> "RunFolder":
    """The trained run; Ctrl-C ends the command with one line that names the command to resume it."""
    from antiphon.device import prepare_allocators
    from antiphon.training.callback import ProgressBar, trial_callbacks
    from antiphon.training.fit import train
    from antiphon.training.loop import Interrupted

    reports = trial_callbacks()
    prepare_allocators(options["device"])
    try:
        return train(recipe, folder, say=say, callbacks=[ProgressBar(console), *reports], wait=bool(reports), **options)
    except Interrupted as stopped:
        console.print(f"antiphon: {stopped}{f': {resuming}' if stopped.resumable else ''}", soft_wrap=True)
        raise typer.Exit(stopped.status) from None


def report(
    run: "RunFolder", recipe: str, settings: Sequence[str], console: "Console", device: str, threads: int | None
) -> None:
    """Prints the result of training, the metrics of the test file if there is one, and what to do next."""
    loaded = run.recipe()
    report_training(run, loaded, console)
    report_rules(run, console)
    if loaded.data.test is not None and "test" not in run.metrics():
        report_test(run, console, device, threads)
    report_stop(run, console)
    console.print(f"next:\n{next_steps(run.path, loaded.model.kind)}", soft_wrap=True)
    report_improving(run, recipe, settings, console)


def report_stop(run: "RunFolder", console: "Console") -> None:
    """Prints why training stopped early because of an error, if it did, and exits with status 1."""
    metrics = run.metrics()
    if "stopped" in metrics:
        console.print(
            f"antiphon: {run.path}: {metrics['stopped']}; training stopped, the weights are those of epoch "
            f"{metrics['best_epoch']}; expected finite losses, try a lower train.learning_rate",
            soft_wrap=True,
        )
        raise typer.Exit(1)


def report_improving(run: "RunFolder", recipe: str, settings: Sequence[str], console: "Console") -> None:
    """Prints how to train a run longer whose best epoch is among its last, unless its dev metric is perfect."""
    from antiphon.training.optimisation import longer_than
    from antiphon.training.state import is_perfect

    metrics, train = run.metrics(), run.recipe().train
    epochs = longer_than(train, metrics["best_epoch"], metrics["epochs"])
    if epochs is not None and not is_perfect(train.dev_metric, metrics[f"dev_{train.dev_metric}"]):
        given = [each for each in settings if each.partition("=")[0].strip() != "train.max_epochs"]
        command = resume_command(recipe, [*given, f"train.max_epochs={epochs}"], run.path)
        console.print(f"still improving when training ended; to train longer: {command}", soft_wrap=True)


def next_steps(run: Path, kind: str) -> str:
    """The commands to type after training."""
    from antiphon.recipe.kinds import KINDS

    name = shlex.quote(str(run))
    verbs = [f"evaluate {name} TEST.tsv", f"errors {name} TEST.tsv", f"predict {name} INPUTS.txt"]
    if KINDS[kind].ranks:
        verbs = [f"evaluate {name} QUESTIONS.tsv", f"predict {name} QUESTIONS.tsv"]
    elif not KINDS[kind].reads_source:
        verbs = [f"evaluate {name} TEST.tsv", f"combine --direct DIRECT-RUN --lm {name} --out COMBINED-RUN"]
    return "\n".join(f"  antiphon {verb}" for verb in verbs)


def report_training(run: "RunFolder", recipe: "Recipe", console: "Console") -> None:
    """Prints the best dev metric and how long training took."""
    metrics = run.metrics()
    name, beam = recipe.train.dev_metric, recipe.search.beam
    value = f"dev {name.replace('_', ' ')} {metrics[f'dev_{name}']:.4g}"
    if f"dev_{name}_beam_{beam}" in metrics:
        full = metrics[f"dev_{name}_beam_{beam}"]
        value += f" with beam {metrics['dev_beam']}, {full:.4g} with beam {beam} as in evaluate,"
    console.print(
        f"{run.path}: {value} in epoch {metrics['best_epoch']} of {metrics['epochs']}, "
        f"{metrics['training_seconds']:.0f} s, {metrics['pairs_per_second']:,.0f} pairs per second",
        soft_wrap=True,
    )


def report_rules(run: "RunFolder", console: "Console") -> None:
    """Prints the dev accuracy of suffix rules of the same pairs, alone and together with the network."""
    metrics = run.metrics()
    if "dev_rule_accuracy" not in metrics:
        return
    line = f"suffix rules of the same pairs: dev accuracy {metrics['dev_rule_accuracy']:.4g}"
    if "dev_accuracy_with_rules" in metrics:
        weight, together = run.recipe().search.rule_weight, metrics["dev_accuracy_with_rules"]
        line += f"; together, with search.rule_weight = {weight:g}: {together:.4g}"
    console.print(line, soft_wrap=True)


def report_test(run: "RunFolder", console: "Console", device: str, threads: int | None) -> None:
    """Evaluates the run on its test file, prints the metrics and saves them in the run."""
    from antiphon.api import RankingModel
    from antiphon.cli import answer_selection
    from antiphon.report.tables import metrics_table
    from antiphon.runs.run_folder import open_for_writing
    from antiphon.torch_free.readers import keep_filled
    from antiphon.training.prepare import pairs_of

    model = load_run(run.path, device, threads)
    test = model.recipe.data.test
    assert test is not None
    if isinstance(model, RankingModel):
        assert isinstance(test, Path)
        evaluation = answer_selection.evaluate(model, test, "mixed", None)
    else:
        pairs = keep_filled(pairs_of(model.recipe, test), test, targets_only=not model.can_predict)
        evaluation = model.evaluate(pairs)
    with open_for_writing(run.path) as held, held.changed() as new:
        new.save_metrics(held.metrics() | {"test": evaluation.to_dict()})
    console.print(metrics_table(evaluation))
