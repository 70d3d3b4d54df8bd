"""The command line: one file per verb, registered here."""

import sys
from typing import Annotated

import typer

from antiphon import __version__
from antiphon.cli import align, combine, compare, demo, evaluate, grid, info, predict, recipes, stream, train, tune
from antiphon.errors import AntiphonError

app = typer.Typer(
    name="antiphon",
    help="Map one sequence to another: train, predict, evaluate, align.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (demo, train, predict, stream, evaluate, compare, align, combine, tune, grid, info, recipes):
    app.command(verb.__name__.rpartition(".")[2])(verb.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Map one sequence to another: train, predict, evaluate, align."""


def main() -> None:
    """Runs a verb; what a user can mend is one sentence on standard error and exit status 2."""
    try:
        app()
    except AntiphonError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
