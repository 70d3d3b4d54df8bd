"""Exact match, error rates, BLEU, chrF, ROUGE, perplexity, metrics of compression by deletion, and of rankings.

Every metric takes references as lists, one list per output, since a file may have several for each; a metric that
compares with one reference uses the best of them.

Published results of compression by deletion count the source positions that are retained, since their models label
tokens. A text that is written freely has no such labels, so its positions are found again: those of a longest common
subsequence with the source. Where several are equally long, a reference takes the earliest positions, and an output
those that it shares with the reference, so that a repeated word is not an error. A token that is not in this
subsequence counts as retained and wrong. (F1 over the bags of tokens, whatever their positions, is ROUGE-1.)

Rankings are measured by the official ``trec_eval`` through ir-measures. Equal scores are ordered by candidate id
descending, so the order of a file does not matter. A judged question without a ranking counts 0.
"""

import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import cast

import numpy as np
import sacrebleu
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from antiphon.exceptions import check_installed, how_to_install
from antiphon.torch_free.codec import TextCodec

LOWER_IS_BETTER = frozenset({"perplexity", "edit_distance", "symbol_error_rate", "word_error_rate"})
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

    @classmethod
    def mean(cls, values: Sequence[float], scale: float, signature: str) -> "RatioStats":
        """The mean of a value of each output."""
        return cls(np.array(values, float), np.ones(len(values)), scale, signature)

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


@dataclass(frozen=True)
class CorpusStats:
    """BLEU or chrF: what each output adds to the counts that sacrebleu computes it from."""

    rows: NDArray[np.float64]
    metric: sacrebleu.BLEU | sacrebleu.CHRF

    @classmethod
    def of(cls, name: str, outputs: Outputs) -> "CorpusStats":
        """The counts of ``bleu``, for text that is tokenised already, or of ``chrf``."""
        metric = sacrebleu.BLEU(tokenize="none", force=True) if name == "bleu" else sacrebleu.CHRF()
        most = max((len(references) for references in outputs.references), default=1)
        # As sacrebleu expects them: all first references, all second ones, and so on; a missing one is None.
        streams = [[refs[n] if n < len(refs) else None for refs in outputs.references] for n in range(most)]
        rows = metric._extract_corpus_statistics(outputs.predicted, cast(list[list[str]], streams))
        return cls(np.array(rows, float), metric)

    def score(self) -> Score:
        """The metric over all outputs."""
        return Score(self.value(self.rows.sum(0)), str(self.metric.get_signature()))

    def resample(self, drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        """The metric of each row of indices of outputs."""
        return np.array([self.value(self.rows[indices].sum(0)) for indices in drawn])

    def value(self, counts: NDArray[np.float64]) -> float:
        """The metric of a sum of rows."""
        return float(self.metric._compute_score_from_stats(counts.astype(np.int64).tolist()).score)

    def __len__(self) -> int:
        return len(self.rows)


def accuracy(outputs: Outputs) -> RatioStats:
    """Percentage of outputs that equal a reference after Unicode NFC."""
    pairs = zip(outputs.predicted, outputs.references, strict=True)
    right = [any(nfc(ours) == nfc(theirs) for theirs in references) for ours, references in pairs]
    return RatioStats.mean(right, 100.0, "exact match|nfc|percent")


def edit_distance(outputs: Outputs) -> RatioStats:
    """Mean number of token insertions, deletions and substitutions between output and closest reference."""
    return RatioStats.mean(_edits(outputs)[0].tolist(), 1.0, "levenshtein|tokens|mean per pair")


def symbol_error_rate(outputs: Outputs) -> RatioStats:
    """Edits per hundred reference symbols, such as phonemes."""
    return RatioStats(*_edits(outputs), 100.0, "levenshtein|edits / reference symbols|percent")


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
        return RatioStats.mean(values, 100.0, f"{name}|f1|rouge-score|tokens between spaces|mean")

    return compute


def retained_f1(outputs: Outputs) -> RatioStats:
    """Retained-token F1: of the source tokens that an output and its best reference retain, a mean over sentences."""
    values = [2 * both / max(1, whole) for both, whole in _retained(outputs)]
    return RatioStats.mean(values, 100.0, "f1|retained source tokens|mean per sentence|percent")


def retained_f1_micro(outputs: Outputs) -> RatioStats:
    """Retained-token F1 of all sentences together."""
    both, wholes = np.array(_retained(outputs), float).reshape(-1, 2).T
    return RatioStats(2 * both, wholes, 100.0, "f1|retained source tokens|all sentences together|percent")


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


def is_subsequence(text: Sequence[str], source: Sequence[str]) -> bool:
    """Whether a text is made from its source by deleting tokens."""
    remaining = iter(source)
    return all(token in remaining for token in text)


def deletion_metrics(outputs: Outputs) -> list[str]:
    """The names of the metrics of compression by deletion, if that is the task; else none.

    It is if sources are known and at least nine in ten of the first references are subsequences of their sources.
    """
    if not outputs.source_tokens:
        return []
    pairs = zip(outputs.reference_tokens, outputs.source_tokens, strict=True)
    deleted = [is_subsequence(references[0], source) for references, source in pairs]
    return list(COMPRESSION_METRICS) if sum(deleted) >= 0.9 * len(deleted) else []


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
    "retained_f1": retained_f1,
    "retained_f1_micro": retained_f1_micro,
    "compression_rate": compression_rate,
    "compression_rate_chars": compression_rate_chars,
    "reference_compression_rate": reference_compression_rate,
}
RATIO_METRICS: dict[str, Callable[[Outputs], RatioStats]] = {
    "accuracy": accuracy,
    "edit_distance": edit_distance,
    "symbol_error_rate": symbol_error_rate,
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
    return {name: statistics_of(name, outputs).score() for name in names if name in (*RATIO_METRICS, *CORPUS_METRICS)}


def statistics_of(name: str, outputs: Outputs) -> RatioStats | CorpusStats:
    """What each output adds to a metric."""
    return RATIO_METRICS[name](outputs) if name in RATIO_METRICS else CorpusStats.of(name, outputs)


class _Spaces:
    """A tokeniser for rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def _retained(outputs: Outputs) -> list[tuple[int, int]]:
    """For each output, the retained tokens that it shares with its best reference, and the tokens of both together."""
    triples = zip(outputs.predicted_tokens, outputs.reference_tokens, outputs.source_tokens or (), strict=True)
    return [
        max(
            ((shared_retained(ours, theirs, source), len(ours) + len(theirs)) for theirs in references),
            key=lambda counts: counts[0] / max(1, counts[1]),
        )
        for ours, references, source in triples
    ]


def shared_retained(output: Sequence[str], reference: Sequence[str], source: Sequence[str]) -> int:
    """The number of source positions that both an output and its reference retain."""
    of_reference = retained_positions(reference, source)
    return len(of_reference & retained_positions(output, source, of_reference))


def retained_positions(text: Sequence[str], source: Sequence[str], preferred: Collection[int] = ()) -> frozenset[int]:
    """The positions of a longest common subsequence of a text and its source.

    Of several, the one with most ``preferred`` positions, then the one that matches early. ``best[t][s]`` is the weight
    of the common subsequence of ``text[t:]`` and ``source[s:]``: a match is worth more than all preferences together.
    """
    weights = [len(source) + 1 + (position in preferred) for position in range(len(source))]
    best = [[0] * (len(source) + 1) for _ in range(len(text) + 1)]
    for t in reversed(range(len(text))):
        for s in reversed(range(len(source))):
            matched = best[t + 1][s + 1] + weights[s] if text[t] == source[s] else 0
            best[t][s] = max(matched, best[t + 1][s], best[t][s + 1])
    return _traced(text, source, weights, best)


def _traced(
    text: Sequence[str], source: Sequence[str], weights: Sequence[int], best: Sequence[Sequence[int]]
) -> frozenset[int]:
    """The positions on the path through ``best`` that matches as early as possible."""
    kept: list[int] = []
    t = s = 0
    while t < len(text) and s < len(source):
        if text[t] == source[s] and best[t][s] == best[t + 1][s + 1] + weights[s]:
            kept.append(s)
            t, s = t + 1, s + 1
        elif best[t][s] == best[t + 1][s]:
            t += 1
        else:
            s += 1
    return frozenset(kept)


def _rate(outputs: Outputs, written: Sequence[Sequence[str]], signature: str) -> RatioStats:
    """Mean over sentences of ``length of what is written / length of the source``, in percent."""
    pairs = zip(written, outputs.source_tokens or (), strict=True)
    values = [len(tokens) / max(1, len(source)) for tokens, source in pairs]
    return RatioStats.mean(values, 100.0, f"{signature}|mean per sentence|percent")


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


Rankings = Mapping[str, Mapping[str, float]]
"""The score of every candidate of every question, by their ids; higher is better."""

RANKING_METRICS = {"map": "AP", "mrr": "RR", "p_at_1": "P@1"}
"""Our names and those of ir-measures."""


def compute_ranking_metrics(
    judged: Mapping[str, Mapping[str, int]], rankings: Rankings, about: str = "all"
) -> dict[str, RatioStats]:
    """Every metric over the judged questions; ``about`` describes them in the signature."""
    check_installed("ir_measures", "qa", "MAP and MRR")
    import ir_measures

    measures = {ir_measures.parse_measure(theirs): ours for ours, theirs in RANKING_METRICS.items()}
    found: dict[str, dict[str, float]] = {name: {} for name in RANKING_METRICS}
    for value in ir_measures.iter_calc(list(measures), judged, rankings):
        found[measures[value.measure]][value.query_id] = float(value.value)
    signature = (
        f"{len(judged)} questions ({about})|ties by id descending|trec_eval, ir-measures {ir_measures.__version__}"
    )
    return {
        name: RatioStats(
            np.array([values.get(question, 0.0) for question in judged]), np.ones(len(judged)), 1.0, signature
        )
        for name, values in found.items()
    }
