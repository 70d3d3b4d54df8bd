"""Greedy online decoding: writes the most probable token as long as writing is more probable than reading on."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors, start_decoder, step_decoder
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.online_policy import GreedyPolicy
from antiphon.torch_free.vocab import END


class GreedyDecoder(GreedyPolicy, OnlineDecoder):
    """Keeps one output for each stream, which grows while writing is more probable than reading on."""

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model, features, settings, emit_bias)
        self.tokens_written = [0] * len(features)
        self._target, self._state = start_decoder(model, features)

    def _add_targets(self, features: Int[Tensor, "M F"]) -> None:
        target, state = start_decoder(self.model, features)
        self._target = CellFactors(*(torch.cat(parts) for parts in zip(self._target, target, strict=True)))
        self._state = self._state.join(state)
        self.tokens_written += [0] * len(features)

    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        index = torch.tensor(streams, device=self.device)
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self._state = self._state.replace(index, state)
        for stream in streams:
            self.tokens_written[stream] = 0

    def _choose(
        self, streams: list[int], positions: list[int], factors: CellFactors, is_last: list[bool]
    ) -> list[int | None]:
        index, last = (torch.tensor(part, device=self.device) for part in (streams, is_last))
        here = factors if len(positions) == len(factors.logits) else select_factors(factors, positions)
        target = select_factors(self._target, index)
        writes = (self._log_odds(here.transition, target.transition, index) > 0.0) | last
        scores = self._scores(here.logits + target.logits, index, last)
        self._keep_to_prefixes(scores, streams, [self.tokens_written[stream] for stream in streams])
        best = self._ids(scores.argmax(1, keepdim=True), index)[:, 0]
        is_written = writes & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def _scores(
        self, logits: Float[Tensor, "N V"], streams: Int[Tensor, " N"], is_last: Bool[Tensor, " N"]
    ) -> Float[Tensor, "N V"]:
        """What tokens are compared by: logits, unless the probability of a word may be the sum of two classes."""
        if self.model.copies_words:
            return self._log_token_probs(logits, streams, is_last)
        return self._forbid(logits, is_last)

    def _advance(self, streams: list[int], tokens: list[int]) -> None:
        index = torch.tensor(streams, device=self.device)
        given = torch.tensor(tokens, device=self.device)
        target, state = step_decoder(self.model, given, self._state.select(index))
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self._state = self._state.put(index, state)
