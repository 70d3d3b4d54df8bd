"""Frames: columns of inputs in, columns of outputs added.

A frame is a pandas or polars DataFrame, an Arrow table, or a mapping of names to arrays as Ray Data passes it. Each
library is imported only if one of its frames is given.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from antiphon.exceptions import InputError
from antiphon.terminal import one_line
from antiphon.torch_free.inputs import FeaturesLike, PredictOptions

if TYPE_CHECKING:
    from antiphon.torch_free.prediction import PredictionInterface
    from antiphon.torch_free.results import Prediction

Added = Mapping[str, list[Any]]
"""Columns that are added to a frame, by their names without prefix."""
_ADDED = {"prediction": False, "probability": False, "nbest": True, "nbest_probability": True}
"""Every column that can be added, and whether its values are lists: of numbers for probabilities, else of texts."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read, and the prefix of those that are added.

    Without ``features``, a model that reads features finds them in the column of that name.
    """

    source: str = "source"
    features: str | None = None
    prefix: str = ""


def predict_frame(model: "PredictionInterface", frame: Any, columns: Columns, options: PredictOptions) -> Any:
    """The frame with the outputs of the model in new columns; a frame without rows gets columns without values."""
    kind = _frame_kind(frame)
    names = list(kind.names(frame))
    features = columns.features or ("features" if model.reads_features else None)
    for name in (columns.source, features):
        if name is not None and name not in names:
            raise InputError(f"frame: no column {name!r}, expected it among {one_line(', '.join(map(str, names)))}")
    several = options.max_outputs > 1 or options.cover is not None
    added = [name for name, is_list in _ADDED.items() if several or not is_list]
    for name in added:
        if columns.prefix + name in names:
            raise InputError(f"frame: a column {columns.prefix + name!r} already, expected none; set another prefix")
    texts = list(_texts(kind.read(frame, columns.source), columns.source))
    sources = texts if features is None else list(zip(texts, _features(kind.read(frame, features)), strict=True))
    found = _added(model.predict_lazily(sources, options), added)
    return kind.add(frame, columns.prefix, found)


def is_frame(given: object) -> bool:
    """Whether something is a frame and not a list of inputs."""
    return isinstance(given, Mapping) or type(given).__module__.partition(".")[0] in _LIBRARIES


def frame_pairs(frame: Any) -> list[tuple[str, str] | tuple[str, str, FeaturesLike]]:
    """The pairs of a frame: its columns ``source`` and ``target``, and ``features`` if it has them."""
    kind = _frame_kind(frame)
    names = list(kind.names(frame))
    for name in ("source", "target"):
        if name not in names:
            raise InputError(f"frame: no column {name!r}, expected it among {one_line(', '.join(map(str, names)))}")
    source, target = (_texts(kind.read(frame, name), name) for name in ("source", "target"))
    if "features" not in names:
        return list(zip(source, target, strict=True))
    return list(zip(source, target, _features(kind.read(frame, "features")), strict=True))


def _added(predictions: "Iterable[Prediction]", names: Sequence[str]) -> Added:
    found: dict[str, list[Any]] = {name: [] for name in names}
    for prediction in predictions:
        row = {
            "prediction": prediction.text,
            "probability": prediction.probability,
            "nbest": [candidate.text for candidate in prediction.nbest],
            "nbest_probability": [candidate.probability for candidate in prediction.nbest],
        }
        for name in names:
            found[name].append(row[name])
    return found


def _texts(values: Iterable[Any], column: str) -> Iterator[str]:
    """The inputs of a column; nulls and other values that are not text are refused."""
    for row, value in enumerate(values):
        if not isinstance(value, str):
            shown = one_line(repr(value), 40)
            raise InputError(f"column {column!r}, row {row}: {shown}, expected text; drop or fill rows without it")
        yield value


def _features(values: Iterable[Any]) -> Iterator[FeaturesLike]:
    """The features of a column: texts such as ``N;DAT;PL``, or lists."""
    for value in values:
        yield value.tolist() if isinstance(value, np.ndarray) else value


class _FrameKind(NamedTuple):
    """How a library names columns, gives the values of one, and adds others."""

    names: Callable[[Any], Iterable[str]]
    read: Callable[[Any, str], Iterable[Any]]
    add: Callable[[Any, str, Added], Any]


def _frame_kind(frame: Any) -> _FrameKind:
    library = type(frame).__module__.partition(".")[0]
    if library in _LIBRARIES and hasattr(frame, "columns"):
        return _LIBRARIES[library]
    if isinstance(frame, Mapping):
        return _FrameKind(lambda given: given, lambda given, name: _values(given[name]), _add_to_mapping)
    raise InputError(
        f"frame: a {type(frame).__name__}, expected a frame of pandas or polars, a table of Arrow, or a mapping of "
        "names to arrays"
    )


def _values(column: Any) -> Iterable[Any]:
    values: Iterable[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values


def _add_to_mapping(frame: Mapping[str, Any], prefix: str, added: Added) -> dict[str, Any]:
    return {**frame, **{prefix + name: _as_array(name, values) for name, values in added.items()}}


def _add_to_pandas(frame: Any, prefix: str, added: Added) -> Any:
    return frame.assign(**{prefix + name: _as_array(name, values) for name, values in added.items()})


def _add_to_polars(frame: Any, prefix: str, added: Added) -> Any:
    import polars

    base = {name: polars.Float64 if _is_number(name) else polars.String for name in added}
    types = {name: polars.List(base[name]) if _ADDED[name] else base[name] for name in added}
    return frame.with_columns(*(polars.Series(prefix + name, values, types[name]) for name, values in added.items()))


def _add_to_arrow(table: Any, prefix: str, added: Added) -> Any:
    import pyarrow

    for name, values in added.items():
        base = pyarrow.float64() if _is_number(name) else pyarrow.string()
        table = table.append_column(prefix + name, pyarrow.array(values, pyarrow.list_(base) if _ADDED[name] else base))
    return table


def _is_number(name: str) -> bool:
    return name.endswith("probability")


def _as_array(name: str, values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """An array of numbers, NaN instead of None, or an array of objects."""
    if _is_number(name) and not _ADDED[name]:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    array = np.empty(len(values), object)
    for index, value in enumerate(values):  # at once, lists of one length would become a matrix
        array[index] = value
    return array


_LIBRARIES = {
    "pandas": _FrameKind(lambda frame: frame.columns, lambda frame, name: frame[name].tolist(), _add_to_pandas),
    "polars": _FrameKind(lambda frame: frame.columns, lambda frame, name: frame[name].to_list(), _add_to_polars),
    "pyarrow": _FrameKind(
        lambda table: table.column_names, lambda table, name: table.column(name).to_pylist(), _add_to_arrow
    ),
}
