"""``log p(x | y)`` of a channel model while outputs ``y`` grow token by token: ``decode/channel_lattice.py`` in numpy.

forward(j, i)  = logaddexp(forward(j, i-1) + log_write(j, i-1), leave(j-1, i))
leave(j, i)    = forward(j, i) + log_shift(j, i)
last(j, i)     = forward(j, i) + log_write(j, i)              x_i is written at y_j
anywhere(j, i) = log of the sum over j' <= j of last(j', i)   x_i is written at y_j or before
"""

from typing import NamedTuple

import numpy as np

from antiphon.lite.log_space import IMPOSSIBLE, Array, forward_along
from antiphon.lite.token_table import TokenTable, log_normalisers
from antiphon.lite.transducer_graphs import CellFactors, SideState, TransducerGraphs
from antiphon.torch_free.vocab import END, START


class ChannelRows(NamedTuple):
    """Rows of the lattice, one for each of ``N`` output prefixes, with scores as the equations name them."""

    state: SideState
    leave: Array
    last: Array
    anywhere: Array

    def select(self, index: Array) -> "ChannelRows":
        """Some of the rows."""
        return ChannelRows(self.state.select(index), *(part[index] for part in self[1:]))

    def join(self, others: "ChannelRows") -> "ChannelRows":
        """These rows and others."""
        return ChannelRows(self.state.join(others.state), *map(np.concatenate, zip(self[1:], others[1:], strict=True)))


class ChannelLattice:
    """The lattice of ``B`` inputs (columns) and growing outputs (rows), in the ids of the channel."""

    def __init__(self, graphs: TransducerGraphs, inputs: Array, features: Array) -> None:
        self.graphs, self.inputs, self.features = graphs, inputs, features
        read = np.concatenate([np.full((len(inputs), 1), START), inputs[:, :-1]], 1)
        columns, _ = graphs.decode(read, graphs.target_state(features))
        self._tokens, self._transition = TokenTable.of(columns.logits), graphs.transition.table(columns.transition)
        self._of_input = np.take_along_axis(columns.logits, inputs[:, :, None], 2)[:, :, 0]

    def start(self) -> ChannelRows:
        """The row before the first output token of every input, with all probability."""
        nothing = np.full(self.inputs.shape, IMPOSSIBLE)
        leave = nothing.copy()
        leave[:, :1] = 0.0
        return ChannelRows(self.graphs.source_state(self.features), leave, nothing, nothing)

    def append_rows(self, rows: ChannelRows, parent: Array, tokens: Array, sentence: Array) -> ChannelRows:
        """The rows of prefixes that extend ``parent`` by one token each; ``sentence`` is their input."""
        return self._append(rows, parent, tokens, sentence)[0]

    def _append(
        self, rows: ChannelRows, parent: Array, tokens: Array, sentence: Array
    ) -> tuple[ChannelRows, CellFactors]:
        """The same, and what the outputs contribute to the cells of their rows."""
        factors, state = self.graphs.encode_step(tokens, rows.state.select(parent))
        log_write, log_shift = self._cells(factors, tokens == END, sentence)
        log_forward = forward_along(rows.leave[parent], log_write)
        last = log_forward + log_write
        anywhere = np.logaddexp(rows.anywhere[parent], last)
        return ChannelRows(state, log_forward + log_shift, last, anywhere), factors

    def _cells(self, factors: CellFactors, is_end: Array, sentence: Array) -> tuple[Array, Array]:
        """Log probabilities of writing each column's token in a row, and of moving to the next row."""
        transition = self.graphs.transition
        log_odds = transition.log_odds_by_sentence(self._transition, factors.transition, sentence)
        log_emit, log_shift = transition.split_odds(log_odds, is_end[:, None])
        log_z = log_normalisers(self._tokens, factors.logits, sentence)
        from_output = np.take_along_axis(factors.logits, self.inputs[sentence], 1)
        log_token = from_output + self._of_input[sentence] - log_z
        return (log_emit + log_token).astype(np.float64), log_shift.astype(np.float64)
