"""Exact match, edit distance, error rates, BLEU, chrF, ROUGE and perplexity.

Every metric takes references as lists, one list per output, since a file may have several for each; a metric that
compares with one reference uses the best of them.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from antiphon.exceptions import how_to_install
from antiphon.metrics.kept_tokens import is_subsequence, shared_kept
from antiphon.torch_free.codec import TextCodec

LOWER_IS_BETTER = frozenset({"perplexity", "edit_distance", "phoneme_error_rate", "word_error_rate"})
BLEU_ORDER = 4
"""Words of the longest n-grams that BLEU counts."""


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
    source_tokens: Sequence[Sequence[str]] | None = None
    """Given where sources and outputs are words, and may be compared."""

    @classmethod
    def of(
        cls,
        target: TextCodec,
        predicted: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]],
        sources: Sequence[Sequence[str]] | None = None,
    ) -> "Outputs":
        """Outputs given as tokens beside references given as text, both as the target side of a run writes them.

        All metrics start here, so that a file gets the same value everywhere.
        """
        return cls(
            predicted=[target.tokeniser.join(tokens) for tokens in predicted],
            references=[[target.normalised(text) for text in texts] for texts in references],
            predicted_tokens=predicted,
            reference_tokens=[[target.tokens(text) for text in texts] for texts in references],
            source_tokens=sources,
        )

    def select(self, indices: Sequence[int]) -> "Outputs":
        """Some of the outputs with their references."""
        return Outputs(
            [self.predicted[index] for index in indices],
            [self.references[index] for index in indices],
            [self.predicted_tokens[index] for index in indices],
            [self.reference_tokens[index] for index in indices],
            None if self.source_tokens is None else [self.source_tokens[index] for index in indices],
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

    def resample(self, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        """The metric of each row of indices of outputs."""
        parts, wholes = self.parts[drawn].sum(1), self.wholes[drawn].sum(1)
        values: NDArray[np.float64] = self.scale * parts / np.maximum(1.0, wholes)
        return values

    def __len__(self) -> int:
        return len(self.parts)


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


def kept_f1(outputs: Outputs) -> RatioStats:
    """Mean over sentences of the F1 of kept source tokens, with the reference that is matched best."""
    values = np.array([2 * both / max(1, whole) for both, whole in _kept(outputs)])
    return RatioStats(values, np.ones(len(values)), 100.0, "f1|kept source tokens|mean per sentence|percent")


def kept_f1_micro(outputs: Outputs) -> RatioStats:
    """F1 of the kept source tokens of all sentences together."""
    both, wholes = np.array(_kept(outputs), float).reshape(-1, 2).T
    return RatioStats(2 * both, wholes, 100.0, "f1|kept source tokens|all sentences together|percent")


def compression_rate(outputs: Outputs) -> RatioStats:
    """Mean over sentences of output tokens per source token."""
    return _rate(outputs, outputs.predicted_tokens, "output tokens / source tokens")


def reference_compression_rate(outputs: Outputs) -> RatioStats:
    """The compression rate of the first references."""
    return _rate(outputs, [each[0] for each in outputs.reference_tokens], "reference tokens / source tokens")


def compression_rate_chars(outputs: Outputs) -> RatioStats:
    """Mean over sentences of output characters per source character, the spaces between tokens counted."""
    written, sources = outputs.predicted_tokens, outputs.source_tokens or ()
    texts = [[list(" ".join(tokens)) for tokens in side] for side in (written, sources)]
    return _rate(replace(outputs, source_tokens=texts[1]), texts[0], "output characters / source characters")


def deletion_metrics(outputs: Outputs) -> list[str]:
    """The names of the metrics of compression by deletion, if that is the task; else none.

    It is if sources are known and at least nine in ten of the first references are subsequences of their sources.
    """
    if not outputs.source_tokens:
        return []
    pairs = zip(outputs.reference_tokens, outputs.source_tokens, strict=True)
    deleted = [is_subsequence(references[0], source) for references, source in pairs]
    return list(COMPRESSION_METRICS) if sum(deleted) >= 0.9 * len(deleted) else []


def corpus_metric(name: str) -> sacrebleu.BLEU | sacrebleu.CHRF:
    """sacrebleu's ``bleu``, for text that is tokenised already, or ``chrf``."""
    return sacrebleu.BLEU(tokenize="none", force=True) if name == "bleu" else sacrebleu.CHRF()


def has_fourgrams(targets: Iterable[str]) -> bool:
    """Whether any target has four words; if not, BLEU is 0 whatever the outputs are."""
    return any(len(target.split()) >= BLEU_ORDER for target in targets)


def perplexity(log_probability: float, tokens: int) -> Score:
    """``exp(-log p / tokens)``, the end symbol of every target counted as a token.

    A finite value stays below 1e305.
    """
    nats = -log_probability / max(1, tokens)
    value = math.exp(min(700.0, nats)) if math.isfinite(nats) else nats
    return Score(value, "per target token|end symbol counted")


COMPRESSION_METRICS: dict[str, Callable[[Outputs], RatioStats]] = {
    "kept_f1": kept_f1,
    "kept_f1_micro": kept_f1_micro,
    "compression_rate": compression_rate,
    "compression_rate_chars": compression_rate_chars,
    "reference_compression_rate": reference_compression_rate,
}
RATIO_METRICS: dict[str, Callable[[Outputs], RatioStats]] = {
    "accuracy": accuracy,
    "edit_distance": edit_distance,
    "phoneme_error_rate": phoneme_error_rate,
    "word_error_rate": word_error_rate,
    **COMPRESSION_METRICS,
    **({name: rouge(name) for name in ("rouge1", "rouge2", "rougeL")} if find_spec("rouge_score") else {}),
}
CORPUS_METRICS = ("bleu", "chrf")


def missing_metrics_note(names: Sequence[str]) -> str | None:
    """A note about metrics whose library is not installed, or None."""
    missing = [name for name in names if name.startswith("rouge") and name not in RATIO_METRICS]
    if not missing:
        return None
    return f"{', '.join(missing)}: rouge-score is missing, expected it installed: {how_to_install('summarisation')}"


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


def _kept(outputs: Outputs) -> list[tuple[int, int]]:
    """For each output, the kept tokens that it shares with its best reference, and the tokens of both together."""
    triples = zip(outputs.predicted_tokens, outputs.reference_tokens, outputs.source_tokens or (), strict=True)
    return [
        max(
            ((shared_kept(ours, theirs, source), len(ours) + len(theirs)) for theirs in references),
            key=lambda counts: counts[0] / max(1, counts[1]),
        )
        for ours, references, source in triples
    ]


def _rate(outputs: Outputs, written: Sequence[Sequence[str]], signature: str) -> RatioStats:
    """Mean over sentences of ``length of what is written / length of the source``, in percent."""
    pairs = zip(written, outputs.source_tokens or (), strict=True)
    values = np.array([len(tokens) / max(1, len(source)) for tokens, source in pairs])
    return RatioStats(values, np.ones(len(values)), 100.0, f"{signature}|mean per sentence|percent")


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
