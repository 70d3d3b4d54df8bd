"""Train a recipe with every combination of values.

The dev metric decides which one is best. Each combination is a run in the folder
--out, so the same command resumes a search that was stopped. The results are
written to grid.tsv, the best recipe to best.toml.

Examples:
  antiphon grid toy --grid model.layers=1,2 --grid train.seed=1,2
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.child_processes import interrupt_status
from antiphon.cli.options import MOST_AT_ONCE, Recipe, Settings
from antiphon.exceptions import RunError

if TYPE_CHECKING:
    from rich.table import Table

    from antiphon.tune.grid_search import Result


def command(
    recipe: Recipe,
    grid: Annotated[
        list[str],
        typer.Option(
            "--grid", metavar="KEY=V1,V2,...", help="Values to try for a setting; repeatable.", show_default=False
        ),
    ],
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for all runs; default: runs/NAME-OF-RECIPE-grid.", show_default=False
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_AT_ONCE, help="Runs trained at the same time, one thread each.")
    ] = 2,
) -> None:
    """Trains every combination of values."""
    from antiphon.cli.grid_progress import GridProgress
    from antiphon.console import PlainConsole
    from antiphon.recipe.shipped_recipes import find_recipe
    from antiphon.runs.run_folder import locked_folder
    from antiphon.terminal import printable
    from antiphon.tune.grid_search import plan_grid, run_grid, save_grid

    folder = out or Path("runs") / f"{Path(recipe).stem}-grid"
    cells = plan_grid(find_recipe(recipe), settings or (), grid, folder)
    console = PlainConsole(stderr=True)
    console.print(f"{folder}: {len(cells)} combinations, {jobs} at a time", soft_wrap=True)
    with locked_folder(folder):
        try:
            with GridProgress(console, len(cells)) as progress:
                results = run_grid(cells, jobs, progress.end, progress.update)
        except KeyboardInterrupt as stopped:
            console.print(f"antiphon: {folder}: stopped; the same command resumes it")
            raise typer.Exit(interrupt_status(stopped)) from None
        best = save_grid(results, folder)
    PlainConsole().print(as_table(results))
    print(printable(f"best recipe: {best}"))
    failed = [result for result in results if result.problem]
    if failed:
        raise RunError(f"{folder}: {len(failed)} of {len(results)} combinations failed, expected none: see grid.tsv")


def as_table(results: "list[Result]") -> "Table":
    """A table of all combinations, the best first."""
    from rich.table import Table

    table = Table()
    first = results[0].cell
    for name in (*(setting.partition("=")[0] for setting in first.settings), f"dev {first.recipe.train.dev_metric}"):
        table.add_column(name, justify="right", overflow="fold")
    for name in ("epochs", "seconds"):
        table.add_column(name, justify="right")
    for result in results:
        values = [setting.partition("=")[2] for setting in result.cell.settings]
        measured = [f"{result.value:.4g}", str(result.epochs), f"{result.seconds:.0f}"]
        table.add_row(*values, *([result.problem, "", ""] if result.problem else measured))
    return table
