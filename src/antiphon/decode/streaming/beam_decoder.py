"""Online beam search with PyTorch: what the outputs of a column are extended by."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.decode.allowed_tokens import is_no_end
from antiphon.decode.hypothesis import BeamSettings
from antiphon.decode.streaming.beam_policy import BeamPolicy, Candidate
from antiphon.decode.streaming.online_decoder import OnlineDecoder, select_factors, start_decoder
from antiphon.decode.streaming.prefix_tree import PrefixTree
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors


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

    def _restart_target(self, stream: int, features: Int[Tensor, "1 F"]) -> None:
        self._restart_root(stream, *self._start_target(features))

    def _extend(
        self, nodes: list[int], positions: list[int], scores: list[float], factors: CellFactors, *, is_last: bool
    ) -> tuple[list[float], dict[int, list[Candidate]]]:
        here = select_factors(factors, positions)
        owners = [self.tree.owner[node] for node in nodes]
        target = select_factors(self.tree.target, nodes)
        log_emit, log_shift = self._log_moves(here.transition, target.transition, owners, is_last=is_last)
        ready = torch.tensor(scores, dtype=torch.float64, device=self.device) + log_emit
        log_probs = self._log_token_probs(here.logits, target.logits, owners, can_end=is_last)
        return log_shift.tolist(), self._candidates(nodes, owners, ready, log_probs)

    def _candidates(
        self, nodes: list[int], streams: list[int], ready: Float[Tensor, " N"], log_probs: Float[Tensor, "N V"]
    ) -> dict[int, list[Candidate]]:
        """The best tokens of each stream's cell, best first."""
        is_full = self._must_end(nodes)
        if any(is_full):
            log_probs[is_full] = log_probs[is_full].masked_fill(is_no_end(log_probs), IMPOSSIBLE)
        self._keep_to_prefixes(log_probs, streams, [self.tree.length[node] for node in nodes])
        log_probs, tokens = log_probs.topk(min(self.width, log_probs.shape[1]), 1)
        tokens = self._ids(tokens, streams)
        scores = ready[:, None] + log_probs
        row, rank = self._possible(scores, streams).nonzero(as_tuple=True)
        found = zip(scores[row, rank].tolist(), row.tolist(), tokens[row, rank].tolist(), strict=True)
        return self._best_by_stream(nodes, list(found))

    def _possible(self, scores: Float[Tensor, "N K"], streams: list[int]) -> Bool[Tensor, "N K"]:
        """Which scores are within ``threshold`` of the best of their stream: few, so that only those are compared."""
        index = torch.tensor(streams, device=self.device)
        best = scores.new_full((len(self.root),), IMPOSSIBLE).scatter_reduce(0, index, scores.amax(1), "amax")
        return (scores > IMPOSSIBLE) & (scores >= (best[index] - self.settings.threshold)[:, None])
