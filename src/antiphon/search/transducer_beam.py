"""Column-wise search in the transducer, over outputs and alignments together, for a batch of sentences.

Column ``j`` holds, for every input row ``i``, the ``beam`` best outputs of length ``j`` whose last token was written
at ``i``, but no more than ``outputs`` distinct ones over all rows. One step takes a column to the next::

    standing(i, k) = max over r <= i of  arrival(r, k) + sum of log shift(r..i-1, k)
    ready(i, k)    = standing(i, k) + log emit(i, k)
    score(i, k, y) = ready(i, k) + log word(y | i, k)          keep the best ``beam`` of (k, y) for every i

where ``k`` is the slot of a *distinct* prefix: one that stands in many rows has one decoder state and one row of
logits. The end symbol can be written in the last row alone, where it must be among the best of its cell like any other
token; its output is then finished, and ranked by its score with length bias and normalisation (``hypothesis.py``). Log
scores only fall as outputs grow, so a sentence is done when its worst kept answer beats the best that anything
unfinished can still reach, or when all that is unfinished is too far behind (``threshold``).

An entry of a column is a slot and a row. What it was written after is the parent of its slot, and the row where that
one arrived is the ``origin`` of its row, so paths can be traced back from the columns as they are.

On a GPU with kernels, a step works on everything and is recorded; elsewhere it works on what is used
(``selection.py``).

Thesis: section 5.4; ``beam = 1`` is its Algorithm 1, a wider one its beam search.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, SPECIALS, START
from antiphon.kernels import kernels_can_run
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.transducer import Side, Transducer
from antiphon.nn.best_words import best_words
from antiphon.nn.factored_softmax import Exponentials, log_normalisers_of_pairs
from antiphon.nn.recurrent import LSTMState, select_states
from antiphon.nn.slots import spread, spread_states
from antiphon.search.hypothesis import BeamSettings, Hypothesis
from antiphon.search.recorded import RecordedColumns
from antiphon.search.selection import Everything, Selection, Used

_ROWS_AHEAD = 8
_LARGE_VOCABULARY = 1000
"""From so many words on, normalisers by products of matrices are cheaper than a sum of exponentials for each."""
_COLUMNS_UNASKED = 4
"""Recorded columns that are played back before the host asks whether any sentence is still open."""
_NO_OUTPUT = 2**62
"""Comes after the number of every output."""


class Ends(NamedTuple):
    """The ``n`` best finished outputs of each sentence, best first; where there are fewer, scores are impossible.

    Each has the score it is ranked by, its log score and its parts, and the column and slot that wrote its end symbol.
    """

    score: Float[Tensor, "B n"]
    log_score: Float[Tensor, "B n"]
    parts: Float[Tensor, "B n P"]
    column: Int[Tensor, "B n"]
    slot: Int[Tensor, "B n"]


class Column(NamedTuple):
    """The distinct prefixes of one length, and where their last tokens were written.

    Slots are counted through all sentences; ``parent`` is a slot of the column before, whose decoder states are in
    ``state``. Only a band of ``R`` rows from ``first_row`` on is kept: no prefix was last written outside it. A slot
    that nothing arrives in is empty. ``others`` is what a combination of models remembers.
    """

    length: Float[Tensor, ""]
    token: Int[Tensor, "B K"]
    parent: Int[Tensor, "B K"]
    state: LSTMState
    first_row: int
    arrival: Float[Tensor, "B R K"]
    ends: Ends
    others: Any


class Written(NamedTuple):
    """What is remembered of a column: its prefixes, and where those arrived that were ready to write in each row."""

    token: Int[Tensor, "B K"]
    parent: Int[Tensor, "B K"]
    first_row: int
    origin: Int[Tensor, "B R K"]


class Ready(NamedTuple):
    """Prefixes that are about to write in a band of rows: their scores, and the rows where they arrived."""

    first_row: int
    log_score: Float[Tensor, "B R K"]
    origin: Int[Tensor, "B R K"]


class Entries(NamedTuple):
    """The best tokens of every cell, with the slots that write them."""

    first_row: int
    log_score: Float[Tensor, "B R W"]
    parent: Int[Tensor, "B R W"]
    token: Int[Tensor, "B R W"]


class Outputs(NamedTuple):
    """Distinct outputs in the slots of a new column: their scores in every row, and the parts these are made of."""

    first_row: int
    parent: Int[Tensor, "B K"]
    token: Int[Tensor, "B K"]
    log_score: Float[Tensor, "B R K"]
    parts: Float[Tensor, "B R K P"]


@torch.inference_mode()
def search_transducer(model: Transducer, batch: Batch, settings: BeamSettings) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, best first, each with its best path."""
    return ColumnSearch(model, batch, settings).run()


class ColumnSearch:
    """One search over a batch of sentences, column by column; ``width`` outputs are kept in a cell.

    With ``fixed_shapes``, every column has all rows and as many slots as outputs may be kept.
    """

    def __init__(
        self, model: Transducer, batch: Batch, settings: BeamSettings, *, fixed_shapes: bool | None = None
    ) -> None:
        self.model, self.settings = model, settings
        self.width, self.outputs = settings.beam, settings.outputs
        self.lengths = batch.source_lengths
        self.source: Side = model.read(batch.source, self.lengths)
        self.B, self.I, self.V = self.source.logits.shape
        self.device = self.source.logits.device
        self.sentences = torch.arange(self.B, device=self.device)
        self.rows_left = self.lengths[:, None] - 1 - torch.arange(self.I, device=self.device)
        self.limits = settings.longest_outputs(self.lengths)
        self.longest = int(self.limits.max())
        self.fixed_shapes = self._can_be_recorded if fixed_shapes is None else fixed_shapes
        self.selection: Selection = Everything() if self.fixed_shapes else Used()

    @property
    def _can_be_recorded(self) -> bool:
        """Whether kernels make the host's waits unnecessary; they are for single precision and less."""
        logits = self.source.logits
        return kernels_can_run(logits) and logits.dtype != torch.float64 and self.outputs is not None

    def run(self) -> list[list[Hypothesis]]:
        """The best outputs of every sentence."""
        step: Callable[[Column], tuple[Column, Written]] = self._step
        if self.fixed_shapes and self.device.type == "cuda":
            step = RecordedColumns(self._step)
        column, history = self._first_column(), []
        for number in range(1, self.longest + 1):
            column, written = step(column)
            history.append(written)
            is_time_to_ask = not self.fixed_shapes or number % _COLUMNS_UNASKED == 0
            if is_time_to_ask and not (column.arrival > IMPOSSIBLE).any():
                break
        return self._trace_back(column.ends, history)

    def _first_column(self) -> Column:
        R, K = self._first_shape()
        arrival = torch.full((self.B, R, K), IMPOSSIBLE, dtype=torch.float64, device=self.device)
        arrival[:, 0, 0] = 0.0
        first_slot = self.sentences[:, None].expand(-1, K) * K
        return Column(
            length=arrival.new_zeros(()),
            token=torch.full_like(first_slot, START),
            parent=first_slot,
            state=self.model.decoder.initial_state(self.B * K),
            first_row=0,
            arrival=arrival,
            ends=self._no_ends(),
            others=self._first_others(K),
        )

    def _first_shape(self) -> tuple[int, int]:
        """Rows and slots of the first column: one of each, or as many as there can ever be."""
        if not self.fixed_shapes:
            return 1, 1
        most = self.I * self.width
        return self.I, min(self.outputs or most, most)

    def _no_ends(self, parts: int = 0) -> Ends:
        shape = self.B, self.settings.nbest
        score = torch.full(shape, IMPOSSIBLE, dtype=torch.float64, device=self.device)
        nothing = torch.zeros_like(score, dtype=torch.long)
        return Ends(score, score, score.new_zeros(*shape, parts), nothing, nothing)

    def _first_others(self, K: int) -> Any:
        """What other models know before the first token."""
        return ()

    def _step(self, column: Column) -> tuple[Column, Written]:
        """The next column, and what is remembered of this one."""
        slots, length = column.token.numel(), column.length + 1
        filled = self.selection.places((column.arrival > IMPOSSIBLE).any(1).flatten())
        before = select_states(column.state, column.parent.flatten()[filled])
        side, state = self.model.follow(column.token.flatten()[filled][:, None], before)
        units = spread(side.transition[:, 0], filled, slots).unflatten(0, column.token.shape)
        is_last = self.limits == length
        ready = self._ready(column, units, is_last)
        entries = self._propose(ready, side.logits[:, 0], filled, is_last)
        outputs, others = self._write(column, entries, filled)
        ends = self._finish(column, outputs, length)
        after = Column(
            length=length,
            token=outputs.token,
            parent=outputs.parent,
            state=spread_states(state, filled, slots),
            first_row=outputs.first_row,
            arrival=self._of_open_sentences(outputs, ends, length),
            ends=ends,
            others=others,
        )
        return after, Written(column.token, column.parent, ready.first_row, ready.origin)

    def _ready(self, column: Column, units: Float[Tensor, "B K T"], is_last: Bool[Tensor, " B"]) -> Ready:
        """The prefixes worth extending in each row; in a sentence's last column, only those that can finish it.

        Rows beyond the band are looked at some at a time, until standing there is out of the question.
        """
        is_last = is_last[:, None, None]
        stop, ahead = column.first_row + column.arrival.shape[1], _ROWS_AHEAD
        while True:
            stop = min(self.I, stop + ahead)
            standing, score, origin = self._stand(column, units, stop)
            worst = score.amax((1, 2), keepdim=True) - self.settings.threshold
            if stop == self.I or not _goes_beyond(standing, torch.where(is_last, IMPOSSIBLE, worst)):
                break
            ahead *= 2
        at_end = (self.rows_left[:, column.first_row : stop] == 0)[:, :, None]
        worth_it = torch.where(is_last, at_end, score >= worst) & (score > IMPOSSIBLE)
        first, stop = self.selection.rows(worth_it)
        score = score.masked_fill(~worth_it, IMPOSSIBLE)
        return Ready(column.first_row + first, score[:, first:stop], origin[:, first:stop] + column.first_row)

    def _stand(self, column: Column, units: Float[Tensor, "B K T"], stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of standing and of being about to write in each row up to ``stop``, and where each arrived."""
        first = column.first_row
        log_odds = self.model.emit_log_odds(self.source.transition[:, first:stop], units)
        rows_left = self.rows_left[:, first:stop, None]
        log_emit, log_shift = self.model.split_odds(log_odds, rows_left == 0)
        arrival = pad(column.arrival, (0, 0, 0, stop - first - column.arrival.shape[1]), value=IMPOSSIBLE)
        standing, origin = _shift_on(arrival, log_shift.double())
        standing = standing.masked_fill(rows_left < 0, IMPOSSIBLE)
        return standing, standing + log_emit, origin

    def _propose(
        self, ready: Ready, logits: Float[Tensor, "N V"], filled: Int[Tensor, " N"], is_last: Bool[Tensor, " B"]
    ) -> Entries:
        """The best ``width`` tokens of every cell, unless they are too far behind the best of their sentence."""
        B, R, K = ready.log_score.shape
        pair = self.selection.places(ready.log_score.flatten() > IMPOSSIBLE)
        log_score, token = self._extend(ready, pair, logits, filled, is_last)
        tokens_of_pair = token.shape[1]
        log_score = spread(log_score, pair, B * R * K, empty=IMPOSSIBLE).view(B, R, K * tokens_of_pair)
        token = spread(token, pair, B * R * K).view_as(log_score)
        log_score, place = log_score.topk(min(self.width, log_score.shape[2]), 2)
        parent = place // tokens_of_pair + self.sentences[:, None, None] * K
        return Entries(ready.first_row, self._promising(log_score), parent, token.gather(2, place))

    def _extend(
        self,
        ready: Ready,
        pair: Int[Tensor, " M"],
        logits: Float[Tensor, "N V"],
        filled: Int[Tensor, " N"],
        is_last: Bool[Tensor, " B"],
    ) -> tuple[Float[Tensor, "M W"], Int[Tensor, "M W"]]:
        """Scores and numbers of the best words of pairs of a cell and a slot, and of the end symbol after them."""
        _, R, K = ready.log_score.shape
        score = ready.log_score.flatten()[pair]
        sentence, row, slot = pair // (R * K), pair // K % R + ready.first_row, pair % K
        number_of_slot = spread(torch.arange(len(filled), device=self.device), filled, self.B * K)
        cell, prefix = sentence * self.I + row, number_of_slot[sentence * K + slot]
        words = best_words(
            self.source.logits.flatten(0, 1),
            logits,
            cell,
            prefix,
            score > IMPOSSIBLE,
            width=min(self.width, self.V - len(SPECIALS)),
            first_word=len(SPECIALS),
            end=END,
            log_z=self._normalisers(logits, cell, prefix),
        )
        log_word = words.log_prob.masked_fill(is_last[sentence, None], IMPOSSIBLE)
        log_end = words.log_end.masked_fill(self.rows_left[sentence, row] > 0, IMPOSSIBLE)
        log_prob = torch.cat([log_word, log_end[:, None]], 1)
        return score[:, None] + log_prob, pad(words.token, (0, 1), value=END)

    def _normalisers(
        self, logits: Float[Tensor, "N V"], cell: Int[Tensor, " M"], prefix: Int[Tensor, " M"]
    ) -> Float[Tensor, " M"] | None:
        """Those of the words of pairs, where many words make it worth while for a CPU to know them beforehand."""
        if self.fixed_shapes or self.device.type != "cpu" or self.V < _LARGE_VOCABULARY or not len(cell):
            return None
        return log_normalisers_of_pairs(self.source.logits, self._exponentials, logits, cell, prefix)

    @cached_property
    def _exponentials(self) -> Exponentials:
        return Exponentials.of(self.source.logits)

    def _promising(self, value: Float[Tensor, "B R W"]) -> Float[Tensor, "B R W"]:
        """Values, impossible where they are too far behind the best of their sentence."""
        worst = value.amax((1, 2), keepdim=True) - self.settings.threshold
        return value.masked_fill(value < worst, IMPOSSIBLE)

    def _write(self, column: Column, entries: Entries, filled: Int[Tensor, " N"]) -> tuple[Outputs, Any]:
        """The best outputs of the new column, and what other models remember of it."""
        return self._distinct(entries, entries.log_score), ()

    def _distinct(self, entries: Entries, value: Float[Tensor, "B R W"]) -> Outputs:
        """Each sentence's ``outputs`` best outputs, each as good as the highest value of its entries.

        Entries of one output are brought together by sorting; ``number`` counts the outputs in that order.
        """
        B, R, W = value.shape
        key = (entries.parent * self.V + entries.token).masked_fill(value == IMPOSSIBLE, _NO_OUTPUT)
        key, order = key.flatten(1).sort(1)
        number = pad((key[:, 1:] != key[:, :-1]).cumsum(1), (1, 0))
        value, log_score = (tensor.flatten(1).gather(1, order) for tensor in (value, entries.log_score))
        best = torch.full_like(value, IMPOSSIBLE).scatter_reduce(1, number, value, "amax")
        best, chosen = best.topk(min(self.outputs or R * W, R * W), 1)
        K = self.selection.slots(best > IMPOSSIBLE)
        best, chosen = best[:, :K], chosen[:, :K]
        key = torch.empty_like(key).scatter(1, number, key).gather(1, chosen).masked_fill(best == IMPOSSIBLE, 0)
        every_slot = torch.arange(K, device=self.device).expand(B, K)
        slot = torch.full_like(number, K).scatter(1, chosen, every_slot).gather(1, number)
        scores = value.new_full((B, R * (K + 1)), IMPOSSIBLE).scatter(1, order // W * (K + 1) + slot, log_score)
        scores = scores.view(B, R, K + 1)[:, :, :K]
        return Outputs(entries.first_row, key // self.V, key % self.V, scores, scores.new_zeros(*scores.shape, 0))

    def _finish(self, column: Column, outputs: Outputs, length: Float[Tensor, ""]) -> Ends:
        """The best finished outputs, with those that end here, which is in the last row."""
        R = outputs.log_score.shape[1]
        last = self.sentences, (self.lengths - 1 - outputs.first_row).clamp(0, R - 1)
        log_score = outputs.log_score[last].masked_fill(outputs.token != END, IMPOSSIBLE)
        score = self._final_scores(outputs, length)[last].masked_fill(log_score == IMPOSSIBLE, IMPOSSIBLE)
        number = column.length.long().expand_as(outputs.parent)
        new = Ends(score, log_score, outputs.parts[last], number, outputs.parent)
        both = Ends(*(torch.cat(pair, 1) for pair in zip(column.ends, new, strict=True)))
        best = both.score.topk(self.settings.nbest, 1).indices
        return Ends(*(tensor[self.sentences[:, None], best] for tensor in both))

    def _final_scores(self, outputs: Outputs, length: Float[Tensor, ""]) -> Float[Tensor, "B R K"]:
        """What outputs that end are ranked by."""
        return self.settings.normalise(outputs.log_score, length)

    def _of_open_sentences(self, outputs: Outputs, ends: Ends, length: Float[Tensor, ""]) -> Float[Tensor, "B R K"]:
        """Scores in sentences that are not done: that may still find a better output, and are not too far behind."""
        unfinished = outputs.log_score.masked_fill((outputs.token == END)[:, None], IMPOSSIBLE)
        is_in_reach = unfinished.amax((1, 2)) >= ends.log_score.amax(1) - self.settings.threshold
        is_open = (length < self.limits) & is_in_reach & (ends.score[:, -1] < self._hopes(outputs, unfinished, length))
        return unfinished.masked_fill(~is_open[:, None, None], IMPOSSIBLE)

    def _hopes(
        self, outputs: Outputs, unfinished: Float[Tensor, "B R K"], length: Float[Tensor, ""]
    ) -> Float[Tensor, " B"]:
        """The best score that an output of each sentence can still finish with."""
        return self.settings.best_still_possible(unfinished.amax((1, 2)), length, self.limits, self.longest)

    def _trace_back(self, ends: Ends, history: list[Written]) -> list[list[Hypothesis]]:
        found, columns = _to_host(ends), [_to_host(written) for written in history]
        answers: list[list[Hypothesis]] = [[] for _ in range(self.B)]
        last_rows = (self.lengths - 1).tolist()
        for place in zip(*np.nonzero(found.score > IMPOSSIBLE), strict=True):
            sentence = place[0]
            written = columns[: found.column[place] + 1]
            tokens, rows = _path(written, sentence, found.slot[place], last_rows[sentence])
            score, parts = float(found.score[place]), tuple(found.parts[place].tolist())
            answers[sentence].append(Hypothesis((*tokens, END), score, (*rows, last_rows[sentence]), parts))
        return answers


def _goes_beyond(standing: Float[Tensor, "B R K"], worst: Float[Tensor, "B 1 1"]) -> bool:
    """Whether anything that stands in the last row is good enough to shift on."""
    last = standing[:, -1:]
    return bool(((last > IMPOSSIBLE) & (last >= worst)).any())


def _path(columns: list[Written], sentence: int, slot: int, row: int) -> tuple[list[int], list[int]]:
    """The tokens that were written before a slot of the last column wrote in a row, and the rows of each."""
    tokens, rows = [], []
    for column in reversed(columns):
        place = slot % column.token.shape[1]
        row = int(column.origin[sentence, row - column.first_row, place])
        tokens.append(int(column.token[sentence, place]))
        rows.append(row)
        slot = int(column.parent[sentence, place])
    return tokens[-2::-1], rows[-2::-1]


def _to_host(parts: Any) -> Any:
    """The same with arrays for tensors."""
    return type(parts)(*(part.numpy(force=True) if isinstance(part, Tensor) else part for part in parts))


def _shift_on(
    arrival: Float[Tensor, "B I K"], log_shift: Float[Tensor, "B I K"]
) -> tuple[Float[Tensor, "B I K"], Int[Tensor, "B I K"]]:
    """Best score of standing in each row after any number of shifts, and the row of arrival it comes from.

    With ``S(i)`` the sum of log shifts before ``i``: ``standing(i) = S(i) + max over r <= i of arrival(r) - S(r)``.
    """
    shifts_before = log_shift.cumsum(1) - log_shift
    best, origin = (arrival - shifts_before).cummax(1)
    return best + shifts_before, origin
