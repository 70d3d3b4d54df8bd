"""``antiphon grid``: searches the best settings of a recipe."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import typer

from antiphon.child_processes import interrupt_status
from antiphon.cli.options import MAX_PARALLEL, RecipeName, Settings
from antiphon.exceptions import InputError, RunError, check_installed
from antiphon.terminal import duration, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from antiphon.settings_search.search import SettingsSearch
    from antiphon.settings_search.trials import Slot, TrialResult

_MAX_TRIALS = 100_000
_TRIALS = 20
_BEST_SHOWN = 5
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
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=MAX_PARALLEL,
        help="Trials that this process trains at the same time, one thread each; default: 2, or as many as --devices.",
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="D1,D2,...",
        help="Devices of the trials trained at the same time: 0,0,1 puts two on GPU 0 and one on GPU 1; or cpu. "
        "Default: the GPUs in turn.",
    ),
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
    jobs: Jobs = None,
    devices: Devices = None,
    sampler: SamplerName = "grid",
    trials: Trials = None,
    prune: Prune = "none",
    seed: Seed = 1,
    storage: Storage = None,
) -> None:
    """Search for good settings: train a recipe with many values.

    The dev metric decides which one is best. --grid gives values or, to draw from,
    a range: 64..512, 0.1..0.5:step=0.1, 1e-4..1e-2:log. Each combination is a run in
    the folder --out. The same command resumes a search that was stopped; started
    several times, all processes work on one search, with --storage also those of
    several machines. The results are written to grid.tsv, the best recipe to
    best.toml; optuna-dashboard draws search.db.

    Examples:
      antiphon grid toy --grid model.layers=1,2 --grid train.seed=1,2
      antiphon grid toy --sampler tpe --grid train.learning_rate=1e-3..1e-1:log
    """
    check_installed("optuna", "search", "a search")
    from antiphon.console import PlainConsole
    from antiphon.recipe.recipe_file import find_recipe
    from antiphon.settings_search.search import SearchOptions, SettingsSearch
    from antiphon.settings_search.search_space import parse_space
    from antiphon.settings_search.trials import make_slots

    folder = out or Path("runs") / f"{Path(recipe).stem}-grid"
    space = parse_space(find_recipe(recipe), settings or (), grid, folder)
    check_sampler(sampler, trials, [axis.key for axis in space.axes if axis.is_range])
    space.check(every_combination=sampler == "grid")
    slots = make_slots(devices, jobs)
    search = SettingsSearch(space, SearchOptions(sampler, trials or _TRIALS, prune, seed, storage))
    console = PlainConsole(stderr=True)
    with search.joined():
        run_search(search, slots, console)
        print_results(search)


def check_sampler(sampler: str, trials: int | None, ranges: list[str]) -> None:
    """Refuses a number of trials for a grid, and a range, which has no combinations."""
    if sampler == "grid" and ranges:
        raise InputError(f"--grid {ranges[0]}: a range, expected a list of values, or --sampler random or tpe")
    if sampler == "grid" and trials is not None:
        raise InputError(f"--trials {trials}: a grid has all combinations, expected --sampler random or tpe with it")


def run_search(search: "SettingsSearch", slots: "list[Slot]", console: "Console") -> None:
    """Trains all trials and shows their progress; Ctrl-C ends the command with one line."""
    from antiphon.settings_search.trials import results_of, run_trials

    folder = search.space.out
    name = "combinations" if search.options.sampler == "grid" else "trials"
    console.print(f"{folder}: {search.total} {name}, {len(slots)} at a time", soft_wrap=True)
    try:
        with GridProgress(console, search.space.dev_metric, search.total) as progress:
            run_trials(search, slots, lambda: progress.show(results_of(search)))
    except KeyboardInterrupt as stopped:
        console.print(f"antiphon: {folder}: stopped; the same command resumes it")
        raise typer.Exit(interrupt_status(stopped)) from None


def print_results(search: "SettingsSearch") -> None:
    """Writes and prints the table, and says where the best recipe is; failed trials are an error."""
    from antiphon.console import PlainConsole
    from antiphon.settings_search.trials import results_of, save_results

    results = results_of(search)
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


class GridProgress:
    """The trials of all processes of a search; without a terminal only a line for each that has ended."""

    def __init__(
        self, console: "Console", metric: str, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.live import Live

        self.console, self.metric, self.total, self.clock = console, metric.replace("_", " "), total, clock
        self._started, self._done_before = clock(), -1.0
        self._printed: set[int] = set()
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, results: "list[TrialResult]") -> None:
        """Prints what has ended since the last time, and refreshes the table."""
        for result in sorted(results, key=lambda each: each.number):
            if result.state in _ENDED and result.number not in self._printed:
                self._printed.add(result.number)
                self.console.print(f"{len(self._printed)} of {self.total}  {self._line(result)}", soft_wrap=True)
        self._live.update(self.table(results), refresh=self._live.is_started)

    def table(self, results: "list[TrialResult]") -> "Table":
        """The trials in training, and the best of those that are complete."""
        from rich.table import Table

        table = Table(title=self.summary(results), title_justify="left")
        table.add_column("trial", overflow="fold")
        for name in ("state", "epoch", f"dev {self.metric}"):
            table.add_column(name, justify="right")
        running = [each for each in results if each.state == "running"]
        for result in [*running, *[each for each in results if each.state == "complete"][:_BEST_SHOWN]]:
            epochs = f"{result.epochs}/{result.max_epochs}" if result.max_epochs else str(result.epochs or "")
            value = f"{result.value:.4g}" if result.epochs else ""
            table.add_row(" ".join(result.settings), result.state, epochs, value)
        return table

    def summary(self, results: "list[TrialResult]") -> str:
        """Number of trials that have ended, and the estimated time left."""
        ended = sum(result.state in _ENDED for result in results)
        done = ended + sum(_share(result) for result in results if result.state == "running")
        if self._done_before < 0:
            self._done_before = done
        new = done - self._done_before
        seconds = (self.clock() - self._started) / new * (self.total - done) if new else 0
        return f"{ended} of {self.total} trials" + (f", {duration(seconds)} left" if new and done < self.total else "")

    def _line(self, result: "TrialResult") -> str:
        name, value = " ".join(result.settings), f"dev {self.metric} {result.value:.4g}"
        if result.state == "pruned":
            return f"{name}  pruned in epoch {result.epochs}, {value}"
        return f"{name}  {result.problem or value}"


def _share(result: "TrialResult") -> float:
    return result.epochs / result.max_epochs if result.max_epochs else 0.0
