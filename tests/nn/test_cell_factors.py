"""Keys of tokens and of runs of them, and states that are carried from token to token."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.nn.cell_factors import SideState, repeat_keys


def start(count):
    return SideState.initial((torch.zeros(1, count, 2), torch.zeros(1, count, 2)), None).key


def step_by_step(tokens):
    key, keys = start(len(tokens)), []
    for column in tokens.T:
        key = repeat_keys(column[:, None], key)[:, 0]
        keys.append(key)
    return torch.stack(keys, 1)


def key_of(token, run):
    (key,) = repeat_keys(torch.full((1, run), token), start(1))[0, -1:].tolist()
    return key


@given(st.lists(st.lists(st.integers(-1, 3), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 6))
def test_keys_of_a_whole_sequence_equal_those_of_its_steps_and_parts(rows, cut):
    tokens = torch.tensor(rows)
    whole = repeat_keys(tokens, start(len(tokens)))
    assert torch.equal(whole, step_by_step(tokens))
    first = repeat_keys(tokens[:, :cut], start(len(tokens)))
    assert torch.equal(whole, torch.cat([first, repeat_keys(tokens[:, cut:], first[:, -1])], 1))


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=9))
def test_a_key_tells_the_token_and_its_run_up_to_three(tokens):
    found = repeat_keys(torch.tensor([tokens]), start(1))[0].tolist()
    run = 0
    for place, key in enumerate(found):
        run = run + 1 if place and tokens[place] == tokens[place - 1] else 1
        assert key == key_of(tokens[place], min(run, 3))


def test_doubled_and_tripled_letters_have_keys_of_their_own():
    keys = repeat_keys(torch.tensor([[5, 5, 5, 5, 6, 5]]), start(1))[0].tolist()
    one, two, three, four, other, again = keys
    assert len({one, two, three, other}) == 4
    assert four == three
    assert again == one


def test_tokens_without_a_counterpart_never_have_the_key_of_a_target_token():
    without = {key_of(-1, run) for run in (1, 2, 3)} | set(start(1).tolist())
    assert not without & {key_of(token, run) for token in range(9) for run in (1, 2, 3)}


@pytest.mark.parametrize("features", [None, torch.randn(3, 4)])
def test_states_are_selected_joined_and_put_together(features):
    state = SideState(torch.randn(2, 3, 5), torch.randn(2, 3, 5), torch.tensor([7, 8, 9]), features)
    part = state.select(torch.tensor([2, 0]))
    assert part.key.tolist() == [9, 7]
    joined = part.join(state.select(torch.tensor([1])))
    again = joined.select(torch.tensor([1, 2, 0]))
    for ours, theirs in zip(again, state, strict=True):
        assert ours is theirs is None or torch.equal(ours, theirs)
    state.put(torch.tensor([1]), part.select(torch.tensor([0])))
    assert state.key.tolist() == [7, 9, 9]
    assert torch.equal(state.hidden[:, 1], state.hidden[:, 2])
