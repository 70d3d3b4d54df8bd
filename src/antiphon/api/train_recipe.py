"""Training from Python: ``antiphon.train("g2p", "runs/mine", settings={"data.train": "train.tsv"})``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from antiphon.api.model import Model, errors_in_python, in_python, load
from antiphon.console import PlainConsole
from antiphon.exceptions import AntiphonError, InputError, RunError
from antiphon.own_data.plan import plan_of_files
from antiphon.recipe.recipe_file import (
    Settings,
    as_table,
    find_recipe,
    load_recipe,
    make_recipe,
    names_recipe,
    split_setting,
    spooled,
)
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.files import beside
from antiphon.storage.manifest import state_of
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
from antiphon.torch_free.readers import SOURCE_TARGET_FEATURES, ColumnOrder, Pair
from antiphon.training.callback import Callback, ProgressBar
from antiphon.training.distributed import RankZeroFailedError, from_rank_zero, join_process_group
from antiphon.training.fit import train as fit
from antiphon.training.loop import Interrupted
from antiphon.training.seeds import member_folder, train_seeds

RecipeLike = str | Path | Mapping[str, Mapping[str, Any]] | Recipe
"""A shipped recipe by name, the path of a TOML file, a dict such as ``{"model": {"layers": 2}}``, or a ``Recipe``."""
TrainingPairs = Iterable[PairLike] | Any
"""Pairs, or a frame of them."""


@errors_in_python()
def train(
    recipe: RecipeLike | TrainingPairs,
    out: str | Path,
    *,
    settings: Settings = (),
    train_pairs: TrainingPairs | None = None,
    dev_pairs: TrainingPairs | None = None,
    seeds: int | None = None,
    resume: bool = False,
    force: bool = False,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
) -> Model:
    """Trains a recipe, or learns pairs; writes the run folder ``out`` and returns the model as ``antiphon.load`` does.

    ``recipe`` is the name of a shipped recipe, a path, or a dict of sections. Or it is pairs, as a list, a frame, or
    the path of a file as people have them: then a recipe is chosen and pairs are held out, as ``antiphon train FILE``
    does; all are copied into the folder that ``out`` names, with ``-pairs`` at its end. ``settings`` change it:
    ``{"data.train": "a.tsv", "train.max_epochs": 20}``. ``train_pairs`` and ``dev_pairs`` are pairs instead of files: a
    list of ``(source, target)`` or ``(source, target, features)``, or a frame of pandas, polars or Arrow with columns
    of these names. With ``seeds=5``, five models with different seeds become one run, an ensemble. ``resume`` continues
    a run that was stopped, or makes it longer; ``force`` replaces a run. Methods of ``callbacks`` (subclasses of
    ``antiphon.Callback``) are called during training, and may end it by ``self.stop_training = True``.
    ``progress=True`` prints what the command line prints, on standard error.

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
            if is_data(recipe):
                runs = [as_path("out", out), *(member_folder(as_path("out", out), n) for n in range(seeds or 0))]
                chosen = partial(_choose_recipe, recipe, settings, runs, force, say)
                recipe, settings = from_rank_zero(lambda: copies.enter_context(chosen()))
            pairs = {"train": train_pairs, "dev": dev_pairs}
            loaded = from_rank_zero(
                lambda: copies.enter_context(
                    spooled(_with_pairs(as_recipe(cast(RecipeLike, recipe), settings), pairs, copies))
                )
            )
            run = (fit if seeds is None else partial(train_seeds, seeds=seeds))(
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


def is_data(given: object) -> bool:
    """Whether something is pairs to choose a recipe for: a file that is no recipe, a list, or a frame."""
    if isinstance(given, str | Path):
        return not names_recipe(str(given)) and Path(given).is_file()
    return not isinstance(given, Mapping | Recipe) and (is_frame(given) or isinstance(given, Iterable))


@contextmanager
def choose_recipe(
    data: Path, settings: Mapping[str, object], pairs: Path, runs: Sequence[Path], *, force: bool, say: Say
) -> Iterator[tuple[str, dict[str, object]]]:
    """The recipe and all settings to learn a file of pairs, which inside are in the folder ``pairs`` in parts.

    They stay if the training of one of the runs has begun. With ``force``, those of the first are replaced with it.
    """
    plan = plan_of_files(data, settings)
    for line in plan.table():
        say(line)
    before = [state_of(run) for run in runs]
    replace = force and learnt_from(runs[0], pairs)
    with plan.written(pairs, replace=replace, is_used=lambda: [state_of(run) for run in runs] != before):
        yield plan.recipe, {**settings, **plan.settings_in(pairs)}


def learnt_from(run: Path, folder: Path) -> bool:
    """Whether a run, or a part of it, was trained on pairs in a folder."""
    try:
        opened = RunFolder.open(run)
        files = [each.recipe().data.train for each in (opened, *opened.parts().values())]
    except AntiphonError:
        return False
    return any(isinstance(file, Path) and file.absolute().parent == folder.absolute() for file in files)


@contextmanager
def _choose_recipe(
    data: Any, settings: Settings, runs: Sequence[Path], force: bool, say: Say
) -> Iterator[tuple[str, Settings]]:
    """The recipe and all settings to learn pairs, which inside are in a folder beside the first of the runs."""
    check_settings(settings, "train.seed", 7)
    given = settings if isinstance(settings, Mapping) else dict(map(split_setting, settings))
    with TemporaryDirectory(prefix="antiphon-pairs-") as folder:
        copy = Path(folder) / "pairs.tsv"
        file = Path(data) if isinstance(data, str | Path) else copy
        if not isinstance(data, str | Path):
            _write_pairs(file, data, "pairs", SOURCE_TARGET_FEATURES, header=True)
        try:
            with choose_recipe(file, given, beside(runs[0], "pairs"), runs, force=force, say=say) as (recipe, chosen):
                as_given = isinstance(settings, Mapping)
                yield recipe, chosen if as_given else [f"{key}={value}" for key, value in chosen.items()]
        except InputError as error:
            if str(copy) not in str(error):
                raise
            raise InputError(str(error).replace(str(copy), "pairs")) from None


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


def _write_pairs(file: Path, pairs: TrainingPairs, name: str, columns: ColumnOrder, *, header: bool = False) -> None:
    """Writes pairs as a file of training; either all of them have features, or none has."""
    if not is_frame(pairs):
        check_several(pairs, name)
    rows = list(frame_pairs(pairs) if is_frame(pairs) else pairs)
    check_not_empty(rows, name)
    has_features = _has_features(rows[0])
    names = [column for column in columns.split() if has_features or column != "features"]
    lines = ["\t".join(names)] if header else []
    for row in rows:
        source, target = as_pair(row, reads_features=has_features)
        cells = {"source": source.text, "target": target, "features": ";".join(source.features)}
        if any(character in cell for cell in cells.values() for character in "\t\r\n"):
            raise InputError(f"{name}: pair {row!r}: a tab or a line break, expected none in texts and features")
        lines.append("\t".join(cells[column] for column in names))
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
