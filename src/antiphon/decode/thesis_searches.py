"""The thesis's searches, over outputs *and* alignments: one in the transducer, and one with a noisy channel.

Both are kept for comparison with ``beam_search.py``, which sums over alignments, and with ``noisy_channel.py``: written
for clarity, not speed.

**In the transducer** an output is scored by its best path.

Column ``j`` holds, for every input row ``i``, the ``beam`` best outputs of length ``j`` whose last token was written in
row ``i``. One step computes the next column::

    forward(i, m)  = max over r <= i of  arrive(r, m) + sum of log read(r..i-1, m)
    write(i, m)    = forward(i, m) + log emit(i, m)
    score(i, m, y) = write(i, m) + log token(y | i, m)          keep the best ``beam`` of (m, y) for every i

where ``m`` indexes the distinct prefixes of the column. The end symbol can be written only in the last row.

Thesis: section 4.5; ``beam = 1`` is its Algorithm 1, a wider one its beam search.

**With a noisy channel** there is a beam in every cell, and the direct model counts by its best path. Cell ``(i, j)``
holds outputs of ``j`` tokens whose last token was written in input row ``i``. The objective of one is

    O(i, y) = l1 log q(y, best path to row i | x) + l2 log p(x_1^i | y_1^j) + l3 log p(y_1^j) + l4 j

Outputs of the cells before, in rows ``k <= i``, are extended by every token. The direct model proposes ``proposals``
(the thesis's K1) of them, of which the ``beam`` (K2) with the highest objective are kept::

    propose(i, y) = max over k of O(k, y_1^(j-1)) + log q(row i after row k) + log q(y_j | row i)

So proposals are ranked by the whole objective so far, and the direct model counts fully in them, whatever its weight.
The answer is the best output that ends in the last row, whatever its length.

What the thesis leaves open: paths that lead to a cell with the same output are one proposal; outputs that have ended
take no place in a beam; the search stops where no unfinished output can become better than those that have ended.

Thesis: section 5.3, Algorithm 2. Cost: one channel row for every distinct output of a column.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.decode.noisy_channel import NoisyChannelRescorer, Pending, RescorerState
from antiphon.exceptions import RecipeError
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import is_no_end, never_written, select
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import CellFactors, SideState, Transducer
from antiphon.nn.copying import add_row_copy
from antiphon.nn.transducer_layers import SourceContext
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.vocab import END, START

_ELEMENTS_AT_ONCE = 2**22
"""Elements of the token scores that are computed at once."""


class SearchedSource(NamedTuple):
    """One source as a search sees it: its factors, the words it can copy, and the most tokens of an output."""

    factors: CellFactors
    copied: Int[Tensor, " I"]
    context: SourceContext | None
    first: SideState
    limit: int


class Column(NamedTuple):
    """The ``M`` distinct prefixes of one length: their last tokens, and their scores in each row."""

    token: Int[Tensor, " M"]
    parent: Int[Tensor, " M"]
    state: SideState
    arrive: Float[Tensor, "I M"]


class Entries(NamedTuple):
    """The best extensions of every row: their scores by best paths, the prefixes that they extend, and their tokens."""

    score: Float[Tensor, "I W"]
    parent: Int[Tensor, "I W"]
    token: Int[Tensor, "I W"]


class Visited(NamedTuple):
    """The record of a column: tokens, parents, and the row of arrival of each prefix that writes next in each row."""

    token: list[int]
    parent: list[int]
    origin: Int[Tensor, "I M"]


@torch.inference_mode()
def search_paths(
    model: Transducer, batch: Batch, settings: BeamSettings, prefix: Sequence[int] = ()
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first, each with its best path."""
    if prefix:
        raise RecipeError('search.over = "paths": no prefix can be given, expected a search over outputs')
    return [PathSearch(model, source, settings).run() for source in searched_sources(model, batch, settings)]


def searched_sources(model: Transducer, batch: Batch, settings: BeamSettings) -> Iterator[SearchedSource]:
    """Every source of a batch, encoded, without padding."""
    factors, context = model.encode(batch)
    first = model.target_state(batch.features)
    limits = settings.length_limits(batch.source_lengths).long().tolist()
    for b, length in enumerate(batch.source_lengths.tolist()):
        index = torch.tensor([b], device=batch.source.device)
        source = CellFactors(*(side[b, :length] for side in factors))
        copied = model.copied_words(batch)[b, :length]
        yield SearchedSource(source, copied, select(context, index), select(first, index), limits[b])


class PathSearch:
    """One search for the outputs of one source."""

    def __init__(self, model: Transducer, source: SearchedSource, settings: BeamSettings) -> None:
        self.model, self.settings = model, settings
        self.source, self.copied, self.context, self.first, self.limit = source
        self.I, self.V = self.source.logits.shape
        self.ids = self.V + self.I  # more than the highest id of a copied word
        self.device = self.source.logits.device
        self.visited: list[Visited] = []
        self.finished: list[Hypothesis] = []

    def run(self) -> list[Hypothesis]:
        """The best outputs."""
        column: Column | None = self.first_column()
        length = 0
        while column is not None:
            length += 1
            column = self._step(column, length)
        return self.finished

    def first_column(self) -> Column:
        """The empty output, before the first row."""
        nothing = torch.zeros(1, dtype=torch.long, device=self.device)
        arrive = torch.full((self.I, 1), IMPOSSIBLE, dtype=torch.float64, device=self.device)
        arrive[0] = 0.0
        return Column(nothing + START, nothing, self.first, arrive)

    def _step(self, column: Column, length: int) -> Column | None:
        """The next column; None if no better output is possible."""
        target, state = self.decode(column)
        log_write, origin = self.log_write(column.arrive, target.transition[:, 0])
        self.visited.append(Visited(column.token.tolist(), column.parent.tolist(), origin))
        entries = self._best_entries(log_write, target.logits[:, 0], is_last=length == self.limit)
        self._finish(entries, length)
        goes_on = (entries.token != END) & (entries.score > IMPOSSIBLE)
        if not goes_on.any() or self._is_done(entries.score[goes_on].amax(), length):
            return None
        return self._next_column(entries, goes_on, state)

    def decode(self, column: Column) -> tuple[CellFactors, SideState]:
        """What the decoder says after the prefixes of a column, and its states."""
        context = select(self.context, torch.zeros_like(column.token))
        return self.model.decode_prefix(column.token[:, None], column.state, context)

    def log_write(
        self, arrive: Float[Tensor, "I M"], units: Float[Tensor, "M T"]
    ) -> tuple[Float[Tensor, "I M"], Int[Tensor, "I M"]]:
        """Best scores of writing next in each row, and the rows of arrival that they come from.

        With ``S(i)`` the sum of log read before ``i``: ``forward(i) = S(i) + max over r <= i of arrive(r) - S(r)``.
        """
        log_odds = self.model.transition.log_odds(self.source.transition[:, None], units[None])
        in_last_row = (torch.arange(self.I, device=self.device) == self.I - 1)[:, None]
        log_emit, log_read = self.model.split_odds(log_odds.double(), in_last_row)
        reads_before = log_read.cumsum(0) - log_read
        best, origin = (arrive - reads_before).cummax(0)
        return best + reads_before + log_emit, origin

    def _best_entries(self, log_write: Float[Tensor, "I M"], logits: Float[Tensor, "M V"], *, is_last: bool) -> Entries:
        """The best ``beam`` extensions of every row, at most ``threshold`` behind the overall best."""
        width = min(self.settings.beam, log_write.shape[1] * self.V)
        scores, indices = [], []
        for rows, log_token in self.log_tokens(logits, is_last=is_last):
            score, index = (log_write[rows, :, None] + log_token).flatten(1).topk(width, 1)
            scores.append(score)
            indices.append(index)
        score, index = torch.cat(scores), torch.cat(indices)
        score = score.masked_fill(score < score.amax() - self.settings.threshold, IMPOSSIBLE)
        return Entries(score, *self.split_index(index))

    def log_tokens(
        self, logits: Float[Tensor, "M V"], *, is_last: bool
    ) -> Iterator[tuple[Int[Tensor, " R"], Float[Tensor, "R M V"]]]:
        """Log probabilities of every token after each prefix, by blocks of rows; only the end symbol comes last."""
        for rows in torch.arange(self.I, device=self.device).split(max(1, _ELEMENTS_AT_ONCE // logits.numel())):
            log_token = (self.source.logits[rows, None] + logits).log_softmax(2)
            if self.model.copies_words:
                log_token = add_row_copy(log_token, self.copied[rows, None])
            log_token[:, :, never_written(self.model)] = IMPOSSIBLE
            log_token[rows < self.I - 1, :, END] = IMPOSSIBLE
            yield rows, log_token.masked_fill(is_no_end(log_token), IMPOSSIBLE) if is_last else log_token

    def split_index(self, index: Int[Tensor, "I W"]) -> tuple[Int[Tensor, "I W"], Int[Tensor, "I W"]]:
        """The prefix and the token of an index into all extensions of a row."""
        token = index % self.V
        if self.model.copies_words:
            token = torch.where(token == self.model.target_size, self.copied[:, None], token)
        return index // self.V, token

    def _finish(self, entries: Entries, length: int) -> None:
        """Adds the outputs that end here, in the last row, and keeps the best."""
        ends = (entries.token[-1] == END) & (entries.score[-1] > IMPOSSIBLE)
        for log_prob, parent in zip(entries.score[-1][ends], entries.parent[-1][ends].tolist(), strict=True):
            tokens, rows = self.path(parent)
            score = self.settings.search_score(log_prob, length).item()
            self.finished.append(Hypothesis((*tokens, END), score, log_prob.item(), alignment=(*rows, self.I - 1)))
        self.finished = sorted(self.finished, key=lambda each: -each.score)[: self.settings.nbest]

    def path(self, slot: int) -> tuple[list[int], list[int]]:
        """The tokens written before a prefix of the last column writes in the last row, and the row of each."""
        tokens, rows = [], []
        row = self.I - 1
        for column in self.visited[:0:-1]:
            row = int(column.origin[row, slot])
            tokens.append(column.token[slot])
            rows.append(row)
            slot = column.parent[slot]
        return tokens[::-1], rows[::-1]

    def _is_done(self, best: Float[Tensor, ""], length: int) -> bool:
        """Whether no unfinished output can still enter the list."""
        if not self.finished:
            return False
        if best < max(each.log_prob for each in self.finished) - self.settings.threshold:
            return True
        limits = torch.tensor([self.limit], dtype=best.dtype, device=self.device)
        bound = self.settings.upper_bound(best[None], length, limits)
        return len(self.finished) == self.settings.nbest and self.finished[-1].score >= bound.item()

    def _next_column(self, entries: Entries, goes_on: Tensor, state: SideState) -> Column:
        """Distinct outputs, each with its score in every row."""
        rows, _ = goes_on.nonzero(as_tuple=True)
        key, slot = torch.unique((entries.parent * self.ids + entries.token)[goes_on], return_inverse=True)
        arrive = torch.full((self.I, len(key)), IMPOSSIBLE, dtype=torch.float64, device=self.device)
        arrive[rows, slot] = entries.score[goes_on]
        parent = key // self.ids
        return Column(key % self.ids, parent, select(state, parent), arrive)


class Cells(NamedTuple):
    """The distinct outputs of one length, their objective in each row, and what channel and language model say."""

    column: Column
    value: Float[Tensor, "I M"]
    rescored: RescorerState


class Scored(NamedTuple):
    """The proposals with their features and objective; ``slot`` is the extension in ``rescored`` that each is."""

    proposals: Entries
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
    ) -> Entries:
        """The best ``proposals`` extensions of every row."""
        width = min(max(self.settings.proposals, self.settings.beam), log_write.shape[1] * self.paths.V)
        found, indices = [], []
        for rows, log_token in self.paths.log_tokens(logits, is_last=is_last):
            index = (log_propose[rows, :, None] + log_token).flatten(1).topk(width, 1).indices
            found.append((log_write[rows, :, None] + log_token).flatten(1).gather(1, index))
            indices.append(index)
        return Entries(torch.cat(found), *self.paths.split_index(torch.cat(indices)))

    def _score(self, cells: Cells, proposals: Entries, length: int) -> Scored:
        """The proposals with the scores of all models; each distinct output is read once."""
        key, slot = (proposals.parent * self.paths.ids + proposals.token).unique(return_inverse=True)
        parent, token = key // self.paths.ids, key % self.paths.ids
        sentence = self.sentence.expand(len(cells.column.token))
        after = self.rescorer.extend(cells.rescored, cells.column.token, parent, token, sentence)
        log_channel = self._log_channel(after, proposals.token == END, slot)
        lengths = torch.full_like(proposals.score, length)
        features = torch.stack([proposals.score, log_channel, after.log_language[slot], lengths], 2)
        value = self.model.objective(features)
        value = value.masked_fill(proposals.score == IMPOSSIBLE, IMPOSSIBLE)
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
        arrive[rows, slot], value[rows, slot] = scored.proposals.score[kept], scored.value[kept]
        parent, token = torch.zeros_like(extension), torch.zeros_like(extension)
        parent[slot], token[slot] = scored.proposals.parent[kept], scored.proposals.token[kept]
        column = Column(token, parent, select(state, parent), arrive)
        everything = Pending(scored.rescored, torch.arange(len(scored.rescored.log_language), device=rows.device))
        return Cells(column, value, self.rescorer.select(everything, extension))
