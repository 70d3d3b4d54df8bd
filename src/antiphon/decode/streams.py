"""What online decoding computes with PyTorch: ``torch_free/stream_policies.py`` decides what is written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import is_no_end, join, never_written, put, select
from antiphon.models.transducer import CellFactors, SideState, Transducer
from antiphon.nn.copying import add_row_copy
from antiphon.torch_free.stream_beam import Cells, CellScores
from antiphon.torch_free.stream_policies import Forced
from antiphon.torch_free.vocab import END, NOT_COPIED, START

_FEW_TOKENS = 256
"""Vocabularies of up to this size are compared as a whole, which is faster than to pick the best tokens first."""


class TransducerStreams:
    """A unidirectional transducer as a ``StreamNetwork``; there may be room for more slots than are in use."""

    _target: CellFactors
    _state: SideState

    def __init__(self, model: Transducer) -> None:
        self.model = model
        weight = model.target_logits.weight
        self.device = weight.device
        self.emit_bias = weight.new_zeros(0)
        self.copied = torch.zeros(0, dtype=torch.long, device=self.device)
        """The target id of the last input token of each stream, if the model copies words."""
        self._source: Any = None
        self._room = 0
        self._never = torch.tensor(never_written(model), device=self.device)

    @torch.inference_mode()
    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        M = len(features)
        self.emit_bias = torch.cat([self.emit_bias, self.emit_bias.new_full((M,), emit_bias)])
        self.copied = torch.cat([self.copied, self.copied.new_full((M,), NOT_COPIED)])
        started = self.model.source_state(self._tensor(features))
        self._source = started if self._source is None else join(self._source, started)

    @torch.inference_mode()
    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        index = self._tensor(list(streams))
        self.emit_bias[index] = self.emit_bias.new_tensor(list(emit_bias))
        self._source = put(self._source, index, self.model.source_state(self._tensor(features)))

    @torch.inference_mode()
    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> CellFactors:
        """The source's contribution to the row of each token."""
        index = self._tensor(streams)
        if self.model.copies_words:
            self.copied[index] = self._tensor(copied or [NOT_COPIED] * len(streams))
        row, state = self.model.encode_step(self._tensor(tokens), select(self._source, index))
        self._source = put(self._source, index, state)
        return row

    @torch.inference_mode()
    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        start = torch.full((len(features),), START, device=self.device)
        self._fill(slots, *self.model.decode_step(start, self.model.target_state(self._tensor(features))))

    @torch.inference_mode()
    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        self._fill(slots, *self.model.decode_step(self._tensor(tokens), select(self._state, self._tensor(parents))))

    @torch.inference_mode()
    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, so that there is as much room as before."""
        index, kept = self._tensor(slots), slice(0, len(slots))
        for whole in (self._target, self._state):
            put(whole, kept, select(whole, index))

    @torch.inference_mode()
    def choose(self, row: CellFactors, cells: Cells, forced: Forced) -> list[int | None]:
        """The token that is written in each cell, at most one for each stream; None where it reads or ends."""
        positions, slots, streams, is_last = map(self._tensor, cells[:4])
        here, target = row if len(positions) == len(row.logits) else select(row, positions), select(self._target, slots)
        writes = (self._log_odds(here.transition, target.transition, streams) > 0.0) | is_last
        scores = here.logits + target.logits
        if self.model.copies_words:  # the probability of a word may be the sum of two classes
            scores = self._log_token_probs(scores, streams)
        self._forbid(scores, is_last, forced)
        best = self._ids(scores.argmax(1, keepdim=True), streams)[:, 0]
        is_written = writes & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    @torch.inference_mode()
    def extend(self, row: CellFactors, cells: Cells, width: int, forced: Forced) -> CellScores:
        """What may be written in cells of a row, and whether it is; of few tokens, all of them."""
        positions, slots, streams, is_last = map(self._tensor, cells[:4])
        here, target = select(row, positions), select(self._target, slots)
        log_odds = self._log_odds(here.transition, target.transition, streams)
        log_emit, log_read = self.model.split_odds(log_odds, is_last)
        log_probs = self._log_token_probs(here.logits + target.logits, streams)
        if cells.is_full.any():
            log_probs.masked_fill_(self._tensor(cells.is_full)[:, None] & is_no_end(log_probs), IMPOSSIBLE)
        self._forbid(log_probs, is_last, forced)
        size = log_probs.shape[1]
        if size > _FEW_TOKENS:
            best, tokens = log_probs.topk(min(width, size), 1)
        else:
            best, tokens = log_probs, torch.arange(size, device=self.device).expand_as(log_probs)
        parts = log_emit, log_read, best, self._ids(tokens, streams)
        return CellScores(*(part.cpu().numpy() for part in parts))

    def _tensor(self, values: Sequence[int] | NDArray[Any]) -> Tensor:
        return torch.as_tensor(values, device=self.device)

    def _fill(self, slots: Sequence[int], target: CellFactors, state: SideState) -> None:
        """Stores what belongs to slots; there is room for as many again whenever it has to grow."""
        if not self._room:
            self._target, self._state, self._room = target, state, len(slots)
            return
        if isinstance(slots, range):
            self._make_room(slots.stop)
        index = slice(slots.start, slots.stop) if isinstance(slots, range) else self._tensor(slots)
        put((self._target, self._state), index, (target, state))

    def _make_room(self, slots: int) -> None:
        if slots <= self._room:
            return
        more = torch.zeros(max(slots - self._room, self._room), dtype=torch.long, device=self.device)
        both = self._target, self._state
        self._target, self._state = join(both, select(both, more))
        self._room += len(more)

    def _log_odds(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], streams: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        """Log odds of writing in cells of these streams, with their bias."""
        return self.model.transition.log_odds(source, target) + self.emit_bias.index_select(0, streams)

    def _log_token_probs(self, logits: Float[Tensor, "N V"], streams: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens in cells of these streams; the last is a copy, if the model copies words."""
        log_probs = logits.log_softmax(1)
        return add_row_copy(log_probs, self.copied[streams]) if self.model.copies_words else log_probs

    def _forbid(self, scores: Float[Tensor, "N V"], is_last: Bool[Tensor, " N"], forced: Forced) -> None:
        """Makes tokens that are not allowed impossible, such as the end symbol outside of last rows; in place."""
        scores.index_fill_(1, self._never, IMPOSSIBLE)
        scores[:, END].masked_fill_(~is_last, IMPOSSIBLE)
        for cell, token in forced:
            score = scores[cell, token].item()
            scores[cell] = IMPOSSIBLE
            scores[cell, token] = score

    def _ids(self, tokens: Int[Tensor, "N K"], streams: Int[Tensor, " N"]) -> Int[Tensor, "N K"]:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.model.copies_words:
            return tokens
        return torch.where(tokens == self.model.target_size, self.copied[streams][:, None], tokens)
