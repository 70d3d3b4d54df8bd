"""Exact match, edit distance, error rates and perplexity."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

LOWER_IS_BETTER = frozenset({"perplexity", "edit_distance", "phoneme_error_rate"})


@dataclass(frozen=True)
class Score:
    """A value, and the settings that made it."""

    value: float
    signature: str


def accuracy(predictions: Sequence[str], references: Sequence[str]) -> Score:
    """Percentage of outputs that equal their reference after Unicode NFC."""
    right = sum(_nfc(ours) == _nfc(theirs) for ours, theirs in zip(predictions, references, strict=True))
    return Score(100 * right / max(1, len(references)), "exact match|nfc|percent")


def edit_distance(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Score:
    """Mean number of token insertions, deletions and substitutions between output and reference."""
    return Score(_edits(predictions, references) / max(1, len(references)), "levenshtein|tokens|mean per pair")


def phoneme_error_rate(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Score:
    """Edits per hundred reference phonemes."""
    phonemes = sum(len(reference) for reference in references)
    value = 100 * _edits(predictions, references) / max(1, phonemes)
    return Score(value, "levenshtein|edits / reference phonemes|percent")


def perplexity(log_probability: float, tokens: int) -> Score:
    """``exp(-log p / tokens)``, the end symbol of every target counted as a token."""
    value = math.exp(min(700.0, -log_probability / max(1, tokens)))
    return Score(value, "per target token|end symbol counted|sum over alignments")


def _edits(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> int:
    pairs = zip(predictions, references, strict=True)
    return sum(Levenshtein.distance(list(map(_nfc, ours)), list(map(_nfc, theirs))) for ours, theirs in pairs)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
