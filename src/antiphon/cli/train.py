"""``antiphon train``: trains a recipe and prints the result."""

import shlex
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from antiphon.cli.options import Device, Force, Settings, Threads, load_run
from antiphon.storage.files import beside
from antiphon.storage.manifest import MEMBERS
from antiphon.terminal import Say, count_of

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.recipe.schema import Recipe
    from antiphon.report.error_report import ErrorReport
    from antiphon.runs.run_folder import RunFolder
    from antiphon.torch_free.readers import Pair


RecipeOrData = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|DATA", help="Name of a recipe (see antiphon recipes), a TOML file, or a file of pairs."
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for the run; default: runs/NAME.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was stopped, or make it longer.")]
Finish = Annotated[
    bool, typer.Option("--finish", help="End a run that was stopped, which stands for RECIPE, with its best epoch.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only read the data, choose settings and estimate the time; write nothing.")
]

_EXAMPLES = 5
"""Held-out pairs that are shown after learning a file."""
_LEARNT_PAIRS = 200
"""Training pairs that are predicted to tell whether more pairs would help, or longer training."""
_LENGTHS = ("train.max_epochs", "train.minutes")
"""Settings that a command to train longer leaves out or replaces."""
Minutes = Annotated[
    float | None,
    typer.Option(metavar="M", min=0, help="Minutes that training may take: sets train.minutes, see antiphon settings."),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=2,
        max=len(MEMBERS),
        help="Train N models with different seeds, and make them one run, an ensemble.",
    ),
]


def train(
    recipe: RecipeOrData,
    settings: Settings = None,
    out: Out = None,
    minutes: Minutes = None,
    seeds: Seeds = None,
    resume: Resume = False,
    finish: Finish = False,
    force: Force = False,
    dry: DryRun = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a recipe, or learn a file of pairs, as a run.

    A file of pairs is text with source and target, and features if there are any, in columns with tabs, commas or
    semicolons between them. What is found in it is shown first, with what is decided and how to decide otherwise;
    pairs are held out, and a recipe is chosen.

    With --seeds, models are trained one after another, with train.seed and the
    numbers after it; --minutes are shared among them. What is left is one run, an
    ensemble, which is evaluated on the dev pairs.

    torchrun trains one model on several processes, and restarts those that are lost:
    torchrun --nproc-per-node N --max-restarts 3 -m antiphon train ... --resume

    Examples:
      antiphon train toy
      antiphon train names.csv --dry-run
      antiphon train g2p --set data.train=a.tsv --set data.dev=b.tsv
      antiphon train toy --set model.layers=2 --out runs/two-layers
      antiphon train toy --dry-run
      antiphon train runs/two-layers --finish
      antiphon train g2p --set data.train=a.tsv --set data.dev=b.tsv --minutes 2
      antiphon train toy --seeds 3 --out runs/three
    """
    from antiphon.console import PlainConsole
    from antiphon.device import prepare_allocators
    from antiphon.recipe.recipe_file import spooled
    from antiphon.runs.run_folder import RunFolder
    from antiphon.training.distributed import from_rank_zero, is_rank_zero, on_rank_zero, process_group
    from antiphon.training.fit import dry_run
    from antiphon.training.seeds import member_folder

    settings = [*(settings or []), *([] if minutes is None else [f"train.minutes={minutes / (seeds or 1):g}"])]
    with ExitStack() as copies:
        with process_group():
            console = PlainConsole(stderr=True, quiet=not is_rank_zero())
            say = partial(console.print, soft_wrap=True)
            prepare_allocators(device)
            folder = out or (Path(recipe) if finish else Path("runs") / Path(recipe).stem)
            if finish:
                recipe, resume = str(RunFolder.open(folder).path / "recipe.toml"), True
            examples = is_pairs(recipe)
            if examples:
                place = copies.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-pairs-")) if dry else None
                pairs = Path(place) if place else beside(folder, "pairs")
                runs = [folder, *(member_folder(folder, n) for n in range(seeds or 0))]
                chosen = partial(choose, Path(recipe), settings, pairs, runs, force, say)
                recipe, settings = from_rank_zero(lambda: copies.enter_context(chosen()))
            loaded = from_rank_zero(lambda: copies.enter_context(spooled(read_recipe(recipe, settings, say, finish))))
            if dry:
                on_rank_zero(lambda: dry_run(loaded, say=say, device=device, threads=threads))
                if seeds is not None:
                    say(f"with --seeds {seeds}, {seeds} such models, one after another")
                return
            options: Options = {"resume": resume, "force": force, "device": device, "threads": threads}
            resuming = resume_command(recipe, settings, folder, seeds)
            run = run_training(loaded, folder, console, say, options, resuming, seeds)
            if not is_rank_zero():
                return
        if seeds is None:
            report(run, recipe, settings, console, device, threads)
        else:
            report_ensemble(run, console, device, threads)
        if examples:
            report_examples(run, console, device, threads)


def is_pairs(name: str) -> bool:
    """Whether an argument names a file of pairs, not a recipe."""
    from antiphon.recipe.recipe_file import names_recipe

    return not names_recipe(name) and Path(name).is_file()


@contextmanager
def choose(
    data: Path, settings: Sequence[str], pairs: Path, runs: Sequence[Path], force: bool, say: Say
) -> Iterator[tuple[str, list[str]]]:
    """The recipe and all settings to learn a file of pairs, which inside are in a folder in parts."""
    from antiphon.api.train_recipe import choose_recipe

    given = {key.strip(): value.strip() for key, _, value in (each.partition("=") for each in settings)}
    say(f"{data}:")
    with choose_recipe(data, given, pairs, runs, force=force, say=lambda line: say(f"  {line}")) as (recipe, chosen):
        yield recipe, [f"{key}={value}" for key, value in chosen.items()]


def report_examples(run: "RunFolder", console: "Console", device: str, threads: int | None) -> None:
    """Prints what the run makes of some held-out sources, its most frequent mistakes, and what would help."""
    from antiphon.torch_free.readers import keep_filled
    from antiphon.training.prepare import pairs_of

    model = load_run(run.path, device, threads)
    train, dev = model.recipe.data.train, model.recipe.data.dev
    if train is None or dev is None or not model.can_predict:
        return
    pairs = keep_filled(pairs_of(model.recipe, dev), dev)
    found = model.errors(pairs)
    outputs = {(each.source, each.features, each.reference): each.output for each in found.mistakes}
    say = partial(console.print, soft_wrap=True)
    say(f"held out: {found.right:,} of {found.pairs:,} right, with beam {model.recipe.search.beam}; such as")
    for pair in pairs[:_EXAMPLES]:
        output = outputs.get((pair.source, pair.features, pair.target), pair.target)
        verdict = "" if output == pair.target else f"  (expected {pair.target})"
        say(f"  {' '.join([pair.source, *pair.features])} -> {output}{verdict}")
    if found.wrong:
        say("most frequent mistakes:")
        for edit in found.edits[:_EXAMPLES]:
            what = f"{edit.written or 'nothing'} for {edit.wanted}" if edit.wanted else f"{edit.written} added"
            say(f"  {what}, {count_of(edit.count, 'time')}, as in {edit.example}")
        say("what would help:")
        learnt = list(pairs_of(model.recipe, train))
        again = model.errors(learnt[:: -(-len(learnt) // _LEARNT_PAIRS)])
        for hint in hints(found, pairs, again):
            say(f"  {hint}")
        say(f"all mistakes: antiphon errors {shlex.quote(str(run.path))} {shlex.quote(str(dev))}")


def hints(found: "ErrorReport", pairs: "Sequence[Pair]", learnt: "ErrorReport") -> Iterator[str]:
    """What would avoid mistakes, the most of them first; ``learnt`` is a report on training pairs.

    Where these are right, what is missing is pairs; where they are as wrong as those held out, it is training.
    """
    targets: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for pair in pairs:
        targets[pair.source, *pair.features].add(pair.target)
    several = sum(len(targets[each.source, *each.features]) > 1 for each in found.mistakes)
    unseen = sum(bool(each.unseen) for each in found.mistakes)
    causes = {
        "have a source with several targets, of which only one can be right: clean the file, or --nbest": several,
        "have symbols that training never saw: add pairs with them; capitals: data.lowercase=true": unseen,
    }
    for cause, count in sorted(causes.items(), key=lambda each: -each[1]):
        if count:
            yield f"{count:,} of {found.wrong:,} {cause}"
    if several + unseen < found.wrong:
        seen = f"of {learnt.pairs:,} pairs that were learnt, {learnt.right:,} are right"
        if 2 * learnt.wrong * found.pairs > found.wrong * learnt.pairs:
            yield f"{seen}, hardly more: train longer, raise model.hidden_size, or clean pairs (errors --suspicious)"
        else:
            yield f"{seen}: more pairs would help most; or the mean of several runs: --seeds 3"


class Options(TypedDict):
    """Options of training."""

    resume: bool
    force: bool
    device: str
    threads: int | None


def read_recipe(name: str, settings: list[str] | None, say: Say, finish: bool = False) -> "Recipe":
    """The recipe of a name or a path with settings on top; ``finish`` ends training after the epochs that a run has."""
    from antiphon.recipe.recipe_file import find_recipe, load_recipe

    recipe = load_recipe(find_recipe(name), settings or (), say)
    if not finish:
        return recipe
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"max_epochs": 1, "minutes": None})})


def resume_command(recipe: str, settings: Sequence[str], folder: Path, seeds: int | None = None) -> str:
    """The command that resumes a run."""
    options = [part for each in settings for part in ("--set", each)]
    options += [] if seeds is None else ["--seeds", str(seeds)]
    return shlex.join(["antiphon", "train", recipe, "--resume", *options, "--out", str(folder)])


def finish_command(folder: Path) -> str:
    """The command that ends a stopped run."""
    return shlex.join(["antiphon", "train", str(folder), "--finish"])


def run_training(
    recipe: "Recipe",
    folder: Path,
    console: "Console",
    say: Say,
    options: Options,
    resuming: str,
    seeds: int | None,
) -> "RunFolder":
    """The trained run, an ensemble with ``seeds``; Ctrl-C ends the command with one line on how to resume it."""
    from antiphon.training.callback import ProgressBar
    from antiphon.training.fit import train
    from antiphon.training.loop import Interrupted
    from antiphon.training.seeds import train_seeds

    try:
        if seeds is None:
            return train(recipe, folder, say=say, callbacks=[ProgressBar(console)], **options)
        return train_seeds(recipe, folder, seeds, say=say, callbacks=[ProgressBar(console)], **options)
    except Interrupted as stopped:
        console.print(f"antiphon: {stopped}{f': {resuming}' if stopped.resumable else ''}", soft_wrap=True)
        if stopped.resumable and seeds is None:
            console.print(f"or end it with its best epoch so far: {finish_command(folder)}", soft_wrap=True)
        raise typer.Exit(stopped.status) from None


def report(
    run: "RunFolder", recipe: str, settings: Sequence[str], console: "Console", device: str, threads: int | None
) -> None:
    """Prints the result of training, the metrics of the test file if there is one, and what to do next."""
    loaded = run.recipe()
    report_training(run, loaded, console)
    report_rules(run, console)
    if loaded.data.test is not None and "test" not in run.metrics():
        report_metrics(run, "test", console, device, threads)
    report_stop(run, console)
    console.print(f"next:\n{next_steps(run.path, loaded.model.kind)}", soft_wrap=True)
    report_improving(run, recipe, settings, console)


def report_ensemble(run: "RunFolder", console: "Console", device: str, threads: int | None) -> None:
    """Prints the metrics of an ensemble on its dev pairs, and on the test file if there is one."""
    for part in ("dev", "test"):
        if getattr(run.recipe().data, part) is not None and part not in run.metrics():
            console.print(f"{run.path}: an ensemble of {len(run.parts())}, on {part} pairs:", soft_wrap=True)
            report_metrics(run, part, console, device, threads)
    console.print(f"next:\n{next_steps(run.path, run.recipe().model.kind)}", soft_wrap=True)


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
    """Prints how to train a run longer that improved until the end, unless its dev metric is perfect."""
    from antiphon.training.optimisation import longer_than
    from antiphon.training.state import is_perfect

    metrics, train = run.metrics(), run.recipe().train
    epochs = longer_than(train, metrics["best_epoch"], metrics["epochs"])
    is_done = epochs is None or is_perfect(train.dev_metric, metrics[f"dev_{train.dev_metric}"])
    if metrics.get("improving") and not is_done:
        given = [each for each in settings if each.partition("=")[0].strip() not in _LENGTHS]
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
    name, beam = recipe.train.dev_metric, recipe.search.beam
    metrics = run.training_metrics(name)
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


def report_metrics(
    run: "RunFolder", part: Literal["dev", "test"], console: "Console", device: str, threads: int | None
) -> None:
    """Evaluates the run on a file of its recipe, prints the metrics and saves them in the run."""
    from antiphon.api.ranking_model import RankingModel
    from antiphon.cli import answer_selection
    from antiphon.report.tables import metrics_table
    from antiphon.runs.run_folder import open_for_writing
    from antiphon.torch_free.readers import keep_filled
    from antiphon.training.prepare import pairs_of

    model = load_run(run.path, device, threads)
    files = getattr(model.recipe.data, part)
    if isinstance(model, RankingModel):
        evaluation = answer_selection.evaluate(model, files, "mixed", None)
    else:
        pairs = keep_filled(pairs_of(model.recipe, files), files, targets_only=not model.can_predict)
        evaluation = model.evaluate(pairs)
    with open_for_writing(run.path) as held, held.changed() as new:
        new.save_metrics(held.metrics() | {part: evaluation.to_dict()})
    console.print(metrics_table(evaluation))
