import pytest
import torch

from antiphon.decode.beam_search import search_outputs
from antiphon.device import CapturedStep
from tests.decode.small_models import MODELS, batch_of, small_model, sources
from tests.networks import beam_settings

pytestmark = pytest.mark.gpu


def step(state):
    number, (total, constant) = state
    return (number + 1, (2 * total + number, constant)), (number, total)


@torch.inference_mode()
def test_replayed_steps_give_what_single_steps_give():
    state = torch.zeros(3, device="cuda"), (torch.ones(3, device="cuda"), 7)
    captured, captured_state = CapturedStep(step, torch.device("cuda")), state
    wanted, found = [], []
    for _ in range(5):
        state, note = step(state)
        wanted.append(note)
        captured_state, note = captured(captured_state)
        found.append(note)
    assert [[part.tolist() for part in note] for note in found] == [[part.tolist() for part in note] for note in wanted]
    assert captured_state[1][0].tolist() == state[1][0].tolist()
    assert captured_state[1][1] == 7


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_a_search_on_a_gpu_finds_what_a_search_on_a_cpu_finds(name, beam):
    model, batch = small_model(name, 2, target_size=30, scale=2.0).float(), batch_of(sources(5, 9, 0, 7))
    settings = beam_settings(beam=beam, nbest=2)
    wanted = search_outputs(model, batch, settings)
    found = search_outputs(model.cuda(), batch.to("cuda"), settings)
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], rel=1e-4, abs=1e-3)
