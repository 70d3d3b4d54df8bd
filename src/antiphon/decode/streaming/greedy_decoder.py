"""Greedy online decoding: writes the most probable token as long as writing is more probable than reading on."""

import torch
from jaxtyping import Int
from torch import Tensor

from antiphon.data.vocab import END
from antiphon.decode.hypothesis import BeamSettings
from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors, start_decoder, step_decoder
from antiphon.decode.streaming.online_policy import GreedyPolicy
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors


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

    def _restart_target(self, stream: int, features: Int[Tensor, "1 F"]) -> None:
        target, state = self._start_target(features)
        for whole, part in zip(self._target, target, strict=True):
            whole[stream] = part[0]
        self._state = self._state.replace(torch.tensor([stream], device=self.device), state)
        self.tokens_written[stream] = 0

    def _choose(
        self, streams: list[int], positions: list[int], factors: CellFactors, *, is_last: bool
    ) -> list[int | None]:
        here, target = select_factors(factors, positions), select_factors(self._target, streams)
        log_emit, log_shift = self._log_moves(here.transition, target.transition, streams, is_last=is_last)
        log_probs = self._log_token_probs(here.logits, target.logits, streams, can_end=is_last)
        self._keep_to_prefixes(log_probs, streams, [self.tokens_written[stream] for stream in streams])
        best = self._ids(log_probs.argmax(1, keepdim=True), streams)[:, 0]
        writes = ((log_emit > log_shift) | is_last) & (best != END)
        return [token if does else None for token, does in zip(best.tolist(), writes.tolist(), strict=True)]

    def _advance(self, streams: list[int], tokens: list[int]) -> None:
        index = torch.tensor(streams, device=self.device)
        given = torch.tensor(tokens, device=self.device)
        target, state = step_decoder(self.model, given, self._state.select(index))
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self._state = self._state.put(index, state)
