"""The weights of the four scores of a noisy channel."""

from typing import NamedTuple

UNFINISHED_FACTOR = 0.5
"""Factor on the channel score where outputs are compared that may not have ended (``decode/rescoring.py``)."""


class Weights(NamedTuple):
    """Weights of the feature scores: direct model, channel model, language model, length."""

    direct: float = 1.0
    channel: float = 1.0
    language_model: float = 1.0
    length: float = 0.0

    @property
    def scale(self) -> float:
        """The largest absolute weight of a model, 1 if all are 0.

        Objectives are divided by it, so that differences between them are about as large as those of a single model.
        """
        return max(abs(weight) for weight in self[:3]) or 1.0
