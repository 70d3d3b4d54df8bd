"""Exact match, edit distance, error rates, BLEU, chrF, ROUGE and perplexity.

Every metric takes references as lists, one list per output, since a file may have several for each; a metric that
compares with one reference uses the best of them.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from antiphon.data.codec import TextCodec

LOWER_IS_BETTER = frozenset({"perplexity", "edit_distance", "phoneme_error_rate", "word_error_rate"})


@dataclass(frozen=True)
class Score:
    """A value and the settings that produced it."""

    value: float
    signature: str

    def to_dict(self) -> dict[str, float | str]:
        """Value and signature."""
        return {"value": self.value, "signature": self.signature}


@dataclass(frozen=True)
class Outputs:
    """Outputs and, for each, one or more references: as text, and as tokens."""

    predicted: Sequence[str]
    references: Sequence[Sequence[str]]
    predicted_tokens: Sequence[Sequence[str]]
    reference_tokens: Sequence[Sequence[Sequence[str]]]

    @classmethod
    def of(
        cls, target: TextCodec, predicted: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
    ) -> "Outputs":
        """Outputs given as tokens beside references given as text, both as the target side of a run writes them.

        All metrics start here, so that a file gets the same value everywhere.
        """
        return cls(
            predicted=[target.tokeniser.join(tokens) for tokens in predicted],
            references=[[target.normalised(text) for text in texts] for texts in references],
            predicted_tokens=predicted,
            reference_tokens=[[target.tokens(text) for text in texts] for texts in references],
        )

    def select(self, indices: Sequence[int]) -> "Outputs":
        """Some of the outputs with their references."""
        return Outputs(
            [self.predicted[index] for index in indices],
            [self.references[index] for index in indices],
            [self.predicted_tokens[index] for index in indices],
            [self.reference_tokens[index] for index in indices],
        )


@dataclass(frozen=True)
class RatioStats:
    """A metric that is a ratio of sums, ``scale * sum(parts) / sum(wholes)``: what each output adds to both."""

    parts: NDArray[np.float64]
    wholes: NDArray[np.float64]
    scale: float
    signature: str

    def score(self) -> Score:
        """The metric over all outputs."""
        return Score(float(self.scale * self.parts.sum() / max(1.0, self.wholes.sum())), self.signature)


def accuracy(outputs: Outputs) -> RatioStats:
    """Percentage of outputs that equal a reference after Unicode NFC."""
    pairs = zip(outputs.predicted, outputs.references, strict=True)
    right = [any(nfc(ours) == nfc(theirs) for theirs in references) for ours, references in pairs]
    return RatioStats(np.array(right, float), np.ones(len(right)), 100.0, "exact match|nfc|percent")


def edit_distance(outputs: Outputs) -> RatioStats:
    """Mean number of token insertions, deletions and substitutions between output and closest reference."""
    edits, _ = _edits(outputs)
    return RatioStats(edits, np.ones(len(edits)), 1.0, "levenshtein|tokens|mean per pair")


def phoneme_error_rate(outputs: Outputs) -> RatioStats:
    """Edits per hundred reference phonemes."""
    return RatioStats(*_edits(outputs), 100.0, "levenshtein|edits / reference phonemes|percent")


def word_error_rate(outputs: Outputs) -> RatioStats:
    """Edits per hundred reference tokens."""
    return RatioStats(*_edits(outputs), 100.0, "levenshtein|edits / reference tokens|percent")


def rouge(name: str) -> Callable[[Outputs], RatioStats]:
    """Mean F1 of ROUGE over tokens between spaces: the library's own tokeniser would drop ``##`` and all Chinese."""

    def compute(outputs: Outputs) -> RatioStats:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer([name], tokenizer=_Spaces())
        pairs = zip(outputs.predicted, outputs.references, strict=True)
        values = [scorer.score_multi(list(references), ours)[name].fmeasure for ours, references in pairs]
        return RatioStats(
            np.array(values), np.ones(len(values)), 100.0, f"{name}|f1|rouge-score|tokens between spaces|mean"
        )

    return compute


def corpus_metric(name: str) -> sacrebleu.BLEU | sacrebleu.CHRF:
    """sacrebleu's ``bleu``, for text that is tokenised already, or ``chrf``."""
    return sacrebleu.BLEU(tokenize="none", force=True) if name == "bleu" else sacrebleu.CHRF()


def perplexity(log_probability: float, tokens: int) -> Score:
    """``exp(-log p / tokens)``, the end symbol of every target counted as a token.

    A finite value stays below 1e305.
    """
    nats = -log_probability / max(1, tokens)
    value = math.exp(min(700.0, nats)) if math.isfinite(nats) else nats
    return Score(value, "per target token|end symbol counted")


RATIO_METRICS: dict[str, Callable[[Outputs], RatioStats]] = {
    "accuracy": accuracy,
    "edit_distance": edit_distance,
    "phoneme_error_rate": phoneme_error_rate,
    "word_error_rate": word_error_rate,
    **({name: rouge(name) for name in ("rouge1", "rouge2", "rougeL")} if find_spec("rouge_score") else {}),
}
CORPUS_METRICS = ("bleu", "chrf")


def missing_metrics_note(names: Sequence[str]) -> str | None:
    """A note about metrics whose library is not installed, or None."""
    missing = [name for name in names if name.startswith("rouge") and name not in RATIO_METRICS]
    if not missing:
        return None
    return f"{', '.join(missing)}: rouge-score is missing, expected it from antiphon[summarisation]"


def score_outputs(outputs: Outputs, names: Sequence[str]) -> dict[str, Score]:
    """The value of each named metric that is installed."""
    scores = {}
    for name in names:
        if name in RATIO_METRICS:
            scores[name] = RATIO_METRICS[name](outputs).score()
        elif name in CORPUS_METRICS:
            scores[name] = _corpus_score(corpus_metric(name), outputs)
    return scores


def reference_streams(outputs: Outputs) -> list[list[str | None]]:
    """References transposed, as sacrebleu expects them: all first ones, all second ones, and so on."""
    most = max((len(references) for references in outputs.references), default=1)
    return [[refs[n] if n < len(refs) else None for refs in outputs.references] for n in range(most)]


class _Spaces:
    """A tokeniser for rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def _corpus_score(metric: sacrebleu.BLEU | sacrebleu.CHRF, outputs: Outputs) -> Score:
    streams = cast(list[list[str]], reference_streams(outputs))  # a missing reference is None there
    result = metric.corpus_score(list(outputs.predicted), streams)
    return Score(float(result.score), str(metric.get_signature()))


def _edits(outputs: Outputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edits to the closest reference, and that reference's length, for each output."""
    found = []
    for ours, references in zip(outputs.predicted_tokens, outputs.reference_tokens, strict=True):
        tokens = list(map(nfc, ours))
        found.append(min((Levenshtein.distance(tokens, list(map(nfc, theirs))), len(theirs)) for theirs in references))
    edits, lengths = np.array(found, float).reshape(-1, 2).T
    return edits, lengths


def nfc(text: str) -> str:
    """The text in Unicode NFC, the form in which texts are compared."""
    return unicodedata.normalize("NFC", text)
