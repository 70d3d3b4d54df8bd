"""Metrics of parts of a test set: by feature and tag, by length of the source, by symbols not seen in training."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from antiphon.metrics.output_metrics import Outputs, score_outputs

By = Literal["features", "length", "unseen"]
EVERY_BREAKDOWN: tuple[By, ...] = get_args(By)
_MAX_LENGTHS = 12
"""Maximum number of length groups."""
_STEPS = (1, 2, 5)


class Traits(NamedTuple):
    """What a pair is grouped by: its features, the length of its source, and the sides that have unseen symbols."""

    features: tuple[str, ...]
    length: int
    unseen: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The pairs that have something in common, and every metric of them.

    ``by`` is "feature", "tag" (all features of a pair together), "length" or "unseen".
    """

    by: str
    name: str
    pairs: int
    metrics: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The group as a JSON-serialisable dictionary."""
        return {"by": self.by, "name": self.name, "pairs": self.pairs, "metrics": self.metrics}


def break_down(outputs: Outputs, traits: Sequence[Traits], by: Sequence[By], metrics: Sequence[str]) -> list[Group]:
    """The metrics of every group of outputs; a pair is in each group that it belongs to."""
    return [
        Group(kind, name, len(members), _values(outputs.select(members), metrics))
        for each in by
        for (kind, name), members in _GROUPINGS[each](traits).items()
    ]


def _values(outputs: Outputs, metrics: Sequence[str]) -> dict[str, float]:
    return {name: score.value for name, score in score_outputs(outputs, metrics).items()}


Members = dict[tuple[str, str], list[int]]
"""For each kind and name of a group, the indices of its pairs."""


def _by_features(traits: Sequence[Traits]) -> Members:
    """Every single feature, then every whole tag, named as it is first written; the frequent ones first."""
    features: Members = defaultdict(list)
    tags: Members = defaultdict(list)
    names: dict[frozenset[str], str] = {}
    for index, pair in enumerate(traits):
        distinct = frozenset(pair.features)
        for feature in distinct:
            features["feature", feature].append(index)
        tags["tag", names.setdefault(distinct, ";".join(pair.features))].append(index)
    return _frequent_first(features) | _frequent_first(tags)


def _frequent_first(members: Members) -> Members:
    return dict(sorted(members.items(), key=lambda item: (-len(item[1]), item[0])))


def _by_length(traits: Sequence[Traits]) -> Members:
    """Every length of a source, or ranges of lengths where there are many."""
    width = _range_width([pair.length for pair in traits])
    members: Mapping[int, list[int]] = defaultdict(list)
    for index, pair in enumerate(traits):
        members[(pair.length - 1) // width].append(index)
    return {("length", _range_name(index, width)): members[index] for index in sorted(members)}


def _range_width(lengths: Sequence[int]) -> int:
    """The smallest width of 1, 2, 5, 10, 20, ... that gives few groups."""
    scale = 1
    while True:
        for step in _STEPS:
            width = step * scale
            if len({(length - 1) // width for length in lengths}) <= _MAX_LENGTHS:
                return width
        scale *= 10


def _range_name(index: int, width: int) -> str:
    first = index * width + 1
    return str(first) if width == 1 else f"{first}-{first + width - 1}"


def _by_unseen(traits: Sequence[Traits]) -> Members:
    """Pairs with only known symbols, and pairs with unseen ones on either side."""
    members: Members = {("unseen", name): [] for name in ("none", "in source", "in reference")}
    for index, pair in enumerate(traits):
        for side in pair.unseen or ("",):
            members["unseen", f"in {side}" if side else "none"].append(index)
    return {key: indices for key, indices in members.items() if indices}


_GROUPINGS = {"features": _by_features, "length": _by_length, "unseen": _by_unseen}
