"""The lattice of one input, or of its first part, with one output, as the page shows it.

Rows are source symbols, columns output tokens. Where the input has not ended, there is no end symbol on either side;
the last column then stands for the token that comes next, and a path ends by leaving the last row in it::

    arrive(i, j)   probability that token j - 1 was written in row i, after the tokens before it
    forward(i, j)  probability of being in cell (i, j), all paths summed
    ready(i, j)    = forward(i, j) write(i, j)
    next(y, j)     = sum_i ready(i, j) token(y | i, j) / sum_i arrive(i, j)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from antiphon.api import Model
from antiphon.data.batch import Batch
from antiphon.decode.allowed_tokens import never_written
from antiphon.lattice import Posteriors, best_path, log_marginal, posteriors
from antiphon.lattice.marginal import forward_along
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors
from antiphon.nn.copying import add_row_copy
from antiphon.torch_free.results import END_SYMBOL
from antiphon.torch_free.vocab import END

_DIGITS = 6


@dataclass(frozen=True)
class LatticeInput:
    """What a lattice is made of: source and target tokens, features, and whether the source has ended."""

    source: Sequence[str]
    target: Sequence[str]
    features: Sequence[str] = ()
    ended: bool = True
    emit_bias: float = 0.0


class LatticeView:
    """Probabilities of one lattice."""

    def __init__(self, model: Model, transducer: Transducer, given: LatticeInput) -> None:
        self.codec, self.given = model.codec, given
        self.never = [*never_written(transducer), *([] if given.ended else [END])]
        with torch.inference_mode():
            self._compute(transducer)

    def _compute(self, transducer: Transducer) -> None:
        batch = self._batch().to(transducer.target_logits.weight.device)
        source, context = transducer.encode(batch)
        target, _ = transducer.decode_prefix(batch.shifted_target, transducer.target_state(batch.features), context)
        rows = source.logits.shape[1] - (not self.given.ended)
        self.copied = transducer.copied_words(batch)[0, :rows] if transducer.copies_words else None
        self.source = CellFactors(source.logits[0, :rows], source.transition[0, :rows])
        self.target = CellFactors(target.logits[0], target.transition[0])
        log_odds = transducer.emit_log_odds(source.transition[:, :rows], target.transition)[0] + self.given.emit_bias
        in_last_row = (torch.arange(rows, device=log_odds.device) == rows - 1)[:, None] & self.given.ended
        log_emit, log_shift = (each.double() for each in transducer.split_odds(log_odds, in_last_row))
        self.log_emit, self.log_shift = log_emit, log_shift
        self.target_ids: list[int] = batch.target[0].tolist()
        self.log_token = self._log_token_probs()

    def _batch(self) -> Batch:
        """The pair as ids; its end symbols are not used where the input has not ended."""
        return Batch.of_tokens(self.codec, [self.given.source], [self.given.target], [self.given.features])

    def _log_token_probs(self) -> Float[Tensor, "I J"]:
        """Log probability of each column's own token in every row."""
        columns = [self._log_probs(column)[:, token].double() for column, token in enumerate(self.target_ids)]
        return torch.stack(columns, 1)

    def _log_probs(self, column: int) -> Float[Tensor, "I V"]:
        """Log probabilities of all tokens in each row of a column; if words are copied, also of the words of rows."""
        classes = (self.source.logits + self.target.logits[column]).log_softmax(1)
        if self.copied is None:
            return classes
        log_probs, size = add_row_copy(classes, self.copied), classes.shape[1] - 1
        log_probs = pad(log_probs, (0, len(self.given.source) - 1), value=IMPOSSIBLE)
        log_copy = log_probs[:, size].clone()
        log_probs[:, size:] = IMPOSSIBLE
        row = torch.nonzero(self.copied >= size)[:, 0]
        log_probs[row, self.copied[row]] = log_copy[row]
        return log_probs

    @cached_property
    def moves(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the functions of ``antiphon.lattice``: log scores of both moves, and both lengths."""
        log_write = self.log_emit + self.log_token
        if not self.given.ended:  # the last move leaves the last row instead of writing the end symbol
            log_write[:, -1] = self.log_shift[:, -1]
        source_lengths, target_lengths = (torch.tensor([n], device=log_write.device) for n in log_write.shape)
        return log_write[None], self.log_shift[None], source_lengths, target_lengths

    @cached_property
    def posterior(self) -> Posteriors:
        """Posteriors of both moves, ``(I, J)`` each."""
        found = posteriors(*self.moves)
        return Posteriors(found.write[0], found.read[0])

    @cached_property
    def rows(self) -> list[int]:
        """The row in which the best path writes each token."""
        found: list[int] = best_path(*self.moves).alignment[0].tolist()
        return found

    @property
    def log_prob(self) -> float:
        """Log probability of the output: of all of it, or of having written it on leaving the last row."""
        return log_marginal(*self.moves).item()

    @cached_property
    def _log_ready(self) -> tuple[Float[Tensor, "I J"], list[float]]:
        """``ready`` of every cell given the tokens before it, and the probability of leaving each column below."""
        arrive = torch.full_like(self.log_emit[:, 0], IMPOSSIBLE)
        arrive[0] = 0.0
        ready, read_on = [], []
        for column in range(self.log_emit.shape[1]):
            forward = forward_along(arrive - arrive.logsumexp(0), self.log_shift[:, column])
            ready.append(forward + self.log_emit[:, column])
            read_on.append(0.0 if self.given.ended else (forward[-1] + self.log_shift[-1, column]).exp().item())
            arrive = ready[-1] + self.log_token[:, column]
        return torch.stack(ready, 1), read_on

    def _token_probs(self, column: int) -> Float[Tensor, "I V"]:
        """Probabilities of the tokens that may be written in each row of a column; the end only in the last row."""
        probs = self._log_probs(column).exp().double()
        probs[:, self.never] = 0.0
        probs[:-1, END] = 0.0
        return probs

    def next_tokens(self, column: int, top: int, row: int | None = None) -> dict[str, Any]:
        """The most probable tokens of a column: summed over alignments, on the best path, and in a row if given.

        The column's own token is always listed, and the tokens of ``summed`` are all in ``best_path`` too.
        """
        log_ready, read_on = self._log_ready
        probs = self._token_probs(column)
        summed = (log_ready[:, column, None].exp() * probs).sum(0)
        own = self.target_ids[column : len(self.given.target) + self.given.ended][:1]
        most_probable = _top_ids(summed, top, own)
        on_path = probs[self.rows[column]]
        found = {
            "summed": self._listed(summed, most_probable),
            "best_path": self._listed(on_path, _top_ids(on_path, top, most_probable)),
            "read_on": _rounded(read_on[column]),
        }
        return found if row is None else {"next": self._listed(probs[row], _top_ids(probs[row], top)), **found}

    def _listed(self, probs: Float[Tensor, " V"], ids: Sequence[int]) -> list[list[Any]]:
        """The possible tokens among ids, each with its probability."""
        tokens = (*self.codec.target.vocab.tokens, *self.given.source)
        return [[tokens[id_], _rounded(probs[id_].item())] for id_ in ids if probs[id_] > 0]

    def cell(self, row: int, column: int, top: int) -> dict[str, Any]:
        """All about one cell."""
        write = self.log_emit[row, column].exp().item()
        leaves = not self.given.ended and row == len(self.log_emit) - 1 and column == self.log_emit.shape[1] - 1
        posterior = 0.0 if leaves else self.posterior.write[row, column].item()
        reached = self.posterior.write[row, column] + self.posterior.read[row, column]
        return {
            "row": row,
            "column": column,
            "write": _rounded(write),
            "read": _rounded(1 - write),
            "posterior": _rounded(posterior),
            "reached": _rounded(min(1.0, reached.item())),
            "best_row": self.rows[column],
            **self.next_tokens(column, top, row),
        }

    def to_dict(self, top: int) -> dict[str, Any]:
        """The keys of the answer that are about this lattice."""
        end = [END_SYMBOL] if self.given.ended else []
        log_prob = self.log_prob
        return {
            "ended": self.given.ended,
            "method": "alignment",
            "source": [*self.given.source, *end],
            "target": [*self.given.target, *end],
            "text": self.codec.target.tokeniser.join(list(self.given.target)),
            "rows": self.rows if self.given.ended else self.rows[:-1],
            "posterior": _table(self.posterior.write),
            "write": _table(self.log_emit.exp()),
            "next": [self.next_tokens(column, top) for column in range(self.log_emit.shape[1])],
            "log_probability": log_prob if log_prob > IMPOSSIBLE else None,
            "probability": float(np.exp(log_prob)),
        }


def _top_ids(probs: Float[Tensor, " V"], top: int, further: Sequence[int] = ()) -> list[int]:
    """The ids of the most probable tokens, then further ones that are not among them."""
    best: list[int] = probs.topk(min(top, len(probs))).indices.tolist()
    return [*best, *(id_ for id_ in further if id_ not in best)]


def _rounded(value: float) -> float:
    """The value with a few significant digits: small probabilities are compared with each other too."""
    return float(f"{value:.{_DIGITS}g}")


def _table(values: Float[Tensor, "I J"]) -> list[list[float]]:
    rows: list[list[float]] = np.round(values.cpu().numpy(), _DIGITS).tolist()
    return rows
