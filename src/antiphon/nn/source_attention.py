"""Attention of a transducer's decoder over the whole source.

    a_ji       softmax over i of  (Q s_j) . h_i / sqrt(size of h)
    c_j        sum over i of  a_ji h_i
    s'_j       tanh(U [s_j; c_j] + u)

``s'_j`` depends on the prefix and on the input but not on the path through the lattice, so that the sum over
alignments stays exact and the softmax factored. All positions are computed at once: nothing feeds back into the LSTM.
Not in the thesis. Cost: O(I J H) for each pair.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.nn.dropout import Dropout


class SourceContext(NamedTuple):
    """What prefixes attend to: the encoder's states, and which of them are real."""

    states: Float[Tensor, "N I S"]
    valid: Bool[Tensor, "N I"]

    def select(self, index: Int[Tensor, " M"]) -> "SourceContext":
        """The sources of some prefixes."""
        return SourceContext(self.states.index_select(0, index), self.valid.index_select(0, index))


class SourceAttention(nn.Module):
    """Combines the state of each prefix with the attended source states."""

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
