import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.channel_lattice import ChannelLattice
from antiphon.models.left_to_right import join
from antiphon.torch_free.vocab import END
from tests.decode.test_rescoring import components, sources

CHANNELS = [
    {},
    {"final_write": "forced"},
    {"transition": "geometric"},
    {"layers": 2},
    {"copy_unknown": True, "feature_size": 8},
]
FEATURES = np.array([5, 7], np.int32)


@pytest.mark.parametrize("settings", CHANNELS)
@torch.no_grad()
def test_incremental_channel_scores_equal_a_fresh_forward_pass_for_every_prefix(settings):
    _, model, _ = components(**settings)
    (source,) = sources(5)
    target = torch.tensor([4, 5, 5, 4], dtype=torch.int32).numpy()
    batch = Batch.of([target], [source], [FEATURES])
    moves = model.moves(batch)
    channel = ChannelLattice(model, batch.target, batch.features)
    rows, only, forward = channel.start(), torch.zeros(1, dtype=torch.long), None
    for j, token in enumerate(batch.source[0]):
        rows = channel.append_rows(rows, only, token[None], only)
        forward = slow_row(forward, moves.log_write[0, j], None if j == 0 else moves.log_read[0, j - 1])
        torch.testing.assert_close(rows.scores.last[0], forward + moves.log_write[0, j])
    torch.testing.assert_close(rows.scores.last[:, -1], model.log_prob(batch))


def slow_row(before, log_write, log_read_before):
    """Forward scores of one more row, cell by cell."""
    forward = []
    for i in range(len(log_write)):
        arriving = (
            torch.tensor(0.0 if i == 0 else float("-inf"), dtype=torch.float64)
            if before is None
            else before[i] + log_read_before[i]
        )
        forward.append(arriving if i == 0 else torch.logaddexp(arriving, forward[-1] + log_write[i - 1]))
    return torch.stack(forward)


@pytest.mark.parametrize("settings", CHANNELS)
@torch.no_grad()
def test_a_channel_that_grows_both_ways_equals_a_fresh_forward_pass(settings):
    _, model, _ = components(1, **settings)
    (source,), target = sources(4, seed=1), [4, 5, 5, END]
    channel = ChannelLattice(
        model, torch.zeros(1, 0, dtype=torch.long), torch.from_numpy(FEATURES)[None].long(), grows=True
    )
    rows = channel.start()

    def add_row(rows, parent, token):
        index = torch.tensor([parent])
        return join(rows, channel.append_rows(rows, index, torch.tensor([token]), torch.zeros_like(index)))

    for parent, token in enumerate(target[:2]):  # two rows before any column, two columns, a row, the rest
        rows = add_row(rows, parent, token)
    for token in source[:2]:
        rows = channel.append_column(rows, int(token), range(-1, 2), [[0], [1], [2]], empty_output=0)
    rows = add_row(rows, 2, 5)
    for token in [*source[2:], END]:
        rows = channel.append_column(rows, int(token), range(-1, 3), [[0], [1], [2], [3]], empty_output=0)
    rows = add_row(rows, 3, END)
    pair = Batch.of([np.array(target[:-1], np.int32)], [source], [FEATURES])
    torch.testing.assert_close(rows.scores.last[-1:, -1], model.log_prob(pair))
