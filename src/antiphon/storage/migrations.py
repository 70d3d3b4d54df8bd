"""Formats of run folders: the current one, and how recipes of older formats are converted.

To change or remove a setting: raise ``FORMAT`` by one, and add to ``MIGRATIONS`` a function that turns the recipe of
the format before, as a nested table, into one of the new format.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from antiphon.exceptions import RunError

Table = dict[str, Any]

FORMAT = 3
"""The format that is written."""
OLDEST = 1
"""The oldest format that can be read."""


def _from_format_1(recipe: Table) -> Table:
    """Converts format 1, in which features were the first symbols of the source and nothing was copied."""
    data, model = ({**recipe[section]} for section in ("data", "model"))
    if data.get("features"):
        raise ValueError(
            "a run with features of format 1, expected one of format 2, whose models read features in another way; "
            "train it again"
        )
    data.pop("feature_order", None)
    if model.get("kind") == "transducer":
        model["tie"] = "none"
    return {**recipe, "data": data, "model": model}


def _from_format_2(recipe: Table) -> Table:
    """In format 2 some settings had other names, and a noisy channel repeated those of its direct model."""
    data, model, train = ({**recipe[section]} for section in ("data", "model", "train"))
    for before, now in (("final_learning_rate", "final_learning_rate_ratio"), ("average", "ema_decay")):
        if before in train:
            train[now] = train.pop(before)
    encoder = data.pop("encoder", None)
    if model.get("kind") == "matcher" and encoder is not None:
        model["pretrained"] = encoder
    if model.get("kind") == "noisy_channel":
        model = {"kind": "noisy_channel"}
    return {**recipe, "data": data, "model": model, "train": train}


MIGRATIONS: dict[int, Callable[[Table], Table]] = {1: _from_format_1, 2: _from_format_2}
"""For each older format, its recipe as one of the next format; ``ValueError`` says why there is none."""


def check_format(version: Any, folder: Path, newest: int = FORMAT) -> None:
    """Refuses a format that this version cannot read."""
    if not isinstance(version, int) or version < OLDEST:
        raise ValueError(f"format {version!r}")
    if version > newest:
        raise RunError(
            f"{folder}: a run of format {version}, expected at most {newest}; it was written by a newer antiphon: "
            "install that one"
        )


def migrate(
    recipe: Table,
    found: int,
    newest: int = FORMAT,
    migrations: Mapping[int, Callable[[Table], Table]] = MIGRATIONS,
) -> Table:
    """The recipe of a run as one of the newest format."""
    for version in range(found, newest):
        recipe = migrations[version](recipe)
    return recipe
