"""Error reports: mistakes, accuracy of groups, frequent edits, and the difference to another model."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from antiphon.metrics.breakdown import Edit, Group


@dataclass(frozen=True)
class ReportedPair:
    """A pair that is listed for some reason; ``where`` is its ``file:line``, empty if it came from no file."""

    where: str
    source: str
    features: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Mistake(ReportedPair):
    """A pair whose output is not its reference.

    ``alignment`` has ``i-j`` pairs of source and output as ``antiphon align`` writes them. Values that a kind of model
    does not have are None, and so is a missing output. ``unseen`` has the symbols of the source and the tokens of the
    reference not seen in training.
    """

    reference: str
    output: str | None
    probability: float | None
    reference_probability: float | None
    alignment: str | None
    unseen: tuple[str, ...]


@dataclass(frozen=True)
class Difference(ReportedPair):
    """A pair that only one of two models gets right: this one, or the other."""

    reference: str
    output: str | None
    probability: float | None
    other_output: str | None
    other_probability: float | None


@dataclass(frozen=True)
class ModelDifferences:
    """How many pairs both models get right, only this one, only the other, or neither; and which those are."""

    both_right: int
    only_this: int
    only_other: int
    neither: int
    won: tuple[Difference, ...]
    """Pairs that only this model gets right."""
    lost: tuple[Difference, ...]
    """Pairs that only the other model gets right."""

    def to_dict(self) -> dict[str, Any]:
        """The four numbers of pairs, and the pairs that only one model gets right."""
        return self.counts() | {"won": _dicts(self.won), "lost": _dicts(self.lost)}

    def counts(self) -> dict[str, int]:
        """The four counts of pairs."""
        return {name: getattr(self, name) for name in ("both_right", "only_this", "only_other", "neither")}


@dataclass(frozen=True)
class ErrorReport:
    """The errors of a model on some pairs; lists may be truncated, ``right`` counts all."""

    pairs: int
    right: int
    mistakes: tuple[Mistake, ...]
    groups: tuple[Group, ...]
    edits: tuple[Edit, ...]
    against: ModelDifferences | None = None

    @property
    def wrong(self) -> int:
        """Number of outputs that differ from their reference."""
        return self.pairs - self.right

    @property
    def accuracy(self) -> float:
        """Percentage of outputs that equal their reference."""
        return 100.0 * self.right / max(1, self.pairs)

    def summary(self) -> dict[str, Any]:
        """All but the lists of pairs, as a JSON-serialisable dictionary."""
        shown: dict[str, Any] = {
            "pairs": self.pairs,
            "right": self.right,
            "accuracy": self.accuracy,
            "groups": [group.to_dict() for group in self.groups],
            "edits": [edit.to_dict() for edit in self.edits],
        }
        return shown if self.against is None else shown | {"against": self.against.counts()}

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary."""
        shown = self.summary() | {"mistakes": _dicts(self.mistakes)}
        if self.against is not None:
            shown["against"] = self.against.to_dict()
        return shown


@dataclass(frozen=True)
class Suspect(ReportedPair):
    """A pair with the probability that a model gives its target, and what the model would write instead.

    ``log_probability_per_token`` is the log probability of the target divided by its tokens, the end counted as one.
    """

    target: str
    log_probability_per_token: float
    probability: float
    output: str | None
    output_probability: float | None

    def to_dict(self) -> dict[str, Any]:
        """The same as a JSON-serialisable dictionary; a log probability of ``-inf`` is None."""
        shown = super().to_dict()
        is_possible = math.isfinite(self.log_probability_per_token)
        return shown if is_possible else shown | {"log_probability_per_token": None}


def _dicts(rows: Sequence[ReportedPair]) -> list[dict[str, Any]]:
    return [row.to_dict() for row in rows]
