"""What commands load: runs, for which they choose the number of threads of the whole process, and test sets."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antiphon.exceptions import InputError, RunError
from antiphon.terminal import count_of, one_line, print_note

if TYPE_CHECKING:
    from antiphon.api import Model
    from antiphon.recipe.schema import Recipe
    from antiphon.runs.run_folder import RunFolder
    from antiphon.torch_free.readers import Pair

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

    from antiphon.api.load_model import load_opened
    from antiphon.runs.run_folder import RunFolder

    if threads is not None:
        torch.set_num_threads(threads)
    folders = [RunFolder.open(run) for run in runs]
    models = [
        load_opened(folder, run, device=device, settings=settings or ())
        for folder, run in zip(folders, runs, strict=True)
    ]
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

    pairs: "list[Pair]"
    more_references: list[list[str]]


def read_test_set(recipe: "Recipe", files: Sequence[Path], references: Sequence[Path] = ()) -> TestSet:
    """The pairs of a file as a run reads them; a note on standard error counts skipped lines without text."""
    from antiphon.runs.build import reads_source
    from antiphon.torch_free.readers import is_filled, no_pairs, pair_files
    from antiphon.training.data.prepare import pairs_of

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


def note_unknown_features(model: "Model", pairs: "Sequence[Pair]") -> None:
    """Prints on standard error the features that training never saw, each with the nearest known one."""
    from antiphon.torch_free.inputs import nearest_feature

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
    from antiphon.torch_free.files import read_lines

    lines = list(read_lines(path))
    if len(lines) != wanted:
        raise InputError(f"{path}: {count_of(len(lines), 'line')}, expected {wanted:,} as in {file}")
    return lines
