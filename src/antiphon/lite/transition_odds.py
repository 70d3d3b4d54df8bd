"""Log odds of writing, rather than reading on, in the cells of a transducer: ``nn/transition.py`` in numpy."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.log_space import Array, log_sigmoid

_RUNS = 4
"""Run lengths that keys distinguish, including 0."""
_LARGEST_UNIT = 40.0
"""Up to this value ``exp`` of twice a unit fits single precision."""


class TransitionTable(NamedTuple):
    """The source part of every row: its units, or their exponentials ``exp(2 a)``, and the columns *written*."""

    units: Array
    written: Array
    is_exponential: bool

    def slice_rows(self, rows: slice) -> "TransitionTable":
        """Some rows of every sentence."""
        return TransitionTable(self.units[:, rows], self.written[:, rows], self.is_exponential)

    def append(self, row: "TransitionTable") -> "TransitionTable":
        """The same with one more row of every sentence; if one of them has no exponentials, the result has none."""
        written = np.concatenate([self.written, row.written], 1)
        if self.is_exponential == row.is_exponential or not self.units.shape[1]:
            return TransitionTable(np.concatenate([self.units, row.units], 1), written, row.is_exponential)
        one, other = (np.log(table.units) / 2 if table.is_exponential else table.units for table in (self, row))
        return TransitionTable(np.concatenate([one, other], 1), written, is_exponential=False)


class Transition:
    """``log odds(i, j) = v . tanh(T_h h_i + T_s s_j + c) + d``, or one constant, which has no units."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.readout = np.array(settings["readout"], np.float32)
        self.bias = np.float32(settings["bias"])
        self.compares, self.final_emit_forced = bool(settings["compares"]), bool(settings["final_emit_forced"])

    @property
    def width(self) -> int:
        """The size of each side's part: its units, and if keys are compared the two columns *written*."""
        return len(self.readout) + (2 if self.compares else 0)

    def table(self, source: Array) -> TransitionTable:
        """The source part of every row, prepared once for many prefixes."""
        units, written = self._split(source)
        fits = not units.size or bool(np.abs(units).max() < _LARGEST_UNIT)
        return TransitionTable(np.exp(2 * units) if fits else units, written, fits)

    def log_odds_by_sentence(self, table: TransitionTable, target: Array, sentence: Array) -> Array:
        """Log odds of writing in the rows of the sentence of each prefix."""
        units, written = self._split(target)
        source = table.units[sentence]
        if table.is_exponential:
            # tanh(a + c) = 1 - 2 / (1 + exp(2 a) exp(2 c)); an overflow gives the limit, 1.
            with np.errstate(over="ignore"):
                source *= np.exp(2 * units)[:, None]
            source += 1
            np.reciprocal(source, out=source)
            odds = source @ (-2 * self.readout) + (self.readout.sum() + self.bias)
        else:
            odds = np.tanh(source + units[:, None]) @ self.readout + self.bias
        return self._add_written(odds, table.written[sentence], written[:, None])

    def log_odds(self, source: Array, target: Array) -> Array:
        """Log odds of writing in cells, whose two sides broadcast against each other."""
        (one, one_written), (other, other_written) = self._split(source), self._split(target)
        odds = np.tanh(one + other) @ self.readout + self.bias
        return self._add_written(odds, one_written, other_written)

    def split_odds(self, log_odds: Array, in_last_row: Array | bool) -> tuple[Array, Array]:
        """Log probabilities of emit and shift; emit is certain in the last row if it is forced there."""
        log_emit, log_shift = log_sigmoid(log_odds), log_sigmoid(-log_odds)
        return np.where(in_last_row, 0, log_emit) if self.final_emit_forced else log_emit, log_shift

    def _split(self, part: Array) -> tuple[Array, Array]:
        """The units of a side, and its columns *written*: the number to add where keys are equal, and the key."""
        size = len(self.readout)
        return part[..., :size], part[..., size:]

    def _add_written(self, odds: Array, one: Array, other: Array) -> Array:
        if not self.compares:
            return odds
        return np.asarray(odds + (one[..., 0] + other[..., 0]) * (one[..., 1] == other[..., 1]))


def no_keys(count: int) -> Array:
    """The keys before the first token of each sequence."""
    return np.full(count, -_RUNS, np.int64)


def run_keys(tokens: Array, before: Array) -> Array:
    """A key for each token that encodes the token and how often it was repeated up to here, at most three times.

    The same as in ``nn/cell_factors.py``.
    """
    if tokens.shape[1] == 1:
        repeats = np.where(tokens[:, 0] == before // _RUNS, before % _RUNS, 0)
        return np.asarray(tokens * _RUNS + (repeats + 1).clip(max=_RUNS - 1)[:, None])
    previous = np.concatenate([(before // _RUNS)[:, None], tokens[:, :-1]], 1)
    position = np.arange(tokens.shape[1])
    start = np.where(tokens != previous, position, -_RUNS)
    goes_on = (tokens[:, :1] == previous[:, :1]) & (position == 0)
    start = np.maximum.accumulate(np.where(goes_on, -(before % _RUNS)[:, None], start), 1)
    return np.asarray(tokens * _RUNS + (position - start + 1).clip(max=_RUNS - 1))
