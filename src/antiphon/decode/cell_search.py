"""The thesis's search for a noisy channel: a beam in every cell, and the direct model by its best path.

Cell ``(i, j)`` holds outputs of ``j`` tokens whose last token was written in input row ``i``. The objective of one is

    O(i, y) = l1 log q(y, best path to row i | x) + l2 log p(x_1^i | y_1^j) + l3 log p(y_1^j) + l4 j

Outputs of the cells before, in rows ``k <= i``, are extended by every token. The direct model proposes ``proposals``
(the thesis's K1) of them, of which the ``beam`` (K2) with the highest objective are kept::

    propose(i, y) = max over k of O(k, y_1^(j-1)) + log q(row i after row k) + log q(y_j | row i)

So proposals are ranked by the whole objective so far, and the direct model counts fully in them, whatever its weight.
The answer is the best output that ends in the last row, whatever its length. It is written for clarity, not speed:
``noisy_channel.py`` has the search that is used otherwise.

What the thesis leaves open: paths that lead to a cell with the same output are one proposal; outputs that have ended
take no place in a beam; the search stops where no unfinished output can become better than those that have ended.

Thesis: section 5.3, Algorithm 2. Cost: one channel row for every distinct output of a column.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.decode.noisy_channel import NoisyChannelRescorer, Pending, RescorerState
from antiphon.decode.path_search import Column, PathSearch, SearchedSource, Visited, searched_sources
from antiphon.exceptions import RecipeError
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import select
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import SideState, Transducer
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.vocab import END


class Cells(NamedTuple):
    """The distinct outputs of one length, their objective in each row, and what channel and language model say."""

    column: Column
    value: Float[Tensor, "I M"]
    rescored: RescorerState


class Proposals(NamedTuple):
    """Extensions of every row: the prefix, its new token, and the direct model's best path."""

    log_direct: Float[Tensor, "I W"]
    parent: Int[Tensor, "I W"]
    token: Int[Tensor, "I W"]


class Scored(NamedTuple):
    """The proposals with their features and objective; ``slot`` is the extension in ``rescored`` that each is."""

    proposals: Proposals
    slot: Int[Tensor, "I W"]
    features: Float[Tensor, "I W 4"]
    value: Float[Tensor, "I W"]
    rescored: RescorerState


@torch.inference_mode()
def search_cells(
    model: NoisyChannel, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, each with its best path and its four features."""
    if prefix:
        raise RecipeError('search.over = "cells": no prefix can be given, expected a search over outputs')
    if not isinstance(model.direct, Transducer):
        raise RecipeError('search.over = "cells": the direct model is an ensemble, expected a single transducer')
    rescorer = NoisyChannelRescorer(model, batch, settings)
    sources = searched_sources(model.direct, batch, settings)
    return [CellSearch(model.direct, source, settings, rescorer, b).run() for b, source in enumerate(sources)]


class CellSearch:
    """One search for the outputs of one source, the ``sentence`` of the rescorer's batch."""

    def __init__(
        self,
        direct: Transducer,
        source: SearchedSource,
        settings: BeamSettings,
        rescorer: NoisyChannelRescorer,
        sentence: int,
    ) -> None:
        self.paths = PathSearch(direct, source, settings)
        self.settings, self.rescorer, self.model = settings, rescorer, rescorer.model
        self.sentence = torch.tensor([sentence], device=self.paths.device)
        self.finished: list[Hypothesis] = []

    def run(self) -> list[Hypothesis]:
        """The best outputs."""
        column = self.paths.first_column()
        before = self.rescorer.select(self.rescorer.start(static_shapes=False), self.sentence)
        cells: Cells | None = Cells(column, column.arrive, before)
        length = 0
        while cells is not None:
            length += 1
            cells = self._step(cells, length)
        return self.finished

    def _step(self, cells: Cells, length: int) -> Cells | None:
        """The cells of the next column; None if no better output is possible."""
        column = cells.column
        target, state = self.paths.decode(column)
        log_write, origin = self.paths.log_write(column.arrive, target.transition[:, 0])
        log_propose, _ = self.paths.log_write(cells.value, target.transition[:, 0])
        self.paths.visited.append(Visited(column.token.tolist(), column.parent.tolist(), origin))
        is_last = length == self.paths.limit
        scored = self._score(cells, self._propose(log_write, log_propose, target.logits[:, 0], is_last=is_last), length)
        self._finish(scored)
        kept = self._keep(scored)
        if not kept.any() or self._is_done(scored.features[kept], length):
            return None
        return self._next_cells(scored, kept, state)

    def _propose(
        self,
        log_write: Float[Tensor, "I M"],
        log_propose: Float[Tensor, "I M"],
        logits: Float[Tensor, "M V"],
        *,
        is_last: bool,
    ) -> Proposals:
        """The best ``proposals`` extensions of every row."""
        width = min(max(self.settings.proposals, self.settings.beam), log_write.shape[1] * self.paths.V)
        found, indices = [], []
        for rows, log_token in self.paths.log_tokens(logits, is_last=is_last):
            index = (log_propose[rows, :, None] + log_token).flatten(1).topk(width, 1).indices
            found.append((log_write[rows, :, None] + log_token).flatten(1).gather(1, index))
            indices.append(index)
        return Proposals(torch.cat(found), *self.paths.split_index(torch.cat(indices)))

    def _score(self, cells: Cells, proposals: Proposals, length: int) -> Scored:
        """The proposals with the scores of all models; each distinct output is read once."""
        key, slot = (proposals.parent * self.paths.ids + proposals.token).unique(return_inverse=True)
        parent, token = key // self.paths.ids, key % self.paths.ids
        sentence = self.sentence.expand(len(cells.column.token))
        after = self.rescorer.extend(cells.rescored, cells.column.token, parent, token, sentence)
        log_channel = self._log_channel(after, proposals.token == END, slot)
        lengths = torch.full_like(proposals.log_direct, length)
        features = torch.stack([proposals.log_direct, log_channel, after.log_language[slot], lengths], 2)
        value = self.model.objective(features)
        value = value.masked_fill(proposals.log_direct == IMPOSSIBLE, IMPOSSIBLE)
        return Scored(proposals, slot, features, value, after)

    def _log_channel(
        self, after: RescorerState, ends: Bool[Tensor, "I W"], slot: Int[Tensor, "I W"]
    ) -> Float[Tensor, "I W"]:
        """``log p(x_1^i | y_1^j)`` in the row ``i`` of each proposal, of the whole input if the output ends."""
        if after.rows is None:
            return torch.zeros(slot.shape, dtype=torch.float64, device=slot.device)
        last = after.rows.scores.last
        row = torch.arange(self.paths.I, device=slot.device)[:, None]
        whole = last[:, self.paths.I - 1]
        return torch.where(ends, whole[slot], last[slot, row])

    def _finish(self, scored: Scored) -> None:
        """Adds the outputs that end here, in the last row, and keeps the best."""
        parents, tokens = scored.proposals.parent[-1].tolist(), scored.proposals.token[-1].tolist()
        rows = zip(parents, tokens, scored.value[-1].tolist(), scored.features[-1].tolist(), strict=True)
        for parent, token, value, features in rows:
            if token == END and value > IMPOSSIBLE:
                written, path = self.paths.path(parent)
                alignment = (*path, self.paths.I - 1)
                self.finished.append(
                    Hypothesis((*written, END), value, features[0], alignment=alignment, features=tuple(features))
                )
        self.finished = sorted(self.finished, key=lambda each: -each.score)[: self.settings.nbest]

    def _keep(self, scored: Scored) -> Bool[Tensor, "I W"]:
        """Which proposals are kept: of every row the best ``beam`` that have not ended."""
        value = scored.value.masked_fill(scored.proposals.token == END, IMPOSSIBLE)
        best = value.topk(min(self.settings.beam, value.shape[1]), 1).indices
        return torch.zeros_like(value, dtype=torch.bool).scatter(1, best, value=True) & (value > IMPOSSIBLE)

    def _is_done(self, features: Float[Tensor, "N 4"], length: int) -> bool:
        """Whether no unfinished output can still enter the list."""
        if len(self.finished) < self.settings.nbest:
            return False
        now, limit = features.new_tensor(length + 1.0), features.new_tensor(self.paths.limit)
        return self.finished[-1].score >= self.rescorer.bound(features, now, limit).max().item()

    def _next_cells(self, scored: Scored, kept: Bool[Tensor, "I W"], state: SideState) -> Cells:
        """The distinct outputs that are kept somewhere, each with its scores in every row."""
        rows, _ = kept.nonzero(as_tuple=True)
        extension, slot = scored.slot[kept].unique(return_inverse=True)
        arrive, value = torch.full((2, self.paths.I, len(extension)), IMPOSSIBLE, dtype=torch.float64)
        arrive, value = arrive.to(rows.device), value.to(rows.device)
        arrive[rows, slot], value[rows, slot] = scored.proposals.log_direct[kept], scored.value[kept]
        parent, token = torch.zeros_like(extension), torch.zeros_like(extension)
        parent[slot], token[slot] = scored.proposals.parent[kept], scored.proposals.token[kept]
        column = Column(token, parent, select(state, parent), arrive)
        everything = Pending(scored.rescored, torch.arange(len(scored.rescored.log_language), device=rows.device))
        return Cells(column, value, self.rescorer.select(everything, extension))
