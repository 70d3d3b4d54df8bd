"""States that are carried from token to token."""

import pytest
import torch

from antiphon.models.left_to_right import join, put, select
from antiphon.models.transducer import SideState
from antiphon.nn.recurrent import LSTMState


@pytest.mark.parametrize("features", [None, torch.randn(3, 4)])
def test_states_are_selected_joined_and_put_together(features):
    state = SideState(LSTMState(torch.randn(2, 3, 5), torch.randn(2, 3, 5)), features)
    part = select(state, torch.tensor([2, 0]))
    assert torch.equal(part.network.hidden, state.network.hidden[:, [2, 0]])
    joined = join(part, select(state, torch.tensor([1])))
    again = select(joined, torch.tensor([1, 2, 0]))
    for ours, theirs in zip([*again.network, again.features], [*state.network, state.features], strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)
    put(state, torch.tensor([1]), select(part, torch.tensor([0])))
    assert torch.equal(state.network.hidden[:, 1], state.network.hidden[:, 2])
