"""Test files: pairs, with further references if there are any."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antiphon.exceptions import InputError
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import reads_source
from antiphon.terminal import count_of, one_line, print_note
from antiphon.torch_free.files import read_lines
from antiphon.torch_free.readers import Pair, is_filled, no_pairs, pair_files
from antiphon.training.data.prepare import pairs_of

if TYPE_CHECKING:
    from antiphon.api import Model

_FEATURES_SHOWN = 5


class TestSet(NamedTuple):
    """Pairs with text in them, and the further references of each."""

    pairs: list[Pair]
    more_references: list[list[str]]


def read_test_set(recipe: Recipe, files: Sequence[Path], references: Sequence[Path] = ()) -> TestSet:
    """The pairs of a file as a run reads them; a note on standard error counts skipped lines without text."""
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
    lines = list(read_lines(path))
    if len(lines) != wanted:
        raise InputError(f"{path}: {count_of(len(lines), 'line')}, expected {wanted:,} as in {file}")
    return lines
