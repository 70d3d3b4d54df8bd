"""Training from Python: ``antiphon.train("g2p", "runs/mine", settings={"data.train": "train.tsv"})``."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from antiphon.api.model import Model, errors_in_python, in_python, load
from antiphon.console import PlainConsole
from antiphon.exceptions import InputError, RunError
from antiphon.recipe.recipe_file import Settings, as_table, find_recipe, load_recipe, make_recipe, spooled
from antiphon.recipe.schema import Recipe
from antiphon.terminal import Say, silent
from antiphon.torch_free.frames import frame_pairs, is_frame
from antiphon.torch_free.inputs import (
    PairLike,
    as_pair,
    as_path,
    check_not_empty,
    check_settings,
    check_several,
    check_threads,
)
from antiphon.torch_free.readers import ColumnOrder, Pair
from antiphon.training.callback import Callback, ProgressBar
from antiphon.training.distributed import RankZeroFailedError, from_rank_zero, join_process_group
from antiphon.training.fit import train as fit
from antiphon.training.loop import Interrupted

RecipeLike = str | Path | Mapping[str, Mapping[str, Any]] | Recipe
"""A shipped recipe by name, the path of a TOML file, a dict such as ``{"model": {"layers": 2}}``, or a ``Recipe``."""
TrainingPairs = Iterable[PairLike] | Any
"""Pairs, or a frame of them."""


@errors_in_python()
def train(
    recipe: RecipeLike,
    out: str | Path,
    *,
    settings: Settings = (),
    train_pairs: TrainingPairs | None = None,
    dev_pairs: TrainingPairs | None = None,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Model:
    """Trains a recipe, writes the run folder ``out``, and returns the trained model as ``antiphon.load`` does.

    ``recipe`` is the name of a shipped recipe, a path, or a dict of sections. ``settings`` change it:
    ``{"data.train": "a.tsv", "train.max_epochs": 20}``. ``train_pairs`` and ``dev_pairs`` are pairs instead of files: a
    list of ``(source, target)`` or ``(source, target, features)``, or a frame of pandas, polars or Arrow with columns
    of these names. ``resume`` continues a run that was stopped, or makes it longer; ``force`` replaces a run. Methods
    of ``callbacks`` (subclasses of ``antiphon.Callback``) are called during training, and may end it by
    ``self.stop_training = True``. ``progress=True`` prints what the command line prints, on standard error.

    Under ``torchrun`` all processes train one model, and each returns it; ``callbacks`` are called on rank 0, and an
    error of rank 0 is raised in all processes.

    Threads, random numbers and other state of PyTorch are afterwards as before. Ctrl-C raises ``KeyboardInterrupt``;
    the last checkpoint is complete, and ``resume=True`` continues from it.
    """
    check_threads(threads)
    _check_callbacks(callbacks)
    say, shown = _shown() if progress else (silent, [])
    join_process_group()
    with ExitStack() as copies:
        try:
            pairs = {"train": train_pairs, "dev": dev_pairs}
            loaded = from_rank_zero(
                lambda: copies.enter_context(spooled(_with_pairs(as_recipe(recipe, settings), pairs, copies)))
            )
            run = fit(
                loaded,
                as_path("out", out),
                say=say,
                resume=resume,
                force=force,
                device=device,
                threads=threads,
                callbacks=[*shown, *callbacks],
            )
        except Interrupted as stopped:
            raise KeyboardInterrupt(in_python(str(stopped))) from stopped
        except RankZeroFailedError as failed:
            raise RunError(f"rank 0: {failed}") from failed
    return load(run.path, device=device)


def _shown() -> tuple[Say, list[Callback]]:
    """A function that prints lines on standard error, and a progress bar there."""
    console = PlainConsole(stderr=True)
    return partial(console.print, soft_wrap=True), [ProgressBar(console)]


def as_recipe(recipe: RecipeLike, settings: Settings = ()) -> Recipe:
    """The recipe with settings on top."""
    check_settings(settings, "train.seed", 7)
    if isinstance(recipe, Recipe):
        return make_recipe(as_table(recipe), settings)
    if isinstance(recipe, Mapping):
        return make_recipe(recipe, settings)
    return load_recipe(find_recipe(as_path("recipe", recipe)), settings)


def _with_pairs(recipe: Recipe, given: Mapping[str, TrainingPairs | None], copies: ExitStack) -> Recipe:
    """The recipe with files of the given pairs, which are deleted at the end of ``copies``."""
    files = {}
    for name, pairs in given.items():
        if pairs is not None:
            folder = copies.enter_context(TemporaryDirectory(prefix="antiphon-pairs-"))
            files[name] = Path(folder) / f"{name}.tsv"
            _write_pairs(files[name], pairs, f"{name}_pairs", recipe.data.columns)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=files)}) if files else recipe


def _write_pairs(file: Path, pairs: TrainingPairs, name: str, columns: ColumnOrder) -> None:
    """Writes pairs as a file of training; either all of them have features, or none has."""
    if not is_frame(pairs):
        check_several(pairs, name)
    rows = list(frame_pairs(pairs) if is_frame(pairs) else pairs)
    check_not_empty(rows, name)
    has_features = _has_features(rows[0])
    lines = []
    for row in rows:
        source, target = as_pair(row, reads_features=has_features)
        cells = {"source": source.text, "target": target, "features": ";".join(source.features)}
        if any(character in cell for cell in cells.values() for character in "\t\r\n"):
            raise InputError(f"{name}: pair {row!r}: a tab or a line break, expected none in texts and features")
        lines.append("\t".join(cells[column] for column in columns.split() if has_features or column != "features"))
    try:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    except UnicodeEncodeError as error:
        raise InputError(f"{name}: {error.object[error.start]!r} is no character, expected text") from None


def _has_features(pair: object) -> bool:
    if isinstance(pair, Pair):
        return bool(pair.features)
    return isinstance(pair, tuple | list) and (len(pair) == 3 or (len(pair) == 2 and not isinstance(pair[0], str)))


def _check_callbacks(callbacks: object) -> None:
    """Refuses anything but a list of callbacks; a class instead of an object is a frequent slip."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(each, Callback) for each in callbacks):
        raise InputError(f"callbacks = {callbacks!r}: expected a list of antiphon.Callback objects")
