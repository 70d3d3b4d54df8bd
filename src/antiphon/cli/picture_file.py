"""Files that pictures are drawn into; the ending of the name is the format."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.output_file import refuse_run_file
from antiphon.exceptions import InputError

FORMATS = ("png", "svg", "pdf")
PictureFile = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", help="Draw into this file: PNG, SVG or PDF by its ending.", show_default=False
    ),
]


def check_picture(path: Path) -> None:
    """Refuses a file that no picture can be drawn into, before anything is computed."""
    from antiphon.report.plots import check_drawing_library

    if path.suffix.removeprefix(".").lower() not in FORMATS:
        raise InputError(f"--plot {path}: unknown picture format, expected a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: no folder {path.parent}, expected an existing one")
    refuse_run_file(path)
    check_drawing_library()
