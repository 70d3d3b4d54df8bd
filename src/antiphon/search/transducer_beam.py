"""Column-wise search in the transducer, over outputs and alignments together, for a batch of sentences.

Column ``j`` holds, for every input row ``i``, the ``beam`` best outputs of length ``j`` whose last token was written
at ``i``, but no more than ``outputs`` distinct ones over all rows. One step takes a column to the next::

    standing(n, i) = max over k <= i of  arrival(n, k) + sum of log shift(n, k..i-1)
    ready(n, i)    = standing(n, i) + log emit(n, i)
    score(n, i, y) = ready(n, i) + log word(y | n, i)          keep the best ``beam`` of (n, y) for every i

where ``n`` numbers the *distinct* prefixes of the column: a prefix that stands in many rows has one decoder state
and one row of logits. The end symbol can be written in the last row alone, where it must be among the best of its
cell like any other token; its output is then finished, and ranked by its score with length bias and normalisation
(``hypothesis.py``). Log scores only fall as outputs grow, so a sentence is done when its worst kept answer beats the
best that anything unfinished can still reach, or when all that is unfinished is too far behind (``threshold``).

Thesis: section 5.4; ``beam = 1`` is its Algorithm 1, a wider one its beam search.
"""

from itertools import repeat
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, PAD, START, UNKNOWN
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.transducer import Side, Transducer
from antiphon.nn.recurrent import LSTMState, select_states
from antiphon.search.hypothesis import BeamSettings, Finished, Hypothesis

NEVER_WRITTEN = [PAD, UNKNOWN, START]
_NO_WORDS = [END, *NEVER_WRITTEN]
_ROWS_AHEAD = 8
_BLOCK_NUMBERS = 2**24
"""How many word scores are computed at once."""


class Column(NamedTuple):
    """The distinct prefixes of one output length, and where their last tokens were written.

    Only a band of ``R`` rows from ``first_row`` on is kept: no prefix was last written outside it.
    """

    owner: Int[Tensor, " N"]
    last_token: Int[Tensor, " N"]
    state: LSTMState | None
    first_row: int
    arrival: Float[Tensor, "N R"]
    entry: Int[Tensor, "N R"]


class Ready(NamedTuple):
    """Pairs of a prefix and a row that are about to write: their scores, and the entries they come from."""

    prefix: Int[Tensor, " M"]
    row: Int[Tensor, " M"]
    log_score: Float[Tensor, " M"]
    parent: Int[Tensor, " M"]


class Words(NamedTuple):
    """The most probable words of each ready pair, and its end symbol."""

    log_prob: Float[Tensor, "M W"]
    token: Int[Tensor, "M W"]
    log_end: Float[Tensor, " M"]


class Kept(NamedTuple):
    """Entries of the new column: a token written by a ready pair."""

    prefix: Int[Tensor, " E"]
    row: Int[Tensor, " E"]
    token: Int[Tensor, " E"]
    log_score: Float[Tensor, " E"]
    parent: Int[Tensor, " E"]


class End(NamedTuple):
    """A finished output: the column that wrote its end symbol, its entry before that, its log score and its parts."""

    column: int
    parent: int
    log_score: float
    parts: tuple[float, ...] = ()


@torch.inference_mode()
def search_transducer(model: Transducer, batch: Batch, settings: BeamSettings) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first, each with its best path."""
    return ColumnSearch(model, batch, settings).run()


class ColumnSearch:
    """One search over a batch of sentences, column by column; ``width`` outputs are kept in a cell."""

    def __init__(self, model: Transducer, batch: Batch, settings: BeamSettings) -> None:
        self.model, self.settings = model, settings
        self.width, self.outputs = settings.beam, settings.outputs
        self.lengths = batch.source_lengths
        self.source: Side = model.read(batch.source, self.lengths)
        self.B, self.I, self.V = self.source.logits.shape
        self.device = self.source.logits.device
        self.no_words = torch.tensor(_NO_WORDS, device=self.device)
        self.word_logits = self.source.logits.index_fill(2, self.no_words, IMPOSSIBLE)
        self.max_columns = settings.longest_outputs(self.lengths)
        self.finished: list[Finished[End]] = [Finished(settings.nbest) for _ in range(self.B)]
        self.history: list[Kept] = []

    def run(self) -> list[list[Hypothesis]]:
        """The best outputs of every sentence."""
        column = self._first_column()
        for number in range(int(self.max_columns.max())):
            target, state = self.model.follow(column.last_token[:, None], column.state)
            side = Side(target.logits[:, 0], target.transition[:, 0])
            is_last = self.max_columns == number + 1
            ready = self._ready(column, side, is_last)
            kept = self._finish(column, self._write(column, ready, side, is_last), number)
            kept = self._of_open_sentences(column, kept, number)
            if not len(kept.prefix):
                break
            self.history.append(kept)
            column = self._next_column(column, kept, state)
        return self._trace_back()

    def _first_column(self) -> Column:
        owner = torch.arange(self.B, device=self.device)
        arrival = torch.zeros(self.B, 1, dtype=torch.float64, device=self.device)
        nothing = torch.full((self.B, 1), -1, device=self.device)
        return Column(owner, torch.full_like(owner, START), None, 0, arrival, nothing)

    def _ready(self, column: Column, side: Side, is_last: Tensor) -> Ready:
        """The pairs worth extending; in a sentence's last column, only those that can finish it.

        Rows beyond the band are looked at some at a time, until standing there is out of the question.
        """
        ahead = self.I if is_last.any() else _ROWS_AHEAD
        while True:
            stop = min(self.I, column.first_row + column.arrival.shape[1] + ahead)
            standing, score, origin = self._stand(column, side, stop)
            best = self._best_of_each_sentence(score.amax(1), column.owner)
            worst = (best - self.settings.threshold)[column.owner, None]
            if stop == self.I or not (standing[:, -1:] >= worst).any():
                break
            ahead *= 2
        at_end = (self._rows(column, stop) == self.lengths[column.owner, None] - 1) & (score > IMPOSSIBLE)
        worth_it = torch.where(is_last[column.owner, None], at_end, score >= worst)
        prefix, place = worth_it.nonzero(as_tuple=True)
        parent = column.entry[prefix, origin[prefix, place]]
        return Ready(prefix, place + column.first_row, score[prefix, place], parent)

    def _stand(self, column: Column, side: Side, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of standing and of being about to write in each row up to ``stop``, and where each arrived."""
        owner, first = column.owner, column.first_row
        log_odds = self.model.transition.log_odds(
            self.source.transition[:, first:stop][owner], side.transition[:, None]
        )
        rows_left = self.lengths[owner, None] - 1 - self._rows(column, stop)
        log_emit, log_shift = self.model.split_odds(log_odds, rows_left == 0)
        arrival = pad(column.arrival, (0, stop - first - column.arrival.shape[1]), value=IMPOSSIBLE)
        standing, origin = _shift_on(arrival, log_shift.double())
        standing = standing.masked_fill(rows_left < 0, IMPOSSIBLE)
        return standing, standing + log_emit, origin

    def _rows(self, column: Column, stop: int) -> Tensor:
        return torch.arange(column.first_row, stop, device=self.device)

    def _best_of_each_sentence(self, log_scores: Tensor, sentence: Tensor) -> Tensor:
        return log_scores.new_full((self.B,), IMPOSSIBLE).scatter_reduce(0, sentence, log_scores, "amax")

    def _write(self, column: Column, ready: Ready, side: Side, is_last: Tensor) -> Kept:
        """The best entries of the new column."""
        kept = self._propose(column, ready, side, is_last)
        return select(kept, self._best_outputs(kept, kept.log_score, column.owner))

    def _propose(self, column: Column, ready: Ready, side: Side, is_last: Tensor) -> Kept:
        """The best ``width`` tokens of every ready pair, then of every cell."""
        owner = column.owner[ready.prefix]
        words = self._words(ready, owner, side)
        width = words.token.shape[1]
        goes_on = (~is_last[owner]).nonzero()[:, 0]
        can_end = (ready.row == self.lengths[owner] - 1).nonzero()[:, 0]
        pair = torch.cat([goes_on.repeat_interleave(width), can_end])
        token = torch.cat([words.token[goes_on].flatten(), torch.full_like(can_end, END)])
        log_prob = torch.cat([words.log_prob[goes_on].flatten(), words.log_end[can_end]])
        kept = Kept(ready.prefix[pair], ready.row[pair], token, ready.log_score[pair] + log_prob, ready.parent[pair])
        kept = select(kept, self._promising(kept, kept.log_score, column.owner))
        return select(kept, self._best_of_each_cell(kept, kept.log_score, column.owner, self.width))

    def _words(self, ready: Ready, owner: Int[Tensor, " M"], side: Side) -> Words:
        """The ``beam`` most probable words of every ready pair, some pairs at a time.

        log word(v) = A[i, v] + C[n, v] - log Z,  log Z over the words and the tokens that are none
        """
        width = min(self.width, self.V - len(_NO_WORDS))
        target_rest, source_rest = (
            logits.index_select(-1, self.no_words) for logits in (side.logits, self.source.logits)
        )
        parts = []
        for block in torch.arange(len(owner), device=self.device).split(max(1, _BLOCK_NUMBERS // self.V)):
            cell, prefix = (owner[block], ready.row[block]), ready.prefix[block]
            logits = self.word_logits[cell].add_(side.logits[prefix])
            rest = source_rest[cell] + target_rest[prefix]
            log_z = torch.logaddexp(logits.logsumexp(1), rest.logsumexp(1))[:, None]
            best, token = logits.topk(width, 1)
            parts.append((best - log_z, token, rest[:, 0] - log_z[:, 0]))
        return Words(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def _finish(self, column: Column, kept: Kept, number: int) -> Kept:
        """The entries that go on; those that wrote the end symbol are finished."""
        is_end = kept.token == END
        ended = select(kept, is_end.nonzero()[:, 0])
        sentences = column.owner[ended.prefix].tolist()
        scores = self.settings.normalise(ended.log_score, number + 1).tolist()
        ends = map(End, repeat(number), ended.parent.tolist(), ended.log_score.tolist())
        for sentence, score, end in zip(sentences, scores, ends, strict=True):
            self.finished[sentence].add(score, end)
        return select(kept, (~is_end).nonzero()[:, 0])

    def _promising(self, kept: Kept, value: Tensor, owner: Tensor) -> Int[Tensor, " E"]:
        """Places of the entries whose value is not too far behind the best of their sentence."""
        sentence = owner[kept.prefix]
        best = self._best_of_each_sentence(value, sentence)
        promising = value >= (best - self.settings.threshold)[sentence]
        return (promising & (value > IMPOSSIBLE)).nonzero()[:, 0]

    def _best_of_each_cell(self, kept: Kept, value: Tensor, owner: Tensor, width: int) -> Int[Tensor, " E"]:
        """Places of the ``width`` entries of the highest value in every cell."""
        order, rank = _ranks(value, owner[kept.prefix] * self.I + kept.row)
        return order[rank < width]

    def _best_outputs(self, kept: Kept, value: Tensor, owner: Tensor) -> Int[Tensor, " E"]:
        """Places of the entries of each sentence's ``outputs`` best outputs, each as good as its best entry."""
        if self.outputs is None:
            return torch.arange(len(value), device=self.device)
        key, number = (kept.prefix * self.V + kept.token).unique(return_inverse=True)
        best = value.new_full((len(key),), IMPOSSIBLE).scatter_reduce(0, number, value, "amax")
        order, rank = _ranks(best, owner[key // self.V])
        is_among = torch.zeros_like(key, dtype=torch.bool)
        is_among[order[rank < self.outputs]] = True
        return is_among[number].nonzero()[:, 0]

    def _of_open_sentences(self, column: Column, kept: Kept, number: int) -> Kept:
        """Entries of sentences that are not done: that may still find a better output, and are not too far behind."""
        sentence = column.owner[kept.prefix]
        best_open = self._best_of_each_sentence(kept.log_score, sentence).tolist()
        hopes = self._hopes(kept, sentence, number + 1).tolist()
        is_open = []
        for finished, best, hope, limit in zip(self.finished, best_open, hopes, self.max_columns.tolist(), strict=True):
            best_finished = max((end.log_score for _, end in finished.entries), default=IMPOSSIBLE)
            in_reach = best >= best_finished - self.settings.threshold
            is_open.append(number + 1 < limit and in_reach and not finished.beats(hope))
        return select(kept, torch.tensor(is_open, device=self.device)[sentence].nonzero()[:, 0])

    def _hopes(self, kept: Kept, sentence: Tensor, length: int) -> Float[Tensor, " B"]:
        """The best score that an output of each sentence can still finish with."""
        best_open = self._best_of_each_sentence(kept.log_score, sentence)
        return self.settings.best_still_possible(best_open, length, self.max_columns)

    def _next_column(self, column: Column, kept: Kept, state: LSTMState) -> Column:
        distinct, number = (kept.prefix * self.V + kept.token).unique(return_inverse=True)
        parent = distinct // self.V
        first_row, last_row = (int(row) for row in kept.row.aminmax())
        shape = (len(distinct), last_row - first_row + 1)
        arrival = torch.full(shape, IMPOSSIBLE, dtype=torch.float64, device=self.device)
        arrival[number, kept.row - first_row] = kept.log_score
        entry = torch.full(shape, -1, device=self.device)
        entry[number, kept.row - first_row] = torch.arange(len(number), device=self.device)
        return Column(column.owner[parent], distinct % self.V, select_states(state, parent), first_row, arrival, entry)

    def _trace_back(self) -> list[list[Hypothesis]]:
        columns = [(kept.token.tolist(), kept.row.tolist(), kept.parent.tolist()) for kept in self.history]
        answers = []
        for finished, length in zip(self.finished, self.lengths.tolist(), strict=True):
            hypotheses = []
            for log_score, (column, entry, _, parts) in finished.entries:
                tokens, rows = [END], [length - 1]
                for token, row, parent in reversed(columns[:column]):
                    tokens.append(token[entry])
                    rows.append(row[entry])
                    entry = parent[entry]
                hypotheses.append(Hypothesis(tuple(reversed(tokens)), log_score, tuple(reversed(rows)), parts))
            answers.append(hypotheses)
        return answers


def _shift_on(
    arrival: Float[Tensor, "N I"], log_shift: Float[Tensor, "N I"]
) -> tuple[Float[Tensor, "N I"], Int[Tensor, "N I"]]:
    """Best score of standing in each row after any number of shifts, and the row of arrival it comes from.

    With ``S(i)`` the sum of log shifts before ``i``: ``standing(i) = S(i) + max over k <= i of arrival(k) - S(k)``.
    """
    shifts_before = log_shift.cumsum(1) - log_shift
    best, origin = (arrival - shifts_before).cummax(1)
    return best + shifts_before, origin


def _ranks(value: Float[Tensor, " E"], group: Int[Tensor, " E"]) -> tuple[Int[Tensor, " E"], Int[Tensor, " E"]]:
    """An order that goes group by group and from high to low in each, and the rank in its group of each place in it."""
    order = value.argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]
    in_order, position = group[order], torch.arange(len(order), device=order.device)
    starts = torch.ones_like(in_order, dtype=torch.bool)
    starts[1:] = in_order[1:] != in_order[:-1]
    return order, position - torch.where(starts, position, 0).cummax(0).values if len(order) else position


def select(kept: Kept, index: Tensor) -> Kept:
    """Some entries of a column."""
    return Kept(*(tensor[index] for tensor in kept))
