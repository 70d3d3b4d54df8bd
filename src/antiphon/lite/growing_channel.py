"""The channel's lattice of one input that grows as its outputs do: a row for every node of a tree of outputs.

The same as ``decode/channel_lattice.py``, whose equations ``channel_rows.py`` repeats.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from antiphon.lite.channel_rows import ChannelLattice, ChannelRows
from antiphon.lite.log_space import IMPOSSIBLE, Array
from antiphon.lite.transducer_graphs import CellFactors, TransducerGraphs
from antiphon.torch_free.vocab import START

_NEGLIGIBLE = 30.0
"""Parts of the channel's probability this many nats behind the rest are dropped."""


class GrowingRows(NamedTuple):
    """Rows, and what their outputs contribute to the cells of columns that are still to come."""

    rows: ChannelRows
    factors: CellFactors

    def select(self, index: Array) -> "GrowingRows":
        """Some of the rows."""
        return GrowingRows(self.rows.select(index), self.factors.select(index))

    def join(self, others: "GrowingRows") -> "GrowingRows":
        """These rows and others."""
        return GrowingRows(self.rows.join(others.rows), self.factors.join(others.factors))


class GrowingLattice(ChannelLattice):
    """The lattice of one input that grows; it starts without any tokens."""

    def __init__(self, graphs: TransducerGraphs, features: Array) -> None:
        super().__init__(graphs, np.full((1, 1), START), features)
        self._next, self._decoder = graphs.decode(self.inputs, graphs.target_state(features))
        self._keep_columns(slice(0))

    def first_row(self) -> GrowingRows:
        """The row before the first output token, with all probability."""
        return GrowingRows(self.start(), CellFactors(self._next.logits[:, 0], self._next.transition[:, 0]))

    def extend(self, rows: GrowingRows, parent: Array, tokens: Array) -> GrowingRows:
        """The rows of prefixes that extend ``parent`` by one token each."""
        return GrowingRows(*self._append(rows.rows, parent, tokens, np.zeros(len(parent), np.int64)))

    def append_column(
        self,
        rows: GrowingRows,
        token: int,
        parent: Sequence[int],
        levels: Sequence[Sequence[int]],
        empty_output: int | None,
    ) -> GrowingRows:
        """The rows of a tree with one more input token, level by level from the top.

        ``parent`` is -1 at the root; ``empty_output`` is the node without tokens, None once it is dropped::

            forward(n, i) = logaddexp(last(n, i-1), leave(parent of n, i))
        """
        is_first = not self.inputs.shape[1]
        self._read(token)
        N = len(parent)
        log_write, log_shift = self._last_cells(rows.factors)
        before = np.full(N, IMPOSSIBLE) if is_first else rows.rows.last[:, -1]
        leave, last, anywhere = (np.full(N, IMPOSSIBLE) for _ in range(3))
        for level in levels:
            nodes = np.array(level)
            parents = np.array(parent)[nodes]
            log_forward = np.logaddexp(before[nodes], np.where(parents >= 0, leave[parents], IMPOSSIBLE))
            last[nodes] = log_forward + log_write[nodes]
            leave[nodes] = log_forward + log_shift[nodes]
            anywhere[nodes] = np.logaddexp(np.where(parents >= 0, anywhere[parents], IMPOSSIBLE), last[nodes])
            if empty_output in level:
                last[empty_output] = anywhere[empty_output] = IMPOSSIBLE
                leave[empty_output] = 0.0 if is_first else IMPOSSIBLE
        column = (leave, last, anywhere)
        scores = (np.concatenate([old, new[:, None]], 1) for old, new in zip(rows.rows[1:], column, strict=True))
        return rows._replace(rows=ChannelRows(rows.rows.state, *scores))

    def _last_cells(self, factors: CellFactors) -> tuple[Array, Array]:
        """Log probabilities of writing the last column's token, and of moving to the next row, in every row."""
        everything = self.inputs, self._tokens, self._transition, self._of_input
        self._keep_columns(slice(-1, None))
        N = len(factors.logits)
        log_write, log_shift = self._cells(factors, np.zeros(N, bool), np.zeros(N, np.int64))
        self.inputs, self._tokens, self._transition, self._of_input = everything
        return log_write[:, 0], log_shift[:, 0]

    def _read(self, token: int) -> None:
        """Appends one column, and what the one after it contributes."""
        column, given = self._next, np.array([[token]])
        self._tokens = self._tokens.append(column.logits)
        self._transition = self._transition.append(self.graphs.transition.table(column.transition))
        self.inputs = np.concatenate([self.inputs, given], 1)
        self._of_input = np.concatenate([self._of_input, column.logits[:, :, token]], 1)
        self._next, self._decoder = self.graphs.decode(given, self._decoder)

    def drop_columns(self, rows: GrowingRows) -> GrowingRows:
        """Drops the columns that no row depends on."""
        if not self.inputs.shape[1]:
            return rows
        leave = rows.rows.leave
        matters = (leave >= leave.max(1, keepdims=True) - _NEGLIGIBLE).any(0)
        kept = slice(int(matters.argmax()), None)
        self._keep_columns(kept)
        return rows._replace(rows=ChannelRows(rows.rows.state, *(part[:, kept] for part in rows.rows[1:])))

    def _keep_columns(self, kept: slice) -> None:
        self.inputs, self._of_input = self.inputs[:, kept], self._of_input[:, kept]
        self._tokens, self._transition = self._tokens.slice_rows(kept), self._transition.slice_rows(kept)

    def passes(self, rows: GrowingRows, node: int, below: int) -> bool:
        """Whether a node's row still contributes to those below it."""
        leave = rows.rows.leave
        return not leave.shape[1] or bool(leave[node, -1] >= leave[below].max() - _NEGLIGIBLE)
