"""Gold word alignments: sure and possible links of pairs, read from files of three formats, and metrics of links.

* tsv: ``source<TAB>target<TAB>links``, links ``i-j`` (sure) and ``ipj`` (possible), words counted from 1;
* pharaoh: a line of links for each pair, ``i-j`` (sure), ``i?j`` or ``ipj`` (possible), words counted from 0;
* naacl: a line for each link, ``sentence source target [S|P] [confidence]``, everything counted from 1.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from antiphon.exceptions import InputError
from antiphon.metrics.output_metrics import Score
from antiphon.terminal import count_of, one_line
from antiphon.torch_free.readers import Pair, read_lines

Link = tuple[int, int]
"""Index of a source word and of a target word, both from 0."""
GoldFormat = Literal["tsv", "pharaoh", "naacl"]
_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})([p?]?)")
_NAACL = re.compile(r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SPsp]))?(?:\s+[0-9.]+)?")
_NAACL_LINE = "sentence source target [S|P], all counted from 1"


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair by annotators; sure ones are possible too. ``where`` has the ``file:line`` of each."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    where: Mapping[Link, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, sure: Iterable[Link], possible: Iterable[Link] = (), where: str = "") -> "GoldLinks":
        """Sure links, and possible ones beside them, all of one line."""
        certain = frozenset(sure)
        every = certain | frozenset(possible)
        return cls(certain, every, dict.fromkeys(every, where))

    @classmethod
    def parse(cls, text: str, where: str, first: int = 0) -> "GoldLinks":
        """The links of a text such as ``0-0 1p2``; ``first`` is the number of the first word."""
        sure: list[Link] = []
        possible: list[Link] = []
        for word in text.split():
            found = _LINK.fullmatch(word)
            if found is None or min(int(found[1]), int(found[3])) < first:
                expected = f"i-j (sure) or ipj (possible), words counted from {first}"
                raise InputError(f"{where}: link {one_line(word, 60)!r}, expected {expected}")
            is_sure = found[2] == "-" and not found[4]
            (sure if is_sure else possible).append((int(found[1]) - first, int(found[3]) - first))
        return cls.of(sure, possible, where)

    def swapped(self) -> "GoldLinks":
        """The same links with source and target exchanged."""
        sure, possible = (frozenset((j, i) for i, j in links) for links in (self.sure, self.possible))
        return GoldLinks(sure, possible, {(j, i): line for (i, j), line in self.where.items()})

    def check_inside(self, source_words: int, target_words: int, otherwise: str) -> None:
        """Refuses a link to a word that the pair does not have; ``otherwise`` names the pair if no line is known."""
        for i, j in sorted(self.possible):
            if not (0 <= i < source_words and 0 <= j < target_words):
                raise InputError(
                    f"{self.where.get((i, j)) or otherwise}: a link of source word {i + 1} and target word {j + 1} in "
                    f"a pair of {source_words} and {target_words} words, expected links inside the pair"
                )


class GoldPairs(NamedTuple):
    """Pairs and the gold links of each."""

    pairs: list[Pair]
    links: list[GoldLinks]

    def swapped(self) -> "GoldPairs":
        """The same pairs with source and target exchanged."""
        pairs = [pair._replace(source=pair.target, target=pair.source) for pair in self.pairs]
        return GoldPairs(pairs, [links.swapped() for links in self.links])


def score_links(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks], method: str) -> dict[str, Score]:
    """Alignment error rate, precision and recall of the links of all pairs together, in percent.

    With A the links found, S the sure and P the possible links, of which S is a part:
    error rate = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), precision = |A ∩ P| / |A|, recall = |A ∩ S| / |S|.
    Nothing found has precision 0. ``method`` says how the links were found, for the signatures.
    """
    all_found = {(n, *link) for n, links in enumerate(found) for link in links}
    sure, possible = (
        {(n, *link) for n, links in enumerate(each) for link in links}
        for each in ([links.sure for links in gold], [links.possible for links in gold])
    )
    in_sure, in_possible = len(all_found & sure), len(all_found & possible)
    values = {
        "alignment_error_rate": 1 - (in_sure + in_possible) / max(1, len(all_found) + len(sure)),
        "alignment_precision": in_possible / max(1, len(all_found)),
        "alignment_recall": in_sure / max(1, len(sure)),
    }
    return {name: Score(100 * value, f"sure and possible links|{method}|percent") for name, value in values.items()}


def read_gold(path: Path, pairs: Sequence[Pair] | None = None, format: GoldFormat | None = None) -> GoldPairs:
    """The gold links of a file and their pairs; without ``format``, the first line shows which one it is.

    A file of the format tsv has its own pairs; if others are given, they must be the same.
    """
    lines = list(read_lines(path))
    format = format or recognise_format(lines, path)
    if format == "tsv":
        return _read_tsv(lines, path, pairs)
    if pairs is None:
        raise InputError(
            f"{path}: links in the format {format}, without text, expected the pairs in a file of their own"
        )
    read = _read_pharaoh if format == "pharaoh" else _read_naacl
    return GoldPairs(list(pairs), read(lines, path, len(pairs)))


def recognise_format(lines: Sequence[str], path: Path) -> GoldFormat:
    """The format of gold links that the first line with text has."""
    number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (1, ""))
    if _NAACL.fullmatch(first.strip()):
        return "naacl"
    if "\t" in first:
        return "tsv"
    if first and all(map(_LINK.fullmatch, first.split())):
        return "pharaoh"
    raise InputError(
        f"{path}:{number}: not gold links, expected source<TAB>target<TAB>links, Pharaoh (0-0 1-2) or NAACL (1 1 2 S); "
        "--gold-format chooses"
    )


def _read_tsv(lines: Sequence[str], path: Path, given: Sequence[Pair] | None) -> GoldPairs:
    """Pairs and links of ``source<TAB>target<TAB>links``; a blank line is a pair without words."""
    pairs, links = [], []
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        columns = line.split("\t") if line.strip() else ["", "", ""]
        if len(columns) != 3:
            raise InputError(f"{where}: {count_of(len(columns), 'column')}, expected source<TAB>target<TAB>links")
        pairs.append(Pair(columns[0], columns[1], (), where))
        links.append(GoldLinks.parse(columns[2], where, first=1))
    if given is not None:
        _check_count(len(pairs), len(given), path)
        for ours, theirs in zip(given, pairs, strict=True):
            if (ours.source, ours.target) != (theirs.source, theirs.target):
                raise InputError(f"{theirs.where}: a different pair from {ours.where}, expected the same text")
    return GoldPairs(list(given or pairs), links)


def _read_pharaoh(lines: Sequence[str], path: Path, pairs: int) -> list[GoldLinks]:
    """The links of each line."""
    _check_count(len(lines), pairs, path)
    return [GoldLinks.parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _read_naacl(lines: Sequence[str], path: Path, pairs: int) -> list[GoldLinks]:
    """The links of each sentence; one that no line names has none."""
    where: dict[int, dict[Link, str]] = defaultdict(dict)
    sure: dict[int, set[Link]] = defaultdict(set)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        sentence, link, is_sure = _naacl_link(line, f"{path}:{number}", pairs)
        where[sentence].setdefault(link, f"{path}:{number}")
        if is_sure:
            sure[sentence].add(link)
    return [GoldLinks(frozenset(sure[n]), frozenset(where[n]), where[n]) for n in range(pairs)]


def _naacl_link(line: str, where: str, pairs: int) -> tuple[int, Link, bool]:
    """The index of the sentence, the link, and whether it is sure; a link without a letter is."""
    found = _NAACL.fullmatch(line.strip())
    if found is None or min(int(found[n]) for n in (1, 2, 3)) < 1:
        raise InputError(f"{where}: {one_line(line, 60)!r}, expected {_NAACL_LINE}")
    sentence, i, j = (int(found[n]) - 1 for n in (1, 2, 3))
    if sentence >= pairs:
        raise InputError(f"{where}: sentence {sentence + 1}, expected at most {pairs} as there are pairs")
    return sentence, (i, j), (found[4] or "S").upper() == "S"


def _check_count(found: int, expected: int, path: Path) -> None:
    """Refuses links of more or fewer pairs than there are."""
    if found != expected:
        raise InputError(f"{path}: links of {count_of(found, 'pair')}, expected {expected:,} as there are pairs")
