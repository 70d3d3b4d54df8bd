"""What a beam search compares hypotheses by: their log probability, or the scores of several models."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from antiphon.decode.beam_hypotheses import Beam, Extensions
from antiphon.torch_free.hypothesis import BeamSettings


@runtime_checkable
class Rescorer(Protocol):
    """Other models that help to decide which extensions are kept."""

    features: int
    """Number of scores for each extension."""

    def start(self, *, static_shapes: bool) -> Any:
        """Its state before the start symbol of every sentence; the shapes of later states may have to be static."""
        ...

    def prepare(self, beam: Beam) -> Any:
        """What it can compute at the same time as the model, from the hypotheses of the beam."""
        ...

    def choose(
        self, extensions: Extensions, beam: Beam, memory: Any, state: Any, prepared: Any
    ) -> tuple[Extensions, Any]:
        """The extensions to consider, with their values and features, and its own state after each of them.

        ``memory`` and ``state`` are the model's, after the hypotheses of the beam.
        """
        ...

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some extensions, by flat index over all sentences."""
        ...

    def final_score(self, extensions: Extensions, length: Tensor) -> Float[Tensor, "B E"]:
        """The score that extensions by the end symbol are ranked by."""
        ...

    def upper_bound(self, extensions: Extensions, length: Tensor, limits: Tensor) -> Float[Tensor, "B E"]:
        """The best final score that each can still reach."""
        ...


class LogProbability:
    """Compares extensions by their log probability, without other models."""

    features = 0

    def __init__(self, settings: BeamSettings) -> None:
        self.settings = settings

    def start(self, *, static_shapes: bool) -> tuple[()]:
        """Nothing."""
        return ()

    def prepare(self, beam: Beam) -> None:
        """Nothing."""

    def choose(
        self, extensions: Extensions, beam: Beam, memory: Any, state: Any, prepared: None
    ) -> tuple[Extensions, tuple[()]]:
        """All of them."""
        return extensions, ()

    def select(self, state: tuple[()], index: Tensor) -> tuple[()]:
        """Nothing."""
        return ()

    def final_score(self, extensions: Extensions, length: Tensor) -> Float[Tensor, "B E"]:
        """The log probability with length bias and normalisation."""
        score: Tensor = self.settings.normalise(extensions.log_prob, length)
        return score

    def upper_bound(self, extensions: Extensions, length: Tensor, limits: Tensor) -> Float[Tensor, "B E"]:
        """The bound that follows because the log probability can only fall."""
        bound: Tensor = self.settings.upper_bound(extensions.log_prob, length, limits)
        return bound
