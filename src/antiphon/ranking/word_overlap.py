"""Words shared by a question and a sentence, counted and weighted by idf."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from antiphon.exceptions import RunError
from antiphon.torch_free.files import is_count, read_lines


class Overlap:
    """Counts words that a question and a sentence share; ``document_frequency``: in how many sentences each word is.

    ``idf(w) = log((sentences + 1) / (document_frequency(w) + 1))``
    """

    def __init__(self, sentences: int, document_frequency: dict[str, int], stop_words: Collection[str]) -> None:
        self.sentences, self.document_frequency = sentences, document_frequency
        self.stop_words = frozenset(stop_words)

    @classmethod
    def learn(cls, sentences: Iterable[Sequence[str]], stop_words: Collection[str]) -> "Overlap":
        """The document frequencies of words in sentences."""
        counts, total = Counter[str](), 0
        for words in sentences:
            counts.update(set(words))
            total += 1
        return cls(total, dict(counts), stop_words)

    def idf(self, word: str) -> float:
        """The idf of a word; highest for unseen words."""
        return math.log((self.sentences + 1) / (self.document_frequency.get(word, 0) + 1))

    def features(self, question: Sequence[str], sentence: Sequence[str]) -> tuple[float, float]:
        """The number of distinct shared words, without stop words, and the sum of their idf."""
        shared = (set(question) & set(sentence)) - self.stop_words
        return float(len(shared)), sum((self.idf(word) for word in sorted(shared)), 0.0)

    def save(self, path: Path) -> None:
        """Writes the number of sentences, then one word per line with its document frequency."""
        ordered = sorted(self.document_frequency.items(), key=lambda item: (-item[1], item[0]))
        lines = [f"sentences\t{self.sentences}", *(f"{word}\t{count}" for word, count in ordered)]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path, stop_words: Collection[str]) -> "Overlap":
        """Reads what ``save`` wrote."""
        counts: list[tuple[str, int]] = []
        for line_number, line in enumerate(read_lines(path), 1):
            word, _, count = line.partition("\t")
            if not is_count(count):
                raise RunError(f"{path}:{line_number}: not a word frequency, expected word<TAB>sentences")
            counts.append((word, int(count)))
        if not counts or counts[0][0] != "sentences":
            raise RunError(f"{path}: not a list of word frequencies, expected a first line that counts the sentences")
        return cls(counts[0][1], dict(counts[1:]), stop_words)
