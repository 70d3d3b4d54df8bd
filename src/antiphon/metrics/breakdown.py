"""Where outputs are wrong: metrics of groups of a test set, and counts of token errors.

Groups are by feature and tag, by length of the source, and by symbols not seen in training.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from rapidfuzz.distance import Levenshtein

from antiphon.metrics.output_metrics import Outputs, nfc, score_outputs

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
        return asdict(self)


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


@dataclass(frozen=True)
class Edit:
    """A token of a reference, what was written instead, and how often.

    ``wanted`` is empty for an insertion, ``written`` for a deletion. ``example`` is the
    first source whose output has this edit.
    """

    wanted: str
    written: str
    count: int
    example: str

    @property
    def kind(self) -> str:
        """substitution, insertion or deletion."""
        return "substitution" if self.wanted and self.written else "deletion" if self.wanted else "insertion"

    def to_dict(self) -> dict[str, Any]:
        """The edit as a JSON-serialisable dictionary."""
        return {"edit": self.kind, **asdict(self)}


def count_edits(outputs: Outputs, sources: Sequence[str]) -> list[Edit]:
    """The edits of Levenshtein alignments to first references, the most frequent first."""
    counts, examples = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    for ours, references, source in zip(outputs.predicted_tokens, outputs.reference_tokens, sources, strict=True):
        for edit in edits_between(references[0], ours):
            counts[edit] += 1
            examples.setdefault(edit, source)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Edit(*edit, count, examples[edit]) for edit, count in ordered]


def edits_between(wanted: Sequence[str], written: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of a wanted and a written token, one of them empty for a deletion or insertion."""
    wanted, written = list(map(nfc, wanted)), list(map(nfc, written))
    for operation in Levenshtein.editops(wanted, written):
        yield (
            "" if operation.tag == "insert" else wanted[operation.src_pos],
            "" if operation.tag == "delete" else written[operation.dest_pos],
        )
