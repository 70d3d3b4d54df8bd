"""Online decoding with PyTorch: what the policies of ``online_policy.py`` share."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.decode.allowed_tokens import never_written
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState
from antiphon.nn.copying import add_row_copy
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.online_policy import OnlinePolicy
from antiphon.torch_free.vocab import END, NOT_COPIED, START

_STARTS_KEPT = 64
"""Sets of features whose first decoder state is kept."""


class OnlineDecoder(OnlinePolicy):
    """Decodes inputs that arrive token by token, one for each row of ``features``.

    Every stream has an ``emit_bias`` of its own.
    """

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        self.model, self.settings = model, settings
        weight = model.target_logits.weight
        self.device = weight.device
        self.emit_bias = weight.new_full((len(features),), emit_bias)
        self.prefixes: list[Sequence[int]] = [()] * len(features)
        self.tokens_read = [0] * len(features)
        self._source = model.source_state(features.to(self.device))
        self._starts: dict[tuple[int, ...], tuple[CellFactors, SideState]] = {}
        """What ``start_decoder`` gives for features that streams began with lately."""
        self._never = torch.tensor(never_written(model), device=self.device)
        self.copied = torch.full((len(features),), NOT_COPIED, device=self.device)
        """The target id of the last input token of each stream, if the model copies words."""

    @torch.inference_mode()
    def add(self, features: NDArray[np.int64]) -> None:
        """Adds streams, one for each row of ``features``, after the existing ones."""
        M, ids = len(features), torch.from_numpy(features)
        self.emit_bias = torch.cat([self.emit_bias, self.emit_bias.new_zeros(M)])
        self.copied = torch.cat([self.copied, self.copied.new_full((M,), NOT_COPIED)])
        self.prefixes += [()] * M
        self.tokens_read += [0] * M
        started = self.model.source_state(ids.to(self.device))
        self._source = self._source.join(started)  # type: ignore[arg-type]  # both of one encoder
        self._add_targets(ids)

    @torch.inference_mode()
    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs in the slots of streams; the output of each must begin with the tokens of its prefix."""
        index = torch.tensor(list(streams), device=self.device)
        self.emit_bias[index] = self.emit_bias.new_tensor(list(emit_bias))
        for stream, prefix in zip(streams, prefixes, strict=True):
            self.prefixes[stream] = tuple(prefix)
            self.tokens_read[stream] = 0
        ids = torch.from_numpy(features)
        started = self.model.source_state(ids.to(self.device))
        self._source = self._source.replace(index, started)  # type: ignore[arg-type]  # both of one encoder
        self._restart_targets(list(streams), *self._start_targets(ids))

    def _start_targets(self, features: Int[Tensor, "M F"]) -> tuple[CellFactors, SideState]:
        """The same as ``start_decoder``, computed once for the same features."""
        if len(features) > 1 and (features != features[0]).any():
            return start_decoder(self.model, features)
        key = tuple(features[0].tolist())
        if key not in self._starts:
            if len(self._starts) >= _STARTS_KEPT:
                self._starts.clear()
            self._starts[key] = start_decoder(self.model, features[:1])
        target, state = self._starts[key]
        index = torch.zeros(len(features), dtype=torch.long, device=self.device)
        return select_factors(target, index), state.select(index)

    @abstractmethod
    def _add_targets(self, features: Int[Tensor, "M F"]) -> None:
        """Adds the outputs of new streams."""

    @abstractmethod
    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        """Replaces the outputs of streams by empty ones, with what ``start_decoder`` gives for each."""

    advance = torch.inference_mode()(OnlinePolicy.advance)

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None = None) -> CellFactors:
        """The source's contribution to the row of each token."""
        index, given = (torch.tensor(part, device=self.device) for part in (streams, tokens))
        words = None
        if self.model.copies_words:
            words = torch.tensor(copied or [NOT_COPIED] * len(streams), device=self.device)
            self.copied[index] = words
        side, state = self.model.encode_step(given, self._source.select(index))
        self._source = self._source.put(index, state)  # type: ignore[arg-type]  # both of one encoder
        for stream in streams:
            self.tokens_read[stream] += 1
        return side

    def _log_odds(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], streams: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        """Log odds of writing in cells of these streams, with their bias."""
        return self.model.transition.log_odds(source, target) + self.emit_bias.index_select(0, streams)

    def _log_token_probs(
        self, logits: Float[Tensor, "N V"], streams: Int[Tensor, " N"], is_last: Bool[Tensor, " N"]
    ) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens that each stream may write; the last is a copy, if the model copies words."""
        log_probs = logits.log_softmax(1)
        if self.model.copies_words:
            log_probs = add_row_copy(log_probs, self.copied[streams])
        return self._forbid(log_probs, is_last)

    def _forbid(self, scores: Float[Tensor, "N V"], is_last: Bool[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Makes tokens that are never written impossible, and the end symbol outside of last rows; in place."""
        scores.index_fill_(1, self._never, IMPOSSIBLE)
        scores[:, END].masked_fill_(~is_last, IMPOSSIBLE)
        return scores

    def _keep_to_prefixes(self, log_probs: Float[Tensor, "N V"], streams: list[int], written: list[int]) -> None:
        """Makes all tokens impossible but the next of the prefix, in cells of streams that have not written theirs."""
        if not any(self.prefixes):
            return
        for row, (stream, length) in enumerate(zip(streams, written, strict=True)):
            if length < len(self.prefixes[stream]):
                token = self.prefixes[stream][length]
                log_prob = log_probs[row, token].item()
                log_probs[row] = IMPOSSIBLE
                log_probs[row, token] = log_prob

    def _ids(self, tokens: Int[Tensor, "N K"], streams: Int[Tensor, " N"]) -> Int[Tensor, "N K"]:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.model.copies_words:
            return tokens
        return torch.where(tokens == self.model.target_size, self.copied[streams][:, None], tokens)


def start_decoder(model: Transducer, features: Int[Tensor, "N F"]) -> tuple[CellFactors, SideState]:
    """The target's contribution and state after the start symbol."""
    features = features.to(model.target_logits.weight.device)
    start = torch.full((len(features),), START, device=features.device)
    return step_decoder(model, start, model.target_state(features))


def step_decoder(model: Transducer, tokens: Tensor, state: SideState) -> tuple[CellFactors, SideState]:
    """The target's contribution and state after one more token of each output."""
    target, state = model.decode_prefix(tokens[:, None], state)
    return CellFactors(target.logits[:, 0], target.transition[:, 0]), state


def select_factors(side: CellFactors, positions: list[int] | Int[Tensor, " M"]) -> CellFactors:
    """The factors of some of the cells."""
    index = torch.as_tensor(positions, device=side.logits.device)
    return CellFactors(side.logits.index_select(0, index), side.transition.index_select(0, index))
