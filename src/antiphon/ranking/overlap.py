"""Words shared by a question and a sentence, counted and weighted by idf, and a logistic regression on top of them."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import RunError, check_installed
from antiphon.torch_free.readers import is_count, read_lines, read_text

Array = NDArray[np.float64]


def read_stop_words() -> frozenset[str]:
    """The stop list of the thesis (section 3.3, bag-of-words model), lower-cased as the text is."""
    return frozenset((files("antiphon.ranking") / "stop_words.txt").read_text(encoding="utf-8").split())


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


@dataclass(frozen=True)
class Logistic:
    """``p = sigmoid(features . weights + intercept)``."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float

    @classmethod
    def fit(cls, names: Sequence[str], features: Array, labels: NDArray[np.float32], l2: float) -> "Logistic":
        """The weights that minimise ``l2/2 |weights|^2 - sum log p(label)``, by L-BFGS."""
        check_installed("sklearn", "qa", "model.overlap")
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression(C=1 / l2, solver="lbfgs", max_iter=1000).fit(features, labels)
        weights = tuple(float(weight) for weight in fitted.coef_[0])
        return cls(tuple(names), weights, float(fitted.intercept_[0]))

    def log_odds(self, features: Array) -> Array:
        """The log odds of each row of features."""
        odds: Array = features @ np.array(self.weights) + self.intercept
        return odds

    def save(self, path: Path) -> None:
        """Writes JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Logistic":
        """Reads what ``save`` wrote."""
        try:
            stored = json.loads(read_text(path))
            loaded = cls(tuple(stored["names"]), tuple(map(float, stored["weights"])), float(stored["intercept"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RunError(f"{path}: damaged ({error!r}), expected names, weights and an intercept") from None
        if len(loaded.names) != len(loaded.weights):
            raise RunError(f"{path}: {len(loaded.weights)} weights, expected one for each of {len(loaded.names)} names")
        if not all(map(math.isfinite, (*loaded.weights, loaded.intercept))):
            raise RunError(f"{path}: weights that are not finite, expected numbers")
        return loaded
