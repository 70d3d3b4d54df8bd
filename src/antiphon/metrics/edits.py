"""Counts token errors: substitutions, insertions and deletions between references and outputs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein

from antiphon.metrics.output_metrics import Outputs, nfc


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
