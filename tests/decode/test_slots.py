import torch

from antiphon.decode.beam_search import scatter_to_slots


def test_values_go_into_their_slots_and_the_others_are_empty():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = scatter_to_slots(values, torch.tensor([0, 2]), 4, empty=-1.0)
    assert found.tolist() == [[1.0, 2.0], [-1.0, -1.0], [3.0, 4.0], [-1.0, -1.0]]


def test_where_every_slot_has_a_value_nothing_is_copied():
    values = torch.arange(3)
    assert scatter_to_slots(values, torch.arange(3), 3) is values
