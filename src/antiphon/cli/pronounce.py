"""``antiphon pronounce`` among the other verbs; ``antiphon.pronunciation.command`` does it, without typer."""

import typer

from antiphon.pronunciation.command import main, parser


def pronounce(context: typer.Context) -> None:
    """Write how English text is pronounced."""
    raise typer.Exit(main(context.args))


def register(app: typer.Typer) -> None:
    """Adds the verb, which passes its arguments on."""
    _, _, details = parser().format_help().partition("\n\n")
    app.command(
        "pronounce",
        help="\b\n" + details.replace("\n\n", "\n\n\b\n"),
        short_help=pronounce.__doc__,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(pronounce)
