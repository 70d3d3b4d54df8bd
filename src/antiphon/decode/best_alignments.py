"""The best alignment of each output of a search, by a transducer."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from antiphon.data.batch import Batch
from antiphon.lattice import best_path
from antiphon.models.ensemble_model import Ensemble
from antiphon.models.token_likelihood import output_pairs
from antiphon.models.transducer import Transducer
from antiphon.torch_free.hypothesis import Hypothesis

M = TypeVar("M", bound=nn.Module)


def found_pairs(batch: Batch, found: list[list[Hypothesis]]) -> Batch:
    """A pair for each hypothesis: its source, and its tokens as the target."""
    sources = [b for b, hypotheses in enumerate(found) for _ in hypotheses]
    return output_pairs(batch, sources, [each.tokens for hypotheses in found for each in hypotheses])


def part_of(model: nn.Module, kind: type[M], pairs: Batch) -> tuple[M, Batch] | None:
    """The model, or the member of an ensemble, that is of a kind, with the pairs in its ids; None if there is none."""
    if isinstance(model, Ensemble):
        return model.member_of(kind, pairs)
    return (model, pairs) if isinstance(model, kind) else None


@torch.inference_mode()
def add_alignments(model: nn.Module, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """The same hypotheses, each with its best alignment if there is a transducer."""
    part = part_of(model, Transducer, found_pairs(batch, found))
    if part is None or not any(found):
        return found
    transducer, pairs = part
    # Best paths take many small steps: faster on a CPU than launching their kernels.
    lattice = (tensor.cpu() for tensor in (*transducer.moves(pairs), pairs.source_lengths, pairs.target_lengths))
    rows = iter(best_path(*lattice).alignment.tolist())
    return [[replace(each, alignment=tuple(next(rows)[: len(each.tokens)])) for each in some] for some in found]
