"""The measures that fit a task, taken together."""

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.metrics.generation import Score, accuracy, edit_distance, phoneme_error_rate


@dataclass(frozen=True)
class Outputs:
    """Outputs beside their references, as text and as tokens."""

    predicted: Sequence[str]
    wanted: Sequence[str]
    predicted_tokens: Sequence[Sequence[str]]
    wanted_tokens: Sequence[Sequence[str]]


def score_outputs(outputs: Outputs, *, phonemes: bool) -> dict[str, Score]:
    """Every measure of the outputs; error rates over phonemes where the tokens are such."""
    scores = {
        "accuracy": accuracy(outputs.predicted, outputs.wanted),
        "edit_distance": edit_distance(outputs.predicted_tokens, outputs.wanted_tokens),
    }
    if phonemes:
        scores["phoneme_error_rate"] = phoneme_error_rate(outputs.predicted_tokens, outputs.wanted_tokens)
    return scores
