"""Options that several commands share, checks of the files that they name, and the runs and test sets they load."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

import typer

from antiphon.exceptions import InputError, RunError
from antiphon.storage.manifest import RUN_FILES, holds_run
from antiphon.terminal import count_of, one_line, print_note
from antiphon.torch_free.inputs import MAX_BIAS, nearest_feature
from antiphon.torch_free.readers import Pair, is_filled, no_pairs, pair_files, read_lines

if TYPE_CHECKING:
    from antiphon.api.model import Model
    from antiphon.metrics.breakdown import By
    from antiphon.recipe.schema import Recipe
    from antiphon.runs.run_folder import RunFolder

MAX_PARALLEL = max(64, os.cpu_count() or 1)
"""Maximum number of threads or processes: more than the cores, and few enough to start."""
MAX_HYPOTHESES = 1000
"""Maximum number of hypotheses and outputs per input."""
_PICTURE_FORMATS = ("png", "svg", "pdf")


def refuse_options(kind: str, given: Mapping[str, object]) -> None:
    """Refuses options that do not apply to the kind of run."""
    for option, value in given.items():
        if value:
            raise RunError(f"{option}: does not apply to a run of kind {kind}, expected a command without it")


def finite(value: float | None) -> float | None:
    """The value of an option; NaN, which passes every range check, is refused."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a finite number")
    return value


def parse_numbers(text: str, most: float) -> list[float]:
    """The comma-separated numbers, at most ``most`` in absolute value; empty if any is invalid."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return []
    return numbers if all(-most <= number <= most for number in numbers) else []


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a recipe (see antiphon recipes), or a TOML file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as data.train=pairs.tsv; repeatable. Keys: antiphon settings [KEY].",
    ),
]
SearchSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change how outputs are searched, such as search.length_normalisation=0.7; repeatable. "
        "Keys: antiphon settings search.",
    ),
]
PairFiles = Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run in the folder, if there is one.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where to compute: auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_PARALLEL, help="CPU threads; default: chosen by the size of the model."),
]
Beam = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Beam size; default: that of the recipe.")
]


Format = Literal["text", "jsonl"]
"""How outputs are written."""
Questions = Literal["all", "answerable", "mixed"]
"""Sets of questions, by the labels of their candidates."""
QuestionsOption = Annotated[Questions, typer.Option("--questions", help="Answer selection: which questions to rank.")]
Qrels = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Answer selection: TREC judgements that replace the labels of the file."),
]
References = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="Text file with another reference for every line; repeatable.")
]


BREAKDOWNS = ("features", "length", "unseen")
ByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="GROUP",
        help="Also show metrics by group: features (single ones, and whole tags), length (of the source) or unseen "
        "(symbols that training never saw); repeatable.",
    ),
]


def parse_breakdowns(given: list[str] | None) -> "list[By]":
    """The requested groups; singular and plural both work."""
    by: list[By] = []
    for name in given or []:
        found = next((each for each in BREAKDOWNS if name in (each, each.removesuffix("s"), f"{each}s")), None)
        if found is None:
            raise InputError(f"--by {one_line(name)}: unknown group, expected {', '.join(BREAKDOWNS)}")
        by.append(cast("By", found))
    return list(dict.fromkeys(by))


StreamPolicy = Literal["greedy", "beam"]
"""How a stream decides what to write."""
Policy = Annotated[
    StreamPolicy,
    typer.Option(help="greedy: write once writing is more probable; beam: write what all hypotheses share."),
]
EmitBias = Annotated[
    float,
    typer.Option(
        metavar="X",
        min=-MAX_BIAS,
        max=MAX_BIAS,
        callback=finite,
        help="Added to the log odds of writing; higher writes sooner.",
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        max=1e6,
        callback=finite,
        help="Policy beam: ignore hypotheses more than this many nats behind the best; default: that of the recipe.",
    ),
]
PictureFile = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw into this file: PNG, SVG or PDF by its ending.")
]


def refuse_run_file(out: Path) -> None:
    """Refuses the name of a file of a run in a run folder: the run would count as damaged."""
    if out.name in RUN_FILES and holds_run(out.parent):
        raise InputError(f"{out}: the name of a file of the run in that folder, expected another name")


def check_new(out: Path | None, *, force: bool = False) -> None:
    """Refuses a file that exists and may not be replaced, or whose folder does not, before anything is computed."""
    if out is None:
        return
    if not force and (out.exists() or out.is_symlink()):
        raise InputError(f"{out}: exists already, expected the name of a new file")
    if out.is_dir():
        raise InputError(f"{out}: a folder, expected the name of a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: no folder {out.parent}, expected an existing one")
    refuse_run_file(out)


def check_picture(path: Path) -> None:
    """Refuses a file that no picture can be drawn into, before anything is computed."""
    from antiphon.report.plots import check_drawing_library

    if path.suffix.removeprefix(".").lower() not in _PICTURE_FORMATS:
        raise InputError(f"--plot {path}: unknown picture format, expected a name that ends in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: no folder {path.parent}, expected an existing one")
    refuse_run_file(path)
    check_drawing_library()


_FEATURES_SHOWN = 5


def load_run(run: Path, device: str, threads: int | None, settings: Sequence[str] | None = None) -> "Model":
    """The trained model of a run folder; without ``threads``, their number follows from its size.

    ``settings`` such as ``search.beam=20`` change its search.
    """
    (model,) = load_runs([run], device, threads, settings)
    return model


def load_runs(
    runs: Sequence[Path], device: str, threads: int | None, settings: Sequence[str] | None = None
) -> "list[Model]":
    """The trained models of run folders; without ``threads``, their number follows from the size of the largest."""
    import torch

    from antiphon.api.model import load_opened
    from antiphon.runs.run_folder import RunFolder

    if threads is not None:
        torch.set_num_threads(threads)
    folders = [RunFolder.open(run) for run in runs]
    models = [load_opened(folder, device=device, settings=settings or ()) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        note_unfinished(folder, run)
    if threads is None:
        torch.set_num_threads(max(map(_suitable_threads, folders, models)))
    return models


def _suitable_threads(folder: "RunFolder", model: "Model") -> int:
    """The number of threads that suits the layers of a run and its target vocabulary; a ranker has none."""
    from antiphon.device import choose_threads
    from antiphon.recipe.kinds import KINDS
    from antiphon.runs.run_folder import widest_layer

    width = widest_layer(folder)
    target_size = width if KINDS[model.kind].ranks else len(model.codec.target.vocab)
    return choose_threads(model.recipe.train.batch_size, width, target_size)


def load_predicting_run(run: Path, device: str, threads: int | None) -> "Model":
    """The trained model of a run folder, refused if it writes no outputs."""
    model = load_run(run, device, threads)
    if not model.can_predict:
        raise writes_no_outputs(run, model)
    return model


def writes_no_outputs(run: Path, model: "Model") -> RunError:
    """The error for a run that ranks or only scores, where outputs are needed."""
    return RunError(f"{run}: a run of kind {model.kind} writes no outputs, expected a run that does")


def note_unfinished(folder: "RunFolder", run: Path) -> None:
    """Says that a run is used before its training has ended, if it is."""
    if not folder.metrics() and folder.checkpoint.exists():
        print_note(f"{run}: its training has not ended; this is its best epoch so far")


class TestSet(NamedTuple):
    """Pairs with text in them, and the further references of each."""

    pairs: list[Pair]
    more_references: list[list[str]]


def read_test_set(recipe: "Recipe", files: Sequence[Path], references: Sequence[Path] = ()) -> TestSet:
    """The pairs of a file as a run reads them; a note on standard error counts skipped lines without text."""
    from antiphon.runs.build import reads_source
    from antiphon.training.prepare import pairs_of

    indices: list[int] = []
    filled: list[Pair] = []
    lines = 0
    for pair in pairs_of(recipe, pair_files(files)):
        if is_filled(pair, targets_only=not reads_source(recipe)):
            indices.append(lines)
            filled.append(pair)
        lines += 1
    if not filled:
        raise no_pairs(files[0])
    if len(filled) < lines:
        print_note(f"{count_of(lines - len(filled), 'line')} without a source or a target skipped")
    further = [_reference_lines(path, lines, files[0]) for path in references]
    return TestSet(filled, [[references[index] for references in further] for index in indices])


def note_unknown_features(model: "Model", pairs: Sequence[Pair]) -> None:
    """Prints on standard error the features that training never saw, each with the nearest known one."""
    known = model.codec.known_features
    unknown = Counter(feature for pair in pairs for feature in set(pair.features) - known)
    if unknown:
        named = ", ".join(
            f"{one_line(feature)} ({times:,}; nearest: {one_line(nearest_feature(feature, known)) or 'none'})"
            for feature, times in unknown.most_common(_FEATURES_SHOWN)
        )
        more = ", ..." if len(unknown) > _FEATURES_SHOWN else ""
        print_note(f"features never seen in training: {named}{more}")


def _reference_lines(path: Path, wanted: int, file: Path) -> list[str]:

    lines = list(read_lines(path))
    if len(lines) != wanted:
        raise InputError(f"{path}: {count_of(len(lines), 'line')}, expected {wanted:,} as in {file}")
    return lines
