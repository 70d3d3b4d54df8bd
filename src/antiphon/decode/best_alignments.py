"""The best alignment of each output of a search."""

from dataclasses import replace

import numpy as np
import torch

from antiphon.data.batch import Batch
from antiphon.data.vocab import UNKNOWN
from antiphon.decode.hypothesis import Hypothesis
from antiphon.lattice import best_path
from antiphon.models.transducer import Transducer


def have_unknown(found: list[list[Hypothesis]]) -> bool:
    """Whether an output has unknown tokens, which need an alignment to be copied."""
    return any(UNKNOWN in hypothesis.tokens for hypotheses in found for hypothesis in hypotheses)


@torch.inference_mode()
def add_alignments(model: Transducer, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """The same hypotheses, each with its best alignment."""
    flat = [(b, hypothesis) for b, hypotheses in enumerate(found) for hypothesis in hypotheses]
    if not flat:
        return found
    targets = Batch.of([], [np.array(hypothesis.tokens[:-1], np.int32) for _, hypothesis in flat]).to(
        batch.source.device
    )
    index = torch.tensor([b for b, _ in flat], device=batch.source.device)
    aligned: list[list[Hypothesis]] = [[] for _ in found]
    sources = Batch(*(tensor[index] for tensor in batch))
    pairs = sources._replace(target=targets.target, target_lengths=targets.target_lengths)
    # Best paths take many small steps: faster on a CPU than launching their kernels.
    lattice = (part.cpu() for part in (*model.moves(pairs), pairs.source_lengths, pairs.target_lengths))
    rows = best_path(*lattice).alignment.tolist()
    for (b, hypothesis), alignment in zip(flat, rows, strict=True):
        aligned[b].append(replace(hypothesis, alignment=tuple(alignment[: len(hypothesis.tokens)])))
    return aligned
