"""States that are carried from token to token."""

import pytest
import torch

from antiphon.models.transducer_network import SideState


@pytest.mark.parametrize("features", [None, torch.randn(3, 4)])
def test_states_are_selected_joined_and_put_together(features):
    state = SideState(torch.randn(2, 3, 5), torch.randn(2, 3, 5), features)
    part = state.select(torch.tensor([2, 0]))
    assert torch.equal(part.hidden, state.hidden[:, [2, 0]])
    joined = part.join(state.select(torch.tensor([1])))
    again = joined.select(torch.tensor([1, 2, 0]))
    for ours, theirs in zip(again, state, strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)
    state.put(torch.tensor([1]), part.select(torch.tensor([0])))
    assert torch.equal(state.hidden[:, 1], state.hidden[:, 2])
