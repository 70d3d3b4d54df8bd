"""The transition model of the transducer: log odds of writing, rather than reading on, in each cell.

Both kinds split a cell into a source part and a target part, which broadcast against each other, so that a search can
compute each part only once.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from antiphon.device import is_traced


class NeuralTransition(nn.Module):
    """``log odds(i, j) = v . tanh(T_h h_i + T_s s_j + c) + d``.  Thesis: transition model 2, the ``+`` models.

    With ``compares``, ``w . h_i + e`` is added where the token that ``x_i`` is tied to was written last. This is where
    the ``repeat_keys`` of both sides are equal. Whether there is still something to write at position ``i`` is hard to
    learn from a sum of two vectors, and training that does not learn it stays on a plateau. Not in the thesis.

    The part of a side is its units, ``T_h h_i`` or ``T_s s_j + c``, and with ``compares`` two more columns, *written*:
    ``w . h_i + e`` (0 for the target) and the key. Both sides have the same layout, so either can be the table.
    """

    def __init__(self, source_size: int, target_size: int, units: int, *, compares: bool = False) -> None:
        super().__init__()
        self.source = nn.Linear(source_size, units, bias=False)
        self.target = nn.Linear(target_size, units)
        self.output = nn.Linear(units, 1)
        self.written = _constant_linear(source_size, _WRITTEN_BIAS) if compares else None

    def source_part(self, states: Float[Tensor, "... H"], keys: Int[Tensor, "..."]) -> Float[Tensor, "... T"]:
        """The source part of the log odds."""
        units: Tensor = self.source(states)
        return units if self.written is None else _side(units, self.written(states), keys)

    def target_part(self, states: Float[Tensor, "... H"], keys: Int[Tensor, "..."]) -> Float[Tensor, "... T"]:
        """The target part of the log odds."""
        units: Tensor = self.target(states)
        return units if self.written is None else _side(units, torch.zeros_like(units[..., :1]), keys)

    def log_odds(self, source: Float[Tensor, "... T"], target: Float[Tensor, "... T"]) -> Float[Tensor, "..."]:
        """Log odds of writing."""
        odds: Tensor = self.output(torch.tanh(self._units(source) + self._units(target)))
        return self._add_written(odds.squeeze(-1), self._written(source), self._written(target))

    @property
    def readout(self) -> tuple[Float[Tensor, " T"], Float[Tensor, " 1"]]:
        """``v`` and ``d``."""
        return self.output.weight[0], self.output.bias

    def all_log_odds(self, source: Float[Tensor, "B I T"], target: Float[Tensor, "B J T"]) -> Float[Tensor, "B I J"]:
        """Log odds of writing in every cell."""
        weight, bias = self.output.weight[0], self.output.bias
        units = self._units(source), self._units(target)
        if source.device.type == "cpu" and source.dtype == weight.dtype and _fits_factors(*units):
            odds: Tensor = _FactoredTanh.apply(*units, weight)  # type: ignore[no-untyped-call]
            return self._add_written(odds + bias, self._written(source)[:, :, None], self._written(target)[:, None])
        return self.log_odds(source[:, :, None], target[:, None])

    def table(self, source: Float[Tensor, "B I T"]) -> "TransitionTable":
        """The source part of every row, prepared once for many prefixes."""
        units = self._units(source)
        on_cpu = source.device.type == "cpu" and not is_traced() and _fits_factors(units)
        return TransitionTable(torch.exp(2 * units) if on_cpu else units, self._written(source), on_cpu)

    def log_odds_by_sentence(
        self, table: "TransitionTable", rows: slice, target: Float[Tensor, "N T"], sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N R"]:
        """Log odds of writing in some rows of the sentence of each prefix; no gradient."""
        source, written = (part[:, rows].index_select(0, sentence) for part in (table.units, table.written))
        units, weight = self._units(target)[:, None], self.output.weight[0]
        if table.is_exponential:
            # tanh(a + c) = 1 - 2 / (1 + exp(2 a) exp(2 c)); an overflow gives the limit, 1.
            r = source.mul_(torch.exp(2 * units)).add_(1.0).reciprocal_()
            odds = torch.matmul(r, weight).mul_(-2.0).add_(weight.sum() + self.output.bias)
        else:
            odds = self.output(torch.tanh(source + units)).squeeze(-1)
        return self._add_written(odds, written, self._written(target)[:, None])

    def _units(self, part: Float[Tensor, "... T"]) -> Float[Tensor, "... U"]:
        return part[..., : self.output.in_features]

    def _written(self, part: Float[Tensor, "... T"]) -> Float[Tensor, "... R"]:
        """The columns after the units: the number to add where keys are equal, and the key; none if not compared."""
        return part[..., self.output.in_features :]

    def _add_written(
        self, odds: Float[Tensor, "..."], one: Float[Tensor, "... R"], other: Float[Tensor, "... R"]
    ) -> Float[Tensor, "..."]:
        """``log odds(i, j) + (w . h_i + e) [key of i = key of j]``, given the columns *written* of both sides."""
        if self.written is None:
            return odds
        return odds + (one[..., 0] + other[..., 0]) * (one[..., 1] == other[..., 1])


class TransitionTable(NamedTuple):
    """The source part of every row: its units, and the columns *written*.

    On a CPU units are stored as ``exp(2 a)``, from which ``tanh`` is computed faster.
    """

    units: Float[Tensor, "B I U"]
    written: Float[Tensor, "... R"]
    is_exponential: bool

    def slice_rows(self, rows: slice) -> "TransitionTable":
        """Some rows of every sentence."""
        return TransitionTable(self.units[:, rows], self.written[:, rows], self.is_exponential)

    def append(self, row: "TransitionTable") -> "TransitionTable":
        """The same with one more row of every sentence; if one of them has no exponentials, the result has none."""
        written = torch.cat([self.written, row.written], 1)
        if self.is_exponential == row.is_exponential or not self.units.shape[1]:
            return TransitionTable(torch.cat([self.units, row.units], 1), written, row.is_exponential)
        one, other = (table.units.log() / 2 if table.is_exponential else table.units for table in (self, row))
        return TransitionTable(torch.cat([one, other], 1), written, is_exponential=False)


class GeometricTransition(nn.Module):
    """One constant probability of writing in every cell.  Thesis: transition model 1."""

    constant_log_odds: Tensor

    def __init__(self, emit_probability: float) -> None:
        super().__init__()
        log_odds = math.log(emit_probability) - math.log1p(-emit_probability)
        self.register_buffer("constant_log_odds", torch.tensor(log_odds))

    def source_part(self, states: Float[Tensor, "... H"], keys: Int[Tensor, "..."]) -> Float[Tensor, "... 0"]:
        """Nothing: the probability does not depend on the source."""
        return states[..., :0]

    def target_part(self, states: Float[Tensor, "... H"], keys: Int[Tensor, "..."]) -> Float[Tensor, "... 0"]:
        """Nothing: the probability does not depend on the target."""
        return states[..., :0]

    @property
    def readout(self) -> tuple[Float[Tensor, " 0"], Float[Tensor, " 1"]]:
        """No weights, and the constant log odds."""
        return self.constant_log_odds.new_zeros(0), self.constant_log_odds[None]

    def log_odds(self, source: Float[Tensor, "... 0"], target: Float[Tensor, "... 0"]) -> Float[Tensor, "..."]:
        """The constant log odds of writing, in the shape of the cells."""
        return self.constant_log_odds + (source + target).sum(-1)

    def table(self, source: Float[Tensor, "B I 0"]) -> TransitionTable:
        """A table of empty rows."""
        return TransitionTable(source, source, is_exponential=False)

    def log_odds_by_sentence(
        self, table: TransitionTable, rows: slice, target: Float[Tensor, "N 0"], sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N R"]:
        """The constant log odds of writing, for every row."""
        return self.constant_log_odds.expand(target.shape[0], table.units[:, rows].shape[1])

    def all_log_odds(self, source: Float[Tensor, "B I 0"], target: Float[Tensor, "B J 0"]) -> Float[Tensor, "B I J"]:
        """The constant log odds of writing, for every cell."""
        return self.log_odds(source[:, :, None], target[:, None])


_WRITTEN_BIAS = -2.0
"""Initial value added to the log odds of writing where the last token written is the source token."""
_LARGEST_UNIT = 40.0
"""Up to this value ``exp`` of twice a unit fits single precision, and so does the product of two or its limit."""


def _fits_factors(*sides: Tensor) -> bool:
    return all(bool(side.abs().amax() < _LARGEST_UNIT) for side in sides if side.numel())


def _constant_linear(size: int, bias: float) -> nn.Linear:
    """A linear layer that starts as a constant."""
    layer = nn.Linear(size, 1)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, bias)
    return layer


def _side(units: Float[Tensor, "... U"], added: Float[Tensor, "... 1"], keys: Int[Tensor, "..."]) -> Tensor:
    """The part of a side: units, the number to add, and the key, in a precision that can hold the key."""
    return torch.cat([units, added, keys[..., None].to(torch.promote_types(units.dtype, torch.float32))], -1)


class _FactoredTanh(torch.autograd.Function):
    """``v . tanh(a_i + c_j)`` for every ``i`` and ``j``, without a transcendental function for every cell.

    tanh(a + c) = 1 - 2 r  with  r = 1 / (1 + exp(2 a) exp(2 c)),  and  d tanh = 4 r (1 - r)
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        r = torch.exp(2 * source)[:, :, None] * torch.exp(2 * target)[:, None]
        r.add_(1.0).reciprocal_()
        ctx.save_for_backward(r, weight)
        return weight.sum() - 2 * torch.mv(r.flatten(0, 2), weight).view(r.shape[:3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r, weight = ctx.saved_tensors
        for_weight = gradient.sum() - 2 * torch.mv(r.flatten(0, 2).mT, gradient.flatten())
        slope = torch.addcmul(r, r, r, value=-1.0)
        for_source = torch.matmul(gradient[:, :, None], slope)[:, :, 0]
        for_target = torch.matmul(gradient.mT[:, :, None], slope.transpose(1, 2))[:, :, 0]
        return for_source.mul_(4 * weight), for_target.mul_(4 * weight), for_weight
