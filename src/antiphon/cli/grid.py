"""``antiphon grid``: searches the best settings of a recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.cli.options import Device, RecipeName, Settings, Threads
from antiphon.exceptions import InputError, RunError, check_installed, interrupt_status
from antiphon.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from antiphon.recipe.schema import Recipe
    from antiphon.settings_search.search import SettingsSearch, TrialResult
    from antiphon.training.callback import Callback

_MAX_TRIALS = 100_000
_TRIALS = 20
_ENDED = ("complete", "pruned", "failed")

Grid = Annotated[
    list[str],
    typer.Option(
        "--grid",
        metavar="KEY=V1,V2,...",
        help="Values to try for a setting, or a range LOW..HIGH[:log|:step=S]; repeatable.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder for all runs; default: runs/NAME-OF-RECIPE-grid.")
]
SamplerName = Annotated[
    Literal["grid", "random", "tpe"],
    typer.Option("--sampler", help="Every combination, random values, or values chosen by earlier results (TPE)."),
]
Trials = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=_MAX_TRIALS,
        help=f"Trials of all processes together, with --sampler random or tpe; default: {_TRIALS}.",
    ),
]
Prune = Annotated[
    Literal["none", "median", "hyperband"],
    typer.Option(help="Stop trials early whose dev metric falls behind that of others at the same epoch."),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database of the search for several machines, such as postgresql://HOST/NAME; default: an SQLite file in "
        "--out.",
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of --sampler random and tpe.")]


def grid(
    recipe: RecipeName,
    grid: Grid,
    settings: Settings = None,
    out: Out = None,
    sampler: SamplerName = "grid",
    trials: Trials = None,
    prune: Prune = "none",
    seed: Seed = 1,
    storage: Storage = None,
    device: Device = "auto",
    threads: Threads = 1,
) -> None:
    """Search for good settings: train a recipe with many values.

    The dev metric decides which one is best. --grid gives values or, to draw from,
    a range: 64..512, 0.1..0.5:step=0.1, 1e-4..1e-2:log. Each combination is a run in
    the folder --out. The same command resumes a search that was stopped; started
    several times, for several cores or GPUs, all processes work on one search, with
    --storage also those of several machines. The results are written to grid.tsv, the best recipe to
    best.toml; optuna-dashboard draws search.db.

    Examples:
      antiphon grid toy --grid model.layers=1,2 --grid train.seed=1,2
      antiphon grid toy --sampler tpe --grid train.learning_rate=1e-3..1e-1:log
    """
    check_installed("optuna", "search", "a search")
    from antiphon.console import PlainConsole
    from antiphon.device import prepare_allocators
    from antiphon.recipe.recipe_file import find_recipe
    from antiphon.settings_search.search import SearchOptions, SettingsSearch
    from antiphon.settings_search.search_space import parse_space

    folder = out or Path("runs") / f"{Path(recipe).stem}-grid"
    space = parse_space(find_recipe(recipe), settings or (), grid, folder)
    check_sampler(sampler, trials, [axis.key for axis in space.axes if axis.is_range])
    space.check(every_combination=sampler == "grid")
    prepare_allocators(device)
    search = SettingsSearch(space, SearchOptions(sampler, trials or _TRIALS, prune, seed, storage))
    with search.joined():
        run_search(search, PlainConsole(stderr=True), device, threads)
        print_results(search)


def check_sampler(sampler: str, trials: int | None, ranges: list[str]) -> None:
    """Refuses a number of trials for a grid, and a range, which has no combinations."""
    if sampler == "grid" and ranges:
        raise InputError(f"--grid {ranges[0]}: a range, expected a list of values, or --sampler random or tpe")
    if sampler == "grid" and trials is not None:
        raise InputError(f"--trials {trials}: a grid has all combinations, expected --sampler random or tpe with it")


def run_search(search: "SettingsSearch", console: "Console", device: str, threads: int | None) -> None:
    """Trains all trials, with a line for each that has ended; Ctrl-C ends the command with one line."""
    from antiphon.training.callback import ProgressBar
    from antiphon.training.fit import train
    from antiphon.training.loop import Interrupted

    folder, printed = search.space.out, set[tuple[str, ...]]()
    name = "combinations" if search.options.sampler == "grid" else "trials"
    console.print(f"{folder}: {search.total} {name}", soft_wrap=True)

    def train_trial(recipe: "Recipe", run: Path, report: "Callback") -> None:
        callbacks = [ProgressBar(console, lines=False), report]
        train(recipe, run, resume=True, wait=True, device=device, threads=threads, callbacks=callbacks)

    def show(results: "list[TrialResult]") -> None:
        for result in sorted(results, key=lambda each: each.number):
            if result.state in _ENDED and result.settings not in printed:
                printed.add(result.settings)
                line = line_of(result, search.space.dev_metric)
                console.print(f"{len(printed)} of {search.total}  {line}", soft_wrap=True)

    try:
        search.run(train_trial, show)
    except (KeyboardInterrupt, Interrupted) as stopped:
        console.print(f"antiphon: {folder}: stopped; the same command resumes it")
        status = stopped.status if isinstance(stopped, Interrupted) else interrupt_status(stopped)
        raise typer.Exit(status) from None


def line_of(result: "TrialResult", metric: str) -> str:
    """A trial that has ended."""
    name, value = " ".join(result.settings), f"dev {metric.replace('_', ' ')} {result.value:.4g}"
    pruned = f"pruned in epoch {result.epochs}, " if result.state == "pruned" else ""
    return f"{name}  {result.problem or pruned + value}"


def print_results(search: "SettingsSearch") -> None:
    """Writes and prints the table, and says where the best recipe is; failed trials are an error."""
    from antiphon.console import PlainConsole
    from antiphon.settings_search.search import save_results

    results = search.results()
    best = save_results(results, search.space)
    PlainConsole().print(as_table(results, search.space.dev_metric))
    print(printable(f"best recipe: {best}"))
    failed = [result for result in results if result.state == "failed"]
    if failed:
        raise RunError(
            f"{search.space.out}: {len(failed)} of {len(results)} combinations failed, expected none: see grid.tsv"
        )


def as_table(results: "list[TrialResult]", metric: str) -> "Table":
    """A table of all trials, the best first."""
    from rich.table import Table

    table = Table()
    for name in (*(setting.partition("=")[0] for setting in results[0].settings), f"dev {metric.replace('_', ' ')}"):
        table.add_column(name, justify="right", overflow="fold", min_width=max(map(len, name.split())))
    for name in ("epochs", "seconds"):
        table.add_column(name, justify="right")
    for result in results:
        values = [setting.partition("=")[2] for setting in result.settings]
        value = f"{result.value:.4g}" + (" (pruned)" if result.state == "pruned" else "")
        measured = [value, str(result.epochs), f"{result.seconds:.0f}"]
        table.add_row(*values, *([result.problem, "", ""] if result.problem else measured))
    return table
