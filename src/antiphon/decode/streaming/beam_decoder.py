"""Online beam search with PyTorch: what the outputs of a column are extended by."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.decode.allowed_tokens import is_no_end
from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors, start_decoder
from antiphon.decode.streaming.prefix_tree import PrefixTree
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState
from antiphon.torch_free.beam_policy import BeamPolicy
from antiphon.torch_free.beam_row import BeamRow, CellScores
from antiphon.torch_free.hypothesis import BeamSettings

_FEW_TOKENS = 256
"""Vocabularies of up to this size are compared as a whole, which is faster than to pick the best tokens first."""


class BeamDecoder(BeamPolicy, OnlineDecoder):
    """Keeps several active outputs for each stream and writes the prefix that they share."""

    tree: PrefixTree

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model, features, settings, emit_bias)
        self._begin(PrefixTree(model, features), settings.beam)

    def _add_targets(self, features: Int[Tensor, "M F"]) -> None:
        self._add_roots(len(features), *start_decoder(self.model, features))

    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        self._restart_roots(streams, target, state)

    def _extend(self, row: BeamRow, factors: CellFactors) -> CellScores:
        positions, streams, is_last = (
            torch.from_numpy(part).to(self.device)
            for part in (row.positions, row.streams[row.positions], row.is_last[row.positions])
        )
        here, target = select_factors(factors, positions), select_factors(self.tree.target, row.nodes)
        log_odds = self._log_odds(here.transition, target.transition, streams)
        log_emit, log_shift = self.model.split_odds(log_odds, is_last)
        log_probs = self._log_token_probs(here.logits + target.logits, streams, is_last)
        best, tokens = self._best_tokens(log_probs, row, streams)
        return CellScores(*(part.cpu().numpy() for part in (log_emit, log_shift, best, tokens)))

    def _best_tokens(
        self, log_probs: Float[Tensor, "N V"], row: BeamRow, streams: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
        """Log probabilities and ids of the best tokens of each output, or of all if there are few."""
        if row.is_full.any():
            is_full = torch.from_numpy(row.is_full).to(self.device)
            log_probs.masked_fill_(is_full[:, None] & is_no_end(log_probs), IMPOSSIBLE)
        if any(self.prefixes):
            self._keep_to_prefixes(log_probs, streams.tolist(), row.lengths.tolist())
        size = log_probs.shape[1]
        if size > _FEW_TOKENS:
            log_probs, tokens = log_probs.topk(min(self.width, size), 1)
        else:
            tokens = torch.arange(size, device=self.device).expand_as(log_probs)
        return log_probs, self._ids(tokens, streams)
