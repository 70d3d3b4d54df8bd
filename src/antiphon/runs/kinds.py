"""The kinds of models, and what each can do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import search_outputs
from antiphon.decode.hypothesis import BeamSettings, Hypothesis
from antiphon.decode.path_search import search_paths
from antiphon.lattice import best_path, posteriors
from antiphon.models.attention import Attention
from antiphon.models.encoder_decoder import EncoderDecoder
from antiphon.models.ensemble_model import Ensemble
from antiphon.models.language_model import LanguageModel
from antiphon.models.transducer import Transducer


class SequenceModel(Protocol):
    """The interface of every neural kind: the log probability of each target of a batch."""

    def log_prob(self, batch: Batch) -> Tensor:
        """``log p(y | x)`` of each pair."""
        ...


@dataclass(frozen=True)
class Explanation:
    """How source and target of one pair are linked: a weight for every cell, and an alignment."""

    weights: Float[Tensor, "I J"]
    alignment: Int[Tensor, " J"]


Search = Callable[[Any, Batch, BeamSettings], list[list[Hypothesis]]]
Explain = Callable[[Any, Batch], Explanation]


@dataclass(frozen=True)
class Kind:
    """A kind of neural model and what it can do.

    ``search`` finds outputs, ``path_search`` outputs with their best alignments; ``explain`` links source and
    target of a single pair; ``explanation`` names the links. No training step may need a device sync, since steps are
    captured as CUDA graphs on a GPU.
    """

    model: Callable[..., nn.Module]
    search: Search | None = None
    explain: Explain | None = None
    explanation: str = ""
    path_search: Search | None = None
    reads_source: bool = True


def align(model: Transducer, pair: Batch) -> Explanation:
    """Posteriors of writing, and the best path."""
    lattice = (*model.moves(pair), pair.source_lengths, pair.target_lengths)
    return Explanation(posteriors(*lattice).write[0], best_path(*lattice).alignment[0])


def attend(model: Attention, pair: Batch) -> Explanation:
    """Attention weights, and the position of the largest weight for each token."""
    weights = model.attention(pair)[0]
    return Explanation(weights, weights.argmax(0))


RANKING_KINDS = frozenset({"matcher", "overlap"})
"""Kinds that rank given answers instead of writing outputs."""

KINDS: dict[str, Kind] = {
    "transducer": Kind(Transducer, search_outputs, align, "alignment", search_paths),
    "encoder_decoder": Kind(EncoderDecoder, search_outputs),
    "attention": Kind(Attention, search_outputs, attend, "attention"),
    "language_model": Kind(LanguageModel, reads_source=False),
    "ensemble": Kind(Ensemble, search_outputs),
}


@torch.inference_mode()
def log_prob(model: nn.Module, batch: Batch) -> Float[Tensor, " B"]:
    """The log probability of each target, without a gradient."""
    scores: Tensor = model.log_prob(batch)  # type: ignore[operator]
    return scores
