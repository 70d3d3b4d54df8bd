"""Loading of runs by verbs, which choose the number of threads for the whole process."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.api import Model


def load_run(run: Path, device: str, threads: int | None) -> "Model":
    """The trained model of a run folder; without ``threads``, their number follows from its size."""
    import torch

    from antiphon.api import load
    from antiphon.device import choose_threads
    from antiphon.runs.kinds import RANKING_KINDS

    model = load(run, device=device, threads=threads)
    if threads is None:
        recipe = model.recipe
        ranks = recipe.model.kind in RANKING_KINDS
        torch.set_num_threads(
            choose_threads(recipe, recipe.model.hidden_size if ranks else len(model.codec.target.vocab))
        )
    return model
