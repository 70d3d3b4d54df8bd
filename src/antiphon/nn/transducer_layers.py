"""Layers of the transducer: token logits, attention to the source, and the log odds of writing in each cell.

Both transitions split a cell into a source part and a target part, which broadcast against each other, so that a search
can compute each part only once.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from antiphon.device import is_traced, kernels_can_run
from antiphon.nn.recurrent import Dropout

_UNIT = 8
"""GPUs multiply and read rows fastest whose length is a multiple of this."""


class TokenLogits(nn.Linear):
    """A linear layer that, while training on a GPU, pads the vocabulary to a multiple of 8 with impossible tokens.

    With a bias their logits are ``-inf``, without one 0: logits are a sum of parts, one of which has the bias.
    """

    def forward(self, input: Float[Tensor, "... H"], *, add_bias: bool = True) -> Float[Tensor, "... V"]:
        """The logits of every token."""
        more = -self.out_features % _UNIT
        bias = self.bias if add_bias else None
        if not more or not self.training or not kernels_can_run(input):
            return linear(input, self.weight, bias)
        padded = None if bias is None else pad(bias, (0, more), value=float("-inf"))
        return linear(input, pad(self.weight, (0, 0, 0, more)), padded)


class SourceContext(NamedTuple):
    """What prefixes attend to: the encoder's states, and which of them are real."""

    states: Float[Tensor, "N I S"]
    valid: Bool[Tensor, "N I"]


class SourceAttention(nn.Module):
    """Combines the state of each prefix with the attended source states.

    a_ji       softmax over i of  (Q s_j) . h_i / sqrt(size of h)
    c_j        sum over i of  a_ji h_i
    s'_j       tanh(U [s_j; c_j] + u)

    ``s'_j`` depends on the prefix and on the input but not on the path through the lattice, so that the sum over
    alignments stays exact and the softmax factored. All positions are computed at once: nothing feeds back into the
    LSTM. Not in the thesis. Cost: O(I J H) for each pair.
    """

    def __init__(self, hidden_size: int, source_size: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, source_size, bias=False)
        self.combine = nn.Linear(hidden_size + source_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(self, states: Float[Tensor, "N J H"], context: SourceContext) -> Float[Tensor, "N J H"]:
        """``s'_j`` of every prefix."""
        scores = torch.bmm(self.query(states), context.states.transpose(1, 2)) * context.states.shape[2] ** -0.5
        weights = scores.masked_fill(~context.valid[:, None], float("-inf")).softmax(2)
        seen = torch.bmm(weights, context.states)
        combined: Tensor = self.dropout(torch.tanh(self.combine(torch.cat([states, seen], 2))))
        return combined


class NeuralTransition(nn.Module):
    """``log odds(i, j) = v . tanh(T_h h_i + T_s s_j + c) + d``.  Thesis: transition model 2, the ``+`` models.

    The part of a side is its units, ``T_h h_i`` or ``T_s s_j + c``.
    """

    def __init__(self, source_size: int, target_size: int, units: int) -> None:
        super().__init__()
        self.source = nn.Linear(source_size, units, bias=False)
        self.target = nn.Linear(target_size, units)
        self.output = nn.Linear(units, 1)

    def source_part(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... U"]:
        """The source part of the log odds."""
        units: Tensor = self.source(states)
        return units

    def target_part(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... U"]:
        """The target part of the log odds."""
        units: Tensor = self.target(states)
        return units

    def log_odds(self, source: Float[Tensor, "... U"], target: Float[Tensor, "... U"]) -> Float[Tensor, "..."]:
        """Log odds of writing."""
        odds: Tensor = self.output(torch.tanh(source + target))
        return odds.squeeze(-1)

    @property
    def readout(self) -> tuple[Float[Tensor, " U"], Float[Tensor, " 1"]]:
        """``v`` and ``d``."""
        return self.output.weight[0], self.output.bias

    def all_log_odds(self, source: Float[Tensor, "B I U"], target: Float[Tensor, "B J U"]) -> Float[Tensor, "B I J"]:
        """Log odds of writing in every cell."""
        weight, bias = self.output.weight[0], self.output.bias
        if source.device.type == "cpu" and source.dtype == weight.dtype and _fits_factors(source, target):
            odds: Tensor = _FactoredTanh.apply(source, target, weight)  # type: ignore[no-untyped-call]
            return odds + bias
        return self.log_odds(source[:, :, None], target[:, None])

    def table(self, source: Float[Tensor, "B I U"]) -> "TransitionTable":
        """The source part of every row, prepared once for many prefixes."""
        on_cpu = source.device.type == "cpu" and not is_traced() and _fits_factors(source)
        return TransitionTable(torch.exp(2 * source) if on_cpu else source, on_cpu)

    def log_odds_by_sentence(
        self, table: "TransitionTable", target: Float[Tensor, "N U"], sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N I"]:
        """Log odds of writing in every row of the sentence of each prefix; no gradient."""
        source = table.units.index_select(0, sentence)
        units, weight = target[:, None], self.output.weight[0]
        if not table.is_exponential:
            return self.log_odds(source, units)
        # tanh(a + c) = 1 - 2 / (1 + exp(2 a) exp(2 c)); an overflow gives the limit, 1.
        r = source.mul_(torch.exp(2 * units)).add_(1.0).reciprocal_()
        return torch.matmul(r, weight).mul_(-2.0).add_(weight.sum() + self.output.bias)


class TransitionTable(NamedTuple):
    """The units of every row; on a CPU they are stored as ``exp(2 a)``, from which ``tanh`` is computed faster."""

    units: Float[Tensor, "B I U"]
    is_exponential: bool

    def slice_rows(self, rows: slice) -> "TransitionTable":
        """Some rows of every sentence."""
        return TransitionTable(self.units[:, rows], self.is_exponential)

    def append(self, row: "TransitionTable") -> "TransitionTable":
        """The same with one more row of every sentence; if one of them has no exponentials, the result has none."""
        if self.is_exponential == row.is_exponential or not self.units.shape[1]:
            return TransitionTable(torch.cat([self.units, row.units], 1), row.is_exponential)
        one, other = (table.units.log() / 2 if table.is_exponential else table.units for table in (self, row))
        return TransitionTable(torch.cat([one, other], 1), is_exponential=False)


class GeometricTransition(nn.Module):
    """One constant probability of writing in every cell.  Thesis: transition model 1."""

    constant_log_odds: Tensor

    def __init__(self, write_probability: float) -> None:
        super().__init__()
        log_odds = math.log(write_probability) - math.log1p(-write_probability)
        self.register_buffer("constant_log_odds", torch.tensor(log_odds))

    def source_part(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... 0"]:
        """Nothing: the probability does not depend on the source."""
        return states[..., :0]

    def target_part(self, states: Float[Tensor, "... H"]) -> Float[Tensor, "... 0"]:
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
        return TransitionTable(source, is_exponential=False)

    def log_odds_by_sentence(
        self, table: TransitionTable, target: Float[Tensor, "N 0"], sentence: Int[Tensor, " N"]
    ) -> Float[Tensor, "N I"]:
        """The constant log odds of writing, for every row."""
        return self.constant_log_odds.expand(target.shape[0], table.units.shape[1])

    def all_log_odds(self, source: Float[Tensor, "B I 0"], target: Float[Tensor, "B J 0"]) -> Float[Tensor, "B I J"]:
        """The constant log odds of writing, for every cell."""
        return self.log_odds(source[:, :, None], target[:, None])


_LARGEST_UNIT = 40.0
"""Up to this value ``exp`` of twice a unit fits single precision, and so does the product of two or its limit."""


def _fits_factors(*sides: Tensor) -> bool:
    return all(bool(side.abs().amax() < _LARGEST_UNIT) for side in sides if side.numel())


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
