"""``log p(x | y)`` of a channel model while outputs ``y`` and inputs ``x`` grow token by token.

The channel is a transducer from outputs to inputs. Its lattice has a row for every output token and a column for every
input token. Appending a token to an output adds one row, computed from its parent's row::

    forward(j, i)  = logaddexp(forward(j, i-1) + log_write(j, i-1), read(j-1, i))
    read(j, i)    = forward(j, i) + log_read(j, i)
    last(j, i)    = forward(j, i) + log_write(j, i)              x_i is written at y_j

One more input token adds a column to all rows of a tree of outputs, from the top of the tree downwards. No prefix is
scored twice and no cell is computed twice.

Thesis: chapter 5, there by a forward pass for every prefix.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.lattice.paths import IMPOSSIBLE, forward_along
from antiphon.models.left_to_right import select
from antiphon.models.transducer import CellFactors, SideState, Transducer
from antiphon.nn.factored_softmax import TokenTable, log_normalisers_by_sentence
from antiphon.torch_free.vocab import END, START

_NEGLIGIBLE = 30.0
"""Parts of the channel's probability this many nats behind the rest are dropped."""


class RowScores(NamedTuple):
    """Scores of the cells of ``N`` rows, as the equations above name them."""

    read: Float[Tensor, "N I"]
    last: Float[Tensor, "N I"]


class ChannelRows(NamedTuple):
    """Rows of the lattice, one for each of ``N`` output prefixes; factors are kept if columns will be added."""

    state: SideState
    scores: RowScores
    factors: CellFactors | None


class ChannelLattice:
    """The lattice of ``B`` inputs (columns) and growing outputs (rows); ``grows`` if inputs grow too.

    ``features`` are those of each input, in the ids of the channel.
    """

    def __init__(
        self, model: Transducer, inputs: Int[Tensor, "B I"], features: Int[Tensor, "B F"], *, grows: bool = False
    ) -> None:
        self.model, self.inputs, self.features, self.grows = model, inputs, features, grows
        start = inputs.new_full((inputs.shape[0], 1), START)
        given = torch.cat([start, inputs], 1)
        columns, self._decoder = model.decode_prefix(given if grows else given[:, :-1], model.target_state(features))
        self.next_column = CellFactors(*(part[:, -1:] for part in columns))
        if grows:  # the last column of factors belongs to an input token that is still to come
            columns = CellFactors(*(part[:, :-1] for part in columns))
        self.token_table, self.transition = TokenTable.of(columns.logits), model.transition.table(columns.transition)

    def start(self) -> ChannelRows:
        """The row before the first output token of every input, with all probability."""
        B, I = self.inputs.shape
        nothing = self.token_table.logits.new_full((B, I), IMPOSSIBLE, dtype=torch.float64)
        read = nothing.clone()
        read[:, :1] = 0.0
        factors = CellFactors(self.next_column.logits[:, 0], self.next_column.transition[:, 0]) if self.grows else None
        return ChannelRows(self.model.source_state(self.features), RowScores(read, nothing), factors)

    def append_rows(
        self, rows: ChannelRows, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"], sentence: Int[Tensor, " M"]
    ) -> ChannelRows:
        """The rows of prefixes that extend ``parent`` by one token each; ``sentence`` is their input."""
        factors, state = self.model.encode_step(tokens, select(rows.state, parent))
        log_write, log_read = self._cells(factors, slice(None), tokens == END, sentence)
        log_forward = forward_along(rows.scores.read[parent], log_write)
        scores = RowScores(log_forward + log_read, log_forward + log_write)
        return ChannelRows(state, scores, factors if self.grows else None)

    def append_column(
        self,
        rows: ChannelRows,
        token: int,
        parent: Sequence[int],
        levels: Sequence[Sequence[int]],
        empty_output: int | None,
    ) -> ChannelRows:
        """The rows of a tree with one more input token, level by level from the top.

        ``parent`` is -1 at the root; ``empty_output`` is the node without tokens, None once it is pruned::

            forward(n, i) = logaddexp(last(n, i-1), read(parent of n, i))
        """
        is_first = not self.inputs.shape[1]
        self._read(token)
        assert rows.factors is not None
        nodes = torch.arange(len(parent), device=self.inputs.device)
        none_ends = torch.zeros_like(nodes, dtype=torch.bool)
        cells = self._cells(rows.factors, slice(-1, None), none_ends, torch.zeros_like(nodes))
        log_write, log_read = (cell[:, 0] for cell in cells)
        before = rows.scores.last.new_full((len(parent),), IMPOSSIBLE) if is_first else rows.scores.last[:, -1]
        read, last = (torch.full_like(before, IMPOSSIBLE) for _ in range(2))
        for level in levels:
            parents = torch.tensor([parent[node] for node in level], device=nodes.device)
            log_forward = torch.logaddexp(before[level], torch.where(parents >= 0, read[parents], IMPOSSIBLE))
            last[level] = log_forward + log_write[level]
            read[level] = log_forward + log_read[level]
            if empty_output in level:
                last[empty_output] = IMPOSSIBLE
                read[empty_output] = 0.0 if is_first else IMPOSSIBLE
        scores = (torch.cat([old, new[:, None]], 1) for old, new in zip(rows.scores, (read, last), strict=True))
        return rows._replace(scores=RowScores(*scores))

    def drop_columns(self, rows: ChannelRows) -> ChannelRows:
        """Drops the columns that no row depends on."""
        if not self.inputs.shape[1]:
            return rows
        read = rows.scores.read
        matters = (read >= read.amax(1, keepdim=True) - _NEGLIGIBLE).any(0)
        kept = slice(int(matters.int().argmax()), None)
        self.inputs, self.transition = self.inputs[:, kept], self.transition.slice_rows(kept)
        self.token_table = self.token_table.slice_rows(kept)
        return rows._replace(scores=RowScores(*(part[:, kept] for part in rows.scores)))

    def passes(self, rows: ChannelRows, node: int, below: int) -> bool:
        """Whether a node's row still contributes to those below it."""
        read = rows.scores.read
        return not read.shape[1] or bool(read[node, -1] >= read[below].amax() - _NEGLIGIBLE)

    def _read(self, token: int) -> None:
        """Appends one column, and the factors of the one after it."""
        column = self.next_column
        self.token_table = self.token_table.append(column.logits)
        self.transition = self.transition.append(self.model.transition.table(column.transition))
        given = self.inputs.new_tensor([[token]])
        self.inputs = torch.cat([self.inputs, given], 1)
        self.next_column, self._decoder = self.model.decode_prefix(given, self._decoder)

    def _cells(
        self, factors: CellFactors, columns: slice, is_end: Bool[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N I"], Float[Tensor, "N I"]]:
        """Log probabilities of writing each column's token in a row, and of moving to the next row, as doubles."""
        table, inputs = self.token_table.slice_rows(columns), self.inputs[:, columns]
        transition = self.transition.slice_rows(columns)
        log_odds = self.model.transition.log_odds_by_sentence(transition, factors.transition, sentence)
        log_emit, log_read = self.model.split_odds(log_odds, is_end[:, None])
        log_z = log_normalisers_by_sentence(table, factors.logits, sentence)
        from_input = table.logits.gather(2, inputs[:, :, None])[:, :, 0]
        log_token = factors.logits.gather(1, inputs[sentence]) + from_input[sentence] - log_z
        return (log_emit + log_token).double(), log_read.double()
