"""List every setting of recipes: type, default and meaning.

Settings are written in a recipe, or changed with --set KEY=VALUE.

Examples:
  antiphon settings
  antiphon settings train
  antiphon settings train.learning_rate
  antiphon settings dropout
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from antiphon.recipe.settings_list import Setting


def command(
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help="One setting, such as train.seed, one section, or a part of a key."),
    ] = None,
) -> None:
    """Lists settings with type, default and meaning."""
    from antiphon.console import PlainConsole
    from antiphon.recipe.settings_list import all_settings, find_settings

    PlainConsole().print(settings_table(list(all_settings()) if key is None else find_settings(key)))


def settings_table(settings: "list[Setting]") -> "Table":
    """A row for each setting."""
    from rich.table import Table

    table = Table()
    table.add_column("setting and default", overflow="fold")
    table.add_column("meaning and type")
    for setting in settings:
        kinds = f"\nof {', '.join(setting.kinds)}" if setting.kinds else ""
        meaning = setting.meaning.replace("``", "")
        table.add_row(f"{setting.key}\n= {setting.default}", f"{meaning}\n[{setting.type}]{kinds}")
        table.add_section()
    return table
