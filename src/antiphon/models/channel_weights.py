"""The weights of a noisy channel, and the names of the four scores that they weigh."""

from typing import NamedTuple


class Weights(NamedTuple):
    """Weights of the feature scores: direct model, channel model, language model, length."""

    direct: float = 1.0
    channel: float = 1.0
    language_model: float = 1.0
    length: float = 0.0

    @property
    def scale(self) -> float:
        """The largest absolute weight of a model, 1 if all are 0."""
        return max(abs(weight) for weight in self[:3]) or 1.0
