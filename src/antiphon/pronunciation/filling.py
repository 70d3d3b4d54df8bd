"""A lexicon for given words: known words from a lexicon, all others from a model that learnt it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from antiphon.exceptions import InputError
from antiphon.pronunciation.lexicon_files import Entry, LexiconFormat, PronunciationLexicon

_SPECIAL = ("<", "!", "[", "{")
"""Words that begin so, such as <unk>, are no words to learn from."""
_DEV_SHARE, _MOST_DEV, _LEAST_DEV = 20, 1000, 20
"""One word in this many is for validation; at most, and at least."""


class Filled(NamedTuple):
    """The readings of a word, and where they come from: ``lexicon``, ``model`` or ``unknown``, which has none."""

    word: str
    origin: str
    entries: tuple[Entry, ...]
    probabilities: tuple[float, ...] = ()

    def rows(self) -> Iterator[str]:
        """A row for each reading: word, origin, probability if the model gave it, phonemes."""
        for index, entry in enumerate(self.entries):
            chance = f"{self.probabilities[index]:.6g}" if self.probabilities else ""
            yield f"{self.word}\t{self.origin}\t{chance}\t{' '.join(entry.phonemes)}"


class LexiconLookup:
    """The entries of the words of a lexicon; case matters only where the lexicon has both."""

    def __init__(self, lexicon: PronunciationLexicon) -> None:
        self._by_word: dict[str, list[Entry]] = {}
        for entry in lexicon.entries:
            self._by_word.setdefault(entry.word, []).append(entry)
        words = [word for word in self._by_word if not word.startswith(_SPECIAL)]
        self._cases = [case for case in (str.lower, str.upper) if all(case(word) == word for word in words)][:1]

    def as_listed(self, word: str) -> str:
        """A word in the case of the lexicon."""
        return self._cases[0](word) if self._cases and word not in self._by_word else word

    def find(self, word: str) -> Sequence[Entry]:
        """The entries of a word; none if it is not listed."""
        return self._by_word.get(word, ()) or self._by_word.get(self.as_listed(word), ())


def training_pairs(lexicon: PronunciationLexicon) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs to learn from, and pairs for validation, which a hash of the word chooses."""
    words = [entry for entry in lexicon.entries if not entry.word.startswith(_SPECIAL)]
    ranked = sorted({entry.word for entry in words}, key=lambda word: hashlib.sha256(word.encode()).digest())
    count = min(_MOST_DEV, max(_LEAST_DEV, len(ranked) // _DEV_SHARE))
    if len(ranked) < 5 * _LEAST_DEV:
        raise InputError(
            f"{len(ranked)} words in the lexicon: too few to learn from, expected {5 * _LEAST_DEV} or more"
        )
    dev = frozenset(ranked[:count])
    pairs = [(entry.word, " ".join(entry.phonemes)) for entry in words]
    return [pair for pair in pairs if pair[0] not in dev], [pair for pair in pairs if pair[0] in dev]


def fill(words: Iterable[str], lexicon: PronunciationLexicon, predictions: Mapping[str, Any]) -> Iterator[Filled]:
    """The readings of each word; ``predictions`` are the model's, by the words in the case of the lexicon."""
    lookup, symbols = LexiconLookup(lexicon), lexicon.symbols
    usual = usual_numbers(lexicon)
    for word in words:
        listed = lookup.find(word)
        if listed:
            yield Filled(word, "lexicon", tuple(entry._replace(word=word) for entry in listed))
        else:
            yield _by_model(word, predictions.get(lookup.as_listed(word)), symbols, usual)


def _by_model(word: str, prediction: Any, symbols: frozenset[str], usual: Sequence[float]) -> Filled:
    """The readings that a model gives, with symbols of the lexicon alone; the best has probability 1 in the file.

    A word with a letter that the lexicon lacks has none: what a model makes of it is a guess.
    """
    found = [each for each in getattr(prediction, "nbest", ()) if each.tokens and symbols.issuperset(each.tokens)]
    if not found or prediction.unknown:
        return Filled(word, "unknown", ())
    chances = [each.probability or 0.0 for each in found]  # a noisy channel gives none, and very small ones are 0
    best = max(chances)
    entries = (
        Entry(word, tuple(each.tokens), (chance / best if best else 1.0, *usual[1:]) if usual else ())
        for each, chance in zip(found, chances, strict=True)
    )
    return Filled(word, "model", tuple(entries), tuple(chances))


def usual_numbers(lexicon: PronunciationLexicon) -> list[float]:
    """The mean of each number that the entries of a lexicon have; none without numbers."""
    columns = zip(*(entry.numbers for entry in lexicon.entries if entry.numbers), strict=False)
    return [fmean(column) for column in columns]


def entries_for(filled: Iterable[Filled], before: LexiconFormat, after: LexiconFormat) -> Iterator[Entry]:
    """The entries for a file of a format, with as many numbers as it has."""
    for each in filled:
        for entry in each.entries:
            yield entry if before == after else entry._replace(numbers=_numbers_for(entry, after))


def _numbers_for(entry: Entry, form: LexiconFormat) -> tuple[float, ...]:
    """The probability alone, or nothing where a format has no numbers."""
    return (entry.numbers[0] if entry.numbers else 1.0,) if max(form.numbers) else ()
