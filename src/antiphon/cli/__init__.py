"""The command line: every verb is a function, registered here.

Beside them: ``options`` of several verbs, and the runs and test sets that these name; ``answer_selection`` for runs
that rank; ``failures`` (errors as a sentence and an exit status).
"""

import sys
from collections.abc import Sequence
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument

from antiphon import __version__
from antiphon.cli import (
    align,
    combine,
    compare,
    demo,
    errors,
    evaluate,
    export,
    fill,
    grid,
    info,
    predict,
    pronounce,
    recipes,
    serve,
    stream,
    train,
    tune,
)
from antiphon.cli.failures import failure_of, report, secure_standard_streams
from antiphon.exceptions import InputError, raise_on_signals

app = typer.Typer(
    name="antiphon",
    help="Map one sequence to another: train, predict, evaluate, align.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS = (
    pronounce.pronounce,
    demo.demo,
    train.train,
    predict.predict,
    fill.fill,
    stream.stream,
    serve.serve,
    evaluate.evaluate,
    compare.compare,
    errors.errors,
    align.align,
    combine.combine,
    combine.ensemble,
    tune.tune,
    grid.grid,
    export.export,
    info.info,
    recipes.recipes,
    recipes.settings,
)
"""In the order of the help text. The name and the docstring of a function are those of its verb."""


def help_text(docstring: str | None) -> str:
    """The docstring as typer takes it: the examples keep their line breaks."""
    return cleandoc(docstring or "").replace("Examples:\n", "\b\nExamples:\n")


for verb in _VERBS:
    app.command(verb.__name__, help=help_text(verb.__doc__))(verb)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"antiphon {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Map one sequence to another: train, predict, evaluate, align."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Runs a verb; a user error prints one sentence on standard error and exits with status 2."""
    secure_standard_streams()
    raise_on_signals()
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except BaseException as error:
        failure = failure_of(error)
        if failure is None:
            raise
        status = report(failure)
    sys.exit(status)


def _check_current_folder() -> None:
    """Refuses to start in a folder that has been deleted: libraries end the process there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise InputError("the current folder no longer exists, expected to start in one that does") from None


class _Argument(TyperArgument):
    """An argument that help calls by its name alone."""

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        """The name in the first line: in brackets if it may be missing, with dots if there may be several."""
        name = self.metavar or self.name.upper()
        shown = name if self.required or name.startswith("[") else f"[{name}]"
        return [shown if self.nargs == 1 or " " in name else f"{shown}..."]

    def get_help_record(self, ctx: Any) -> tuple[str, str] | None:
        """The name and its description, without the type."""
        record = super().get_help_record(ctx)
        return record and (self.metavar or self.name.upper(), record[1])


@cache
def _command() -> Any:
    command: Any = typer.main.get_command(app)
    for verb in command.commands.values():
        for parameter in verb.params:
            if isinstance(parameter, TyperArgument):
                parameter.__class__ = _Argument
    return command


def _run(arguments: Sequence[str]) -> int:
    """The exit status of a verb; ``main`` handles its errors, some of which typer would print itself."""
    _check_current_folder()
    if "" in arguments:  # as a path it would mean the current folder
        raise InputError("an empty argument, expected a value; a variable of the shell may be unset")
    command = _command()
    try:
        with command.make_context("antiphon", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as exit_:
        return exit_.exit_code
    return 0
