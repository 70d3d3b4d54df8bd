"""A grid search says how far it has come."""

import io
import itertools
from types import SimpleNamespace

import pytest
from rich.console import Console

from antiphon.cli.grid_progress import GridProgress
from antiphon.recipe.schema import Recipe
from antiphon.tune.grid_search import Result

CELLS = [SimpleNamespace(settings=(f"train.seed={seed}",), recipe=Recipe()) for seed in range(4)]


@pytest.mark.parametrize("terminal", [True, False])
def test_every_epoch_moves_the_search_and_every_end_leaves_a_line(terminal):
    out = io.StringIO()
    seconds = itertools.count(step=10)
    console = Console(file=out, force_terminal=terminal, width=80, markup=False, highlight=False)
    with GridProgress(console, len(CELLS), clock=lambda: next(seconds)) as progress:
        assert progress.summary() == "0 of 4 combinations"
        progress.update(CELLS[0], "train: 800 pairs\n")
        assert progress.summary() == "0 of 4 combinations"
        progress.update(CELLS[0], "epoch 5/10  loss 1.0  dev perplexity 2.0 (best)  1.0 s\n")
        assert "epoch 5/10" in progress.progress.tasks[-1].description
        assert progress.summary().endswith("left")
        progress.end(Result(CELLS[0], 1.5, 10, 3.0))
        assert "1 of 4 combinations" in progress.summary()
        progress.end(Result(CELLS[1], problem="no such file"))
    kept = out.getvalue()
    assert "1 of 4  train.seed=0  dev perplexity 1.5" in kept
    assert "2 of 4  train.seed=1  no such file" in kept
