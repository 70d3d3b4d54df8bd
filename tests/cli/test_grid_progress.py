"""A search says how far it has come."""

import io
import itertools
from dataclasses import replace

import pytest
from rich.console import Console

from antiphon.cli.grid import GridProgress
from antiphon.settings_search.trials import TrialResult

RUNNING = TrialResult(("train.seed=0",), 2.0, 5, 1.0, state="running", number=0, max_epochs=10)
OTHERS = [
    TrialResult(("train.seed=1",), 1.5, 10, 3.0, number=1, max_epochs=10),
    TrialResult(("train.seed=2",), problem="no such file", state="failed", number=2),
    TrialResult(("train.seed=3",), 9.0, 3, 1.0, state="pruned", number=3, max_epochs=10),
]


@pytest.mark.parametrize("terminal", [True, False])
def test_every_epoch_moves_the_search_and_every_end_leaves_a_line(terminal):
    out = io.StringIO()
    seconds = itertools.count(step=10)
    console = Console(file=out, force_terminal=terminal, width=80, markup=False, highlight=False)
    with GridProgress(console, "perplexity", 4, clock=lambda: next(seconds)) as progress:
        assert progress.summary([]) == "0 of 4 trials"
        progress.show([RUNNING])
        assert progress.summary([RUNNING]).endswith("left")
        ended = [replace(RUNNING, epochs=10, state="complete"), *OTHERS]
        for number in range(1, 5):
            progress.show(ended[:number])
        progress.show(ended)
    lines = [
        "1 of 4  train.seed=0  dev perplexity 2",
        "2 of 4  train.seed=1  dev perplexity 1.5",
        "3 of 4  train.seed=2  no such file",
        "4 of 4  train.seed=3  pruned in epoch 3, dev perplexity 9",
    ]
    for line in lines:
        assert out.getvalue().count(line) == 1
    assert ("5/10" in out.getvalue()) == terminal
