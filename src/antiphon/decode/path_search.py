"""The thesis's search in the transducer, over outputs *and* alignments: an output is scored by its best path.

Column ``j`` holds, for every input row ``i``, the ``beam`` best outputs of length ``j`` whose last token was written in
row ``i``. One step computes the next column::

    forward(i, m)  = max over r <= i of  arrive(r, m) + sum of log read(r..i-1, m)
    write(i, m)    = forward(i, m) + log emit(i, m)
    score(i, m, y) = write(i, m) + log token(y | i, m)          keep the best ``beam`` of (m, y) for every i

where ``m`` indexes the distinct prefixes of the column. The end symbol can be written only in the last row. This is
kept for comparison with ``beam_search.py``, which sums over alignments; it is written for clarity, not speed.

Thesis: section 4.5; ``beam = 1`` is its Algorithm 1, a wider one its beam search.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.exceptions import RecipeError
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import is_no_end, never_written, select
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
    """The best extensions of every row: their scores, the prefixes that they extend, and their tokens."""

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
