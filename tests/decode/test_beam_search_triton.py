"""Beam search with kernels finds what it finds without them."""

import pytest
import torch

from antiphon.decode.beam_search import BeamSearch, search_outputs
from tests.decode.small_models import batch_of, small_model, sources
from tests.networks import beam_settings

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log"),  # of the interpreter
]


@pytest.mark.parametrize("name", ["transducer", "geometric", "forced"])
@torch.inference_mode()
def test_a_search_by_kernels_finds_what_its_reference_finds(name, device, monkeypatch):
    model, batch = small_model(name, 2, target_size=9).float(), batch_of(sources(4, 2))
    settings = beam_settings(beam=2, nbest=2, max_length_ratio=1.0, max_length_extra=1)
    wanted = search_outputs(model, batch, settings)
    monkeypatch.setattr("antiphon.nn.factored_softmax.has_kernel", lambda logits: True)
    monkeypatch.setattr("antiphon.nn.transducer_layers._fits_factors", lambda *sides: False)  # as on a GPU
    found = BeamSearch(model.to(device), batch.to(device), settings, static_shapes=True).run()
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], rel=1e-4)
