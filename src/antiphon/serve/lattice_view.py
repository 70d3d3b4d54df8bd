"""The lattice of one input, or of its first part, with one output, as the page shows it; and which outputs there are.

Rows are source symbols, columns output tokens. Where the input has not ended, there is no end symbol on either side;
the last column then stands for the token that comes next, and a path ends by leaving the last row in it::

    arrive(i, j)   probability that token j - 1 was written in row i, after the tokens before it
    forward(i, j)  probability of being in cell (i, j), all paths summed
    ready(i, j)    = forward(i, j) write(i, j)
    next(y, j)     = sum_i ready(i, j) token(y | i, j) / sum_i arrive(i, j)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from antiphon.api.model import Model, NeuralModel
from antiphon.data.batch import Batch
from antiphon.decode.noisy_channel import search_with_pruned
from antiphon.exceptions import InputError
from antiphon.lattice import Posteriors, best_path, log_marginal, posteriors
from antiphon.lattice.paths import IMPOSSIBLE, forward_along
from antiphon.models.left_to_right import never_written
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import CellFactors, Transducer
from antiphon.nn.copying import add_row_copy
from antiphon.runs.build import build_beam
from antiphon.serve.answers import candidate_answer
from antiphon.serve.schemas import CellBody, LatticeBody, ShownBody
from antiphon.serve.streams import OpenStream, StreamHistory, StreamPool, StreamSearch, StreamStep
from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import END_SYMBOL
from antiphon.torch_free.vocab import END

_DIGITS = 6
_CANDIDATE_KEYS = ("text", "tokens", "probability", "log_probability", "score", "parts")
Features = tuple[str, ...]


def transducer_of(model: Model) -> Transducer | None:
    """The transducer whose lattice a run has: its own network, or the direct model of a noisy channel."""
    module = model.module if isinstance(model, NeuralModel) else None
    if isinstance(module, NoisyChannel):
        module = module.direct
    return module if isinstance(module, Transducer) else None


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

    @torch.inference_mode()
    def __init__(self, model: Model, transducer: Transducer, given: LatticeInput) -> None:
        self.codec, self.given = model.codec, given
        self.never = [*never_written(transducer), *([] if given.ended else [END])]
        batch = Batch.from_padded(self.codec.padded_tokens([given.source], [given.target], [given.features]))
        batch = batch.to(transducer.target_logits.weight.device)
        source, context = transducer.encode(batch)
        target, _ = transducer.decode_prefix(batch.shifted_target, transducer.target_state(batch.features), context)
        rows = source.logits.shape[1] - (not given.ended)  # no end symbols where the input has not ended
        self.copied = transducer.copied_words(batch)[0, :rows] if transducer.copies_words else None
        self.source = CellFactors(source.logits[0, :rows], source.transition[0, :rows])
        self.target = CellFactors(target.logits[0], target.transition[0])
        log_odds = transducer.emit_log_odds(source.transition[:, :rows], target.transition)[0] + given.emit_bias
        in_last_row = (torch.arange(rows, device=log_odds.device) == rows - 1)[:, None] & given.ended
        log_emit, log_read = (each.double() for each in transducer.split_odds(log_odds, in_last_row))
        self.log_emit, self.log_read = log_emit, log_read
        self.target_ids: list[int] = batch.target[0].tolist()
        self.log_token = self._log_token_probs()

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
            log_write[:, -1] = self.log_read[:, -1]
        source_lengths, target_lengths = (torch.tensor([n], device=log_write.device) for n in log_write.shape)
        return log_write[None], self.log_read[None], source_lengths, target_lengths

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
            forward = forward_along(arrive - arrive.logsumexp(0), self.log_read[:, column])
            ready.append(forward + self.log_emit[:, column])
            read_on.append(0.0 if self.given.ended else (forward[-1] + self.log_read[-1, column]).exp().item())
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


class _Found(NamedTuple):
    """The tokens of the best output of a search, and the keys of the answer about what the search found."""

    best: Sequence[str]
    answer: dict[str, Any]


class Lattices:
    """The lattices of one run."""

    def __init__(self, model: Model, max_cells: int) -> None:
        self.model, self.max_cells = cast(NeuralModel, model), max_cells
        self.transducer = cast(Transducer, transducer_of(model))
        self.target = model.codec.target

    def show(self, body: LatticeBody, features: Features) -> dict[str, Any]:
        """The lattice of an input with its best output, or with a given one; with candidates and dropped ones."""
        source = self._source(body)
        prefix = self.target.known_ids(body.prefix, "prefix")
        search = self._search_whole if body.ended else self._search_part
        found = search(body, features, source, prefix)
        target = found.best if body.target is None else body.target
        return {**self._view(body, features, source, target).to_dict(body.top), **found.answer}

    def cell(self, body: CellBody, features: Features) -> dict[str, Any]:
        """One cell of a lattice."""
        view = self._view(body, features, self._source(body), body.target)
        I, J = view.log_emit.shape
        if body.row >= I or body.column >= J:
            raise InputError(f"cell ({body.row}, {body.column}): outside, expected at most ({I - 1}, {J - 1})")
        return view.cell(body.row, body.column, body.top)

    def of_stream(self, history: StreamHistory, stream: OpenStream) -> dict[str, Any]:
        """The lattice of a stream so far."""
        given = LatticeInput(history.source, history.best, stream.features, ended=False, emit_bias=stream.emit_bias)
        return {**self._bounded(given).to_dict(top=5), **self._outputs_of(history, most=8)}

    def _source(self, body: ShownBody) -> list[str]:
        """The tokens of an input; an empty one is refused, and a part of one if the model can only read it whole."""
        source = self.model.codec.source.tokens(body.input)
        if not source:
            raise InputError("input: empty, expected at least one symbol")
        if not body.ended and self.transducer.encoder.bidirectional:
            raise InputError("ended = false: the run has a bidirectional encoder, expected the whole input")
        return source

    def _view(self, body: ShownBody, features: Features, source: Sequence[str], target: Sequence[str]) -> LatticeView:
        emit_bias = 0.0 if body.ended else body.emit_bias
        return self._bounded(LatticeInput(source, target, features, body.ended, emit_bias))

    def _bounded(self, given: LatticeInput) -> LatticeView:
        """The lattice; one that is too large is refused."""
        cells = (len(given.source) + 1) * (len(given.target) + 1)
        if cells > self.max_cells:
            raise InputError(f"a lattice of {cells:,} cells, expected at most {self.max_cells:,}: a shorter input")
        return LatticeView(self.model, self.transducer, given)

    def _search_whole(self, body: LatticeBody, features: Features, source: list[str], prefix: list[int]) -> _Found:
        """The candidates of a whole input, and what the beam dropped."""
        options = PredictOptions(nbest=body.nbest, align=False, prefix=tuple(body.prefix))
        (prediction,) = self.model.predict_lazily([Source(body.input, features)], options)
        candidates = [candidate_answer(candidate) for candidate in prediction.nbest]
        pairs = self.model.codec.padded_tokens([source], None, [features])
        batch = Batch.from_padded(pairs).to(self.model.device)
        settings = build_beam(self.model.recipe.search, nbest=body.nbest)
        _, dropped = search_with_pruned(self.model.module, batch, settings, prefix)  # type: ignore[arg-type]
        answer = {
            "candidates": [{key: candidate[key] for key in _CANDIDATE_KEYS} for candidate in candidates],
            "dropped": [self._dropped(each.tokens, each.log_prob, source) for each in dropped[: body.nbest]],
            "written": len(prediction.tokens),
        }
        return _Found(prediction.tokens, answer)

    def _dropped(self, ids: Sequence[int], log_prob: float, source: Sequence[str]) -> dict[str, Any]:
        tokens = self.model.codec.decode_words(ids, source)
        return {
            "text": self.target.tokeniser.join(tokens),
            "tokens": tokens,
            "probability": math.exp(log_prob),
            "log_probability": log_prob,
            "step": len(ids),
        }

    def _search_part(self, body: LatticeBody, features: Features, source: list[str], prefix: list[int]) -> _Found:
        """The candidates of the first part of an input, by a stream that reads it."""
        stream = OpenStream(features, body.emit_bias, tuple(prefix), watch=True)
        step = StreamStep(stream, [[token] for token in source])
        (result,) = StreamPool(self.model, StreamSearch()).advance([step])
        history = StreamHistory()
        for token, written, outputs in zip(source, result.written, result.outputs, strict=True):
            history.read([token])
            history.write(written)
            history.watch(outputs)
        return _Found(history.best, self._outputs_of(history, body.nbest))

    def _outputs_of(self, history: StreamHistory, most: int) -> dict[str, Any]:
        """The candidates of a stream, what it dropped, and how much it has written, with which delay."""
        shown = {"candidates": history.candidates(), "dropped": history.latest_dropped(most)}
        for each in (*shown["candidates"], *shown["dropped"]):
            each["text"] = self.target.tokeniser.join(each["tokens"])
        return {**shown, "written": len(history.written), "AL": history.average_lagging}
