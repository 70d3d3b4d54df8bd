"""``antiphon recipes`` and ``antiphon settings``: what the package brings, and every setting."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.exceptions import RecipeError
from antiphon.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from antiphon.recipe.schema import Recipe, Setting


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this recipe.")] = None,
    copy: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy the recipe NAME and its data, if any, to this folder."),
    ] = None,
) -> None:
    """List the recipes and models of the package, or print one.

    Any of them can be named where a command takes a recipe.

    Examples:
      antiphon recipes
      antiphon recipes g2p
      antiphon recipes g2p --copy my-recipes
    """
    from antiphon.console import PlainConsole
    from antiphon.recipe.recipe_file import copy_recipe, read_recipe

    if copy is not None and name is None:
        raise RecipeError("--copy: no recipe is named, expected antiphon recipes NAME --copy FOLDER")
    if name is None:
        PlainConsole().print(recipe_table())
        print_models()
    elif copy is None:
        print(read_recipe(name), end="")
    else:
        for path in copy_recipe(name, copy):
            print(printable(str(path)))


def print_models() -> None:
    """Prints the models that come with the package, and which commands take them by name."""
    from antiphon.lite import shipped_models
    from antiphon.runs.run_folder import shipped_runs

    runs = shipped_runs()
    print("\nmodels that are trained already, English words to phonemes (antiphon pronounce):")
    for name in shipped_models():
        every = "every command that takes a run, antiphon.load, " if name in runs else ""
        print(f"  {name:10}  {every}antiphon.lite")


def recipe_table() -> "Table":
    """Every recipe with its task, its tokens and its kind of model."""
    from rich.table import Table

    from antiphon.recipe.recipe_file import shipped_recipes

    caption = "antiphon recipes NAME prints one; antiphon train NAME trains it"
    table = Table(caption=caption, caption_justify="left", show_edge=False, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    for title in ("task", "tokens", "kind"):
        table.add_column(title)
    for shipped in shipped_recipes():
        table.add_row(shipped.name, shipped.task, tokens_of(shipped.recipe), shipped.recipe.model.kind)
    return table


def tokens_of(recipe: "Recipe") -> str:
    """The tokens that a model of the recipe reads and writes."""
    from antiphon.recipe.kinds import KINDS
    from antiphon.recipe.schema import token_kinds

    kind, tokens = KINDS[recipe.model.kind], token_kinds(recipe.data)
    if kind.ranks:
        return "words"
    return f"{tokens['source']} to {tokens['target']}" if kind.reads_source else tokens["target"]


def settings(
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help="One setting, such as train.seed, one section, or a part of a key."),
    ] = None,
) -> None:
    """List every setting of recipes: type, default and meaning.

    Settings are written in a recipe, or changed with --set KEY=VALUE.

    Examples:
      antiphon settings
      antiphon settings train
      antiphon settings train.learning_rate
      antiphon settings dropout
    """
    from antiphon.console import PlainConsole
    from antiphon.recipe.schema import all_settings, find_settings

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
