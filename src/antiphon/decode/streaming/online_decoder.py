"""Online decoding with PyTorch: what the policies of ``online_policy.py`` share."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.data.copied_words import NOT_COPIED
from antiphon.data.vocab import END, START
from antiphon.decode.allowed_tokens import never_written
from antiphon.decode.hypothesis import BeamSettings
from antiphon.decode.streaming.online_policy import OnlinePolicy
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState
from antiphon.nn.copying import add_row_copy

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
        weight = model.source_logits.weight
        self.device = weight.device
        self.emit_bias = weight.new_full((len(features),), emit_bias)
        self.prefixes: list[Sequence[int]] = [()] * len(features)
        self.tokens_read = [0] * len(features)
        self._source = model.source_state(features.to(self.device))
        self._starts: dict[tuple[int, ...], tuple[CellFactors, SideState]] = {}
        """What ``start_decoder`` gives for features that streams began with lately."""
        self.copied = torch.full((len(features),), NOT_COPIED, device=self.device)
        """The target id of the last input token of each stream, if the model copies words."""

    @torch.inference_mode()
    def add(self, features: NDArray[np.int64]) -> None:
        """Adds streams, one for each row of ``features``, after those that are there."""
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
        self, stream: int, features: NDArray[np.int64], emit_bias: float = 0.0, prefix: Sequence[int] = ()
    ) -> None:
        """Begins a new input in the place of a stream; its output must begin with the tokens of ``prefix``."""
        self.emit_bias[stream] = emit_bias
        self.prefixes[stream] = tuple(prefix)
        self.tokens_read[stream] = 0
        ids = torch.from_numpy(features)
        started = self.model.source_state(ids.to(self.device))
        index = torch.tensor([stream], device=self.device)
        self._source = self._source.replace(index, started)  # type: ignore[arg-type]  # both of one encoder
        self._restart_target(stream, ids)

    def _start_target(self, features: Int[Tensor, "1 F"]) -> tuple[CellFactors, SideState]:
        """The same as ``start_decoder``, computed once for the same features."""
        key = tuple(features[0].tolist())
        if key not in self._starts:
            if len(self._starts) >= _STARTS_KEPT:
                self._starts.clear()
            self._starts[key] = start_decoder(self.model, features)
        return self._starts[key]

    @abstractmethod
    def _add_targets(self, features: Int[Tensor, "M F"]) -> None:
        """Adds the outputs of new streams."""

    @abstractmethod
    def _restart_target(self, stream: int, features: Int[Tensor, "1 F"]) -> None:
        """Replaces the output of a stream by an empty one."""

    @torch.inference_mode()
    def read(
        self, streams: Sequence[int], tokens: Sequence[int], copied: Sequence[int] | None = None
    ) -> list[list[int]]:
        """One more input token of some streams; the tokens that each of them now writes."""
        return super().read(streams, tokens, copied)

    @torch.inference_mode()
    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the remaining tokens of each, without the end symbol."""
        return super().finish(streams)

    def _read(self, streams: Sequence[int], tokens: Sequence[int], copied: Sequence[int] | None = None) -> CellFactors:
        """The source's contribution to the row of each token."""
        index = torch.tensor(list(streams), device=self.device)
        given = torch.tensor(list(tokens), device=self.device)
        self.copied[index] = torch.tensor(copied or [NOT_COPIED] * len(streams), device=self.device)
        words = self.copied[index] if self.model.copies_words else None
        side, state = self.model.encode_step(given, self._source.select(index), words)
        self._source = self._source.put(index, state)  # type: ignore[arg-type]  # both of one encoder
        for stream in streams:
            self.tokens_read[stream] += 1
        return side

    def _log_moves(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], streams: list[int], *, is_last: bool
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Log probabilities of writing and of reading on in cells of these streams, with their bias."""
        log_odds = self.model.transition.log_odds(source, target)
        log_odds = log_odds + self.emit_bias.index_select(0, torch.tensor(streams, device=self.device))
        return self.model.split_odds(log_odds, torch.full_like(log_odds, is_last, dtype=torch.bool))

    def _log_token_probs(
        self, source: Float[Tensor, "N V"], target: Float[Tensor, "N V"], streams: list[int], *, can_end: bool
    ) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens that each stream may write; the last is a copy, if the model copies words."""
        log_probs = (source + target).log_softmax(1)
        if self.model.copies_words:
            log_probs = add_row_copy(log_probs, self.copied[streams])
        log_probs[:, [*never_written(self.model), *([] if can_end else [END])]] = IMPOSSIBLE
        return log_probs

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

    def _ids(self, tokens: Int[Tensor, "N K"], streams: list[int]) -> Int[Tensor, "N K"]:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.model.copies_words:
            return tokens
        return torch.where(tokens == self.model.target_size, self.copied[streams][:, None], tokens)


def start_decoder(model: Transducer, features: Int[Tensor, "N F"]) -> tuple[CellFactors, SideState]:
    """The target's contribution and state after the start symbol."""
    features = features.to(model.source_logits.weight.device)
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
