"""``antiphon train``."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import Device, Recipe, Settings, Threads

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.recipe.schema import Recipe as RecipeSettings
    from antiphon.runs.run_folder import RunFolder


def command(
    recipe: Recipe,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the run; unset: runs/NAME-OF-RECIPE.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already in the folder.")] = False,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Read the data, estimate memory and time of training, and leave everything as it is."
        ),
    ] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train what a recipe describes and leave it in a run folder.

    Several processes train one model together where torchrun starts them: torchrun --nproc-per-node N -m antiphon
    train ...

    Example: antiphon train g2p --set data.train=a.tsv --set data.dev=b.tsv
    """
    from antiphon.recipe.recipe_file import load_recipe
    from antiphon.recipe.shipped_recipes import find_recipe
    from antiphon.terminal import PlainConsole
    from antiphon.train.fit import Interrupted, dry_run, train
    from antiphon.train.processes import by_first, first_alone, is_first, joined
    from antiphon.train.spool import spooled

    folder = out or Path("runs") / Path(recipe).stem
    with ExitStack() as copies:
        with joined():
            console = PlainConsole(stderr=True, quiet=not is_first())
            try:
                loaded = by_first(
                    lambda: copies.enter_context(
                        spooled(load_recipe(find_recipe(recipe), settings or (), console.print))
                    )
                )
                if dry:
                    first_alone(lambda: dry_run(loaded, console=console, device=device, threads=threads))
                    return
                run = train(loaded, folder, console=console, resume=resume, force=force, device=device, threads=threads)
            except Interrupted as stopped:
                console.print(f"antiphon: {stopped}")
                raise typer.Exit(stopped.status) from None
            if not is_first():
                return
        report_training(run, loaded, console)
        report_rules(run, console)
        if loaded.data.test is not None and "test" not in run.metrics():
            report_test(run, console, device, threads)
        report_stop(run, console)
        console.print(f"next:\n{next_steps(folder, loaded.model.kind)}", soft_wrap=True)
        report_improving(run, recipe, settings or [], console)


def report_stop(run: "RunFolder", console: "Console") -> None:
    """Says why training ended before its time, if it did, with exit status 1."""
    metrics = run.metrics()
    if "stopped" in metrics:
        console.print(
            f"antiphon: {run.path}: {metrics['stopped']}; training stopped, the weights are those of epoch "
            f"{metrics['best_epoch']}; expected finite losses, try a lower train.learning_rate",
            soft_wrap=True,
        )
        raise typer.Exit(1)


def report_improving(run: "RunFolder", recipe: str, settings: Sequence[str], console: "Console") -> None:
    """Says how to go on with a run whose best epoch is among its last."""
    from antiphon.train.length import longer_than

    metrics = run.metrics()
    epochs = longer_than(run.recipe().train, metrics["best_epoch"], metrics["epochs"])
    if epochs is not None:
        given = [each for each in settings if each.partition("=")[0].strip() != "train.max_epochs"]
        options = [part for each in [*given, f"train.max_epochs={epochs}"] for part in ("--set", each)]
        command = shlex.join(["antiphon", "train", recipe, "--resume", *options, "--out", str(run.path)])
        console.print(f"still improving when training ended: go on with {command}", soft_wrap=True)


def next_steps(run: Path, kind: str) -> str:
    """The commands that make use of a run that has just been trained."""
    name = shlex.quote(str(run))
    verbs = {
        "language_model": [f"evaluate {name} TEST.tsv", f"combine --direct DIRECT-RUN --lm {name} --out COMBINED-RUN"],
        "matcher": [f"evaluate {name} QUESTIONS.tsv", f"predict {name} QUESTIONS.tsv"],
        "overlap": [f"evaluate {name} QUESTIONS.tsv", f"predict {name} QUESTIONS.tsv"],
    }
    writers = [f"evaluate {name} TEST.tsv", f"errors {name} TEST.tsv", f"predict {name} INPUTS.txt"]
    return "\n".join(f"  antiphon {verb}" for verb in verbs.get(kind, writers))


def report_training(run: "RunFolder", recipe: "RecipeSettings", console: "Console") -> None:
    """Says what came out of training."""
    metrics = run.metrics()
    name = recipe.train.dev_metric
    console.print(
        f"{run.path}: dev {name} {metrics[f'dev_{name}']:.4g} in epoch {metrics['best_epoch']} of {metrics['epochs']}, "
        f"{metrics['training_seconds']:.0f} s, {metrics['pairs_per_second']:,.0f} pairs per second",
        soft_wrap=True,
    )


def report_rules(run: "RunFolder", console: "Console") -> None:
    """Says what suffix rules of the same pairs get on dev, and what network and rules get together."""
    metrics = run.metrics()
    if "dev_rule_accuracy" not in metrics:
        return
    line = f"suffix rules of the same pairs: dev accuracy {metrics['dev_rule_accuracy']:.4g}"
    if "dev_accuracy_with_rules" in metrics:
        weight, together = run.recipe().search.rule_weight, metrics["dev_accuracy_with_rules"]
        line += f"; together, with search.rule_weight = {weight:g}: {together:.4g}"
    console.print(line, soft_wrap=True)


def report_test(run: "RunFolder", console: "Console", device: str, threads: int | None) -> None:
    """Evaluates the run on its test file, prints the metrics and keeps them in the run."""
    from antiphon.api import RankingModel
    from antiphon.cli import ranking
    from antiphon.data.readers import keep_filled
    from antiphon.report.tables import metrics_table
    from antiphon.runs.run_folder import writing
    from antiphon.train.prepare import pairs_of

    model = load_run(run.path, device, threads)
    test = model.recipe.data.test
    assert test is not None
    if isinstance(model, RankingModel):
        assert isinstance(test, Path)
        evaluation = ranking.evaluate(model, test, "mixed", None)
    else:
        pairs, _ = keep_filled(pairs_of(model.recipe, test), test, targets_only=not model.answers)
        evaluation = model.evaluate(pairs)
    with writing(run.path) as held, held.changed() as new:
        new.save_metrics(held.metrics() | {"test": evaluation.to_dict()})
    console.print(metrics_table(evaluation))
