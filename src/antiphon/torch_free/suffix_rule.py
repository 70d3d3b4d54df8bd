"""Suffix rules: a baseline for character tasks that learns by counting.

The longest common prefix of a pair is removed; the rest is a rule that replaces one ending by another. The rule is
stored for every suffix of the source that contains its ending. An input is mapped by the most frequent rule of its
longest suffix that was seen with its tag::

    Wort -> Wörtern  under DAT;PL      teaches   ort -> örtern   for  ort, Wort
    Fremdwort        under DAT;PL      longest suffix known is  wort -> wörtern  (from other words on -wort)
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.torch_free.files import is_count, read_lines

Tokens = tuple[str, ...]
_SEPARATOR = "\x1f"
_COLUMNS = 5
_ESCAPES = {"\\": "\\\\", "\t": "\\t", _SEPARATOR: "\\u"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}


class SuffixRules:
    """For each tag and suffix, the counts of the rules seen with them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Tokens, Tokens], Counter[tuple[Tokens, Tokens]]] = defaultdict(Counter)

    @classmethod
    def learn(cls, examples: Iterable[tuple[Sequence[str], Sequence[str], Sequence[str]]]) -> "SuffixRules":
        """The rules learnt from examples, each a source, a target and its features."""
        rules = cls()
        for source, target, features in examples:
            rules._count(tuple(source), tuple(target), _tag(features))
        return rules

    def apply(self, source: Sequence[str], features: Sequence[str] = ()) -> Tokens:
        """The output for a source; a copy of the source if no rule of its tag applies."""
        tokens, tag = tuple(source), _tag(features)
        for start in range(len(tokens) + 1):
            counted = self._counts.get((tag, tokens[start:]))
            if counted:
                ending, replacement = _most_frequent(counted)
                return tokens[: len(tokens) - len(ending)] + replacement
        return tokens

    def __len__(self) -> int:
        return len(self._counts)

    def save(self, path: Path) -> None:
        """Writes one rule per line: tag, suffix, ending, replacement, count."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for (tag, suffix), counted in sorted(self._counts.items()):
                for (ending, replacement), count in sorted(counted.items()):
                    parts = (_SEPARATOR.join(map(_escaped, part)) for part in (tag, suffix, ending, replacement))
                    file.write("\t".join((*parts, str(count))) + "\n")

    @classmethod
    def load(cls, path: Path) -> "SuffixRules":
        """Reads what ``save`` wrote."""
        rules = cls()
        for line_number, line in enumerate(read_lines(path), 1):
            columns = line.split("\t")
            if len(columns) != _COLUMNS or not is_count(columns[-1]):
                raise RunError(
                    f"{path}:{line_number}: not a suffix rule, expected {_COLUMNS} columns ending in a count"
                )
            tag, suffix, ending, replacement = (_split(column) for column in columns[:-1])
            rules._counts[_tag(tag), suffix][ending, replacement] += int(columns[-1])
        return rules

    def _count(self, source: Tokens, target: Tokens, tag: Tokens) -> None:
        shared = _common_prefix(source, target)
        rule = source[shared:], target[shared:]
        for start in range(shared + 1):
            self._counts[tag, source[start:]][rule] += 1


def _tag(features: Sequence[str]) -> Tokens:
    """Features as a set: N;PL;DAT is N;DAT;PL."""
    return tuple(sorted(set(features)))


def _common_prefix(source: Tokens, target: Tokens) -> int:
    shared = 0
    for ours, theirs in zip(source, target, strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared


def _most_frequent(counted: Counter[tuple[Tokens, Tokens]]) -> tuple[Tokens, Tokens]:
    return max(counted, key=lambda rule: (counted[rule], rule))


def _split(column: str) -> Tokens:
    return tuple(map(_unescaped, column.split(_SEPARATOR))) if column else ()


def _escaped(token: str) -> str:
    """A token with the separators of the file escaped."""
    return "".join(_ESCAPES.get(character, character) for character in token)


def _unescaped(text: str) -> str:
    """The inverse of ``_escaped``."""
    return re.sub(r"\\[\\tu]", lambda found: _CHARACTERS[found[0]], text)
