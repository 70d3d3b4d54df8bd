"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; unset: as many as suit the model's size.", show_default=False)
]
Beam = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses kept per cell; unset: as in the recipe.", show_default=False)
]
References = Annotated[
    list[Path] | None,
    typer.Option(help="Text file with a further reference for every line; repeatable.", show_default=False),
]
