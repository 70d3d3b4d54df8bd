"""What only the transformer has: a state that grows, tied outputs, no longest length."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from antiphon.data.batch import Batch
from antiphon.decode.beam_search import BeamSearch
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.transformer import Transformer
from tests.decode.small_models import batch_of, small_model, sources
from tests.networks import beam_settings, build_network


def pairs_of(*lengths):
    draw = np.random.default_rng(1)
    return Batch.of(*([draw.integers(4, 9, length) for length in lengths] for _ in range(2)))


@torch.no_grad()
def test_a_step_reads_one_token_and_adds_its_keys_and_values():
    model, token = small_model("transformer"), torch.tensor([4, 5])
    memory, state = model.start(batch_of(sources(3, 5)))
    read = []
    model.decoder[0].register_forward_pre_hook(lambda layer, inputs: read.append(inputs[0].shape[1]))
    for length in range(4):
        assert [layer.keys.shape for layer in state.layers] == [(2, 2, length, 4)] * 2
        _, state = model.step(memory, state, token, torch.arange(2))
    assert read == [1] * 4


def test_steps_have_static_shapes_where_room_is_reserved(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.has_kernel", lambda parameter: True)
    transformer, attention = small_model("tied_transformer"), small_model("attention")
    ids = MemberIds(torch.arange(9), torch.arange(6), torch.arange(8))
    ensemble = Ensemble([attention, transformer], [ids, ids])
    for model, grows in ((transformer, True), (attention, False), (ensemble, True)):
        assert model.state_grows is grows
        search = BeamSearch(model, batch_of(sources(3)), beam_settings())
        assert search.static_shapes
        beam = search._first_beam()
        shapes = [leaf.shape for leaf in tree_leaves(beam) if isinstance(leaf, Tensor)]
        for _ in range(3):
            beam, _ = search._step(beam)
            assert [leaf.shape for leaf in tree_leaves(beam) if isinstance(leaf, Tensor)] == shapes


def test_steps_are_not_captured_where_too_much_room_would_be_reserved(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.has_kernel", lambda parameter: True)
    monkeypatch.setattr("antiphon.models.left_to_right._MAX_RESERVED", 10)
    for kind, is_static in (("tied_transformer", False), ("attention", True)):
        assert BeamSearch(small_model(kind), batch_of(sources(3)), beam_settings()).static_shapes is is_static


@pytest.mark.parametrize("padded", [(4, 8, 8), (6, 12, 20)])
def test_padding_of_captured_steps_changes_nothing(padded):
    model, batch = build_network(Transformer, 9, 9, layers=2).double(), pairs_of(3, 0, 6)
    found = model.log_prob(batch.padded(*padded))
    torch.testing.assert_close(found[:3], model.log_prob(batch))
    assert found.isfinite().all()
    found[:3].sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model.log_prob(batch).sum().backward()
    torch.testing.assert_close(gradients, [parameter.grad for parameter in model.parameters()])


def test_a_training_step_has_no_device_sync():
    model = build_network(Transformer, 9, 9, feature_size=8, layers=2, dropout=0.1)
    batch = Batch.of([np.array([4, 5])] * 2, [np.array([6])] * 2, [np.array([4])] * 2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = Batch(*map(mode.from_tensor, batch))
        (-model.log_prob(fake)).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())


def test_a_tied_output_layer_is_the_table_of_target_vectors():
    plain, tied = (build_network(Transformer, 9, 9, tie_output=tie) for tie in (False, True))
    count, fewer = (sum(parameter.numel() for parameter in model.parameters()) for model in (plain, tied))
    assert count - fewer == plain.target_embedding.weight.numel()
    assert len({tensor.data_ptr() for tensor in tied.state_dict().values()}) == len(tied.state_dict())
    plain.load_state_dict(tied.state_dict() | {"target_embedding.weight": tied.output.weight})
    torch.testing.assert_close(plain.log_prob(pairs_of(3, 2)), tied.log_prob(pairs_of(3, 2)))


@torch.no_grad()
def test_there_is_no_longest_length():
    model, long = build_network(Transformer, 9, 9).eval(), pairs_of(3000)
    assert model.log_prob(long).isfinite().all()
    assert not torch.equal(*model.attention(pairs_of(1500))[0, :2].flatten().split(1501))
