"""How likely the transducer is to write, rather than read on, in each cell.

Both kinds split a cell into units of its input row and units of its output column, which broadcast against each
other, so that a search can keep the two apart and compute each only once.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NeuralTransition(nn.Module):
    """``log odds(i, j) = v . tanh(T_h h_i + T_s s_j + c) + d``.  Thesis: transition model 2, the ``+`` models."""

    def __init__(self, source_size: int, target_size: int, units: int) -> None:
        super().__init__()
        self.source = nn.Linear(source_size, units, bias=False)
        self.target = nn.Linear(target_size, units)
        self.output = nn.Linear(units, 1)

    def source_units(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... T"]:
        """The part of an input state."""
        units: Tensor = self.source(states)
        return units

    def target_units(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... T"]:
        """The part of an output state."""
        units: Tensor = self.target(states)
        return units

    def log_odds(self, source: Float[Tensor, "... T"], target: Float[Tensor, "... T"]) -> Float[Tensor, "..."]:
        """Log odds of writing."""
        odds: Tensor = self.output(torch.tanh(source + target))
        return odds.squeeze(-1)


class GeometricTransition(nn.Module):
    """One constant chance of writing, wherever the path stands.  Thesis: transition model 1."""

    constant_log_odds: Tensor

    def __init__(self, emit_probability: float) -> None:
        super().__init__()
        log_odds = math.log(emit_probability) - math.log1p(-emit_probability)
        self.register_buffer("constant_log_odds", torch.tensor(log_odds))

    def source_units(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... 0"]:
        """No units: the chance does not depend on the input."""
        return states[..., :0]

    def target_units(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... 0"]:
        """No units: the chance does not depend on the output."""
        return states[..., :0]

    def log_odds(self, source: Float[Tensor, "... 0"], target: Float[Tensor, "... 0"]) -> Float[Tensor, "..."]:
        """The constant log odds of writing, in the shape of the cells."""
        return self.constant_log_odds + (source + target).sum(-1)
