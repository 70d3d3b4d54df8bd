import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.recorded import RecordedColumns
from antiphon.search.transducer_beam import search_transducer
from tests.search.test_transducer_beam import small_model, sources

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="recordings are of a GPU")


def step(state):
    number, (total, constant) = state
    return (number + 1, (2 * total + number, constant)), (number, total)


@torch.inference_mode()
def test_recorded_steps_give_what_single_steps_give():
    state = torch.zeros(3, device="cuda"), (torch.ones(3, device="cuda"), 7)
    recorded, recorded_state = RecordedColumns(step), state
    wanted, found = [], []
    for _ in range(5):
        state, note = step(state)
        wanted.append(note)
        recorded_state, note = recorded(recorded_state)
        found.append(note)
    assert [[part.tolist() for part in note] for note in found] == [[part.tolist() for part in note] for note in wanted]
    assert recorded_state[1][0].tolist() == state[1][0].tolist()
    assert recorded_state[1][1] == 7


@pytest.mark.parametrize("outputs", [3, 10])
def test_a_recorded_search_finds_what_a_search_on_the_host_finds(outputs):
    model, batch = small_model(2, target_size=30).float(), Batch.of(sources(5, 9, 0, 7))
    settings = BeamSettings(beam=4, outputs=outputs, nbest=2)
    wanted = search_transducer(model, batch, settings)
    found = search_transducer(model.cuda(), batch.to("cuda"), settings)
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    assert [[h.rows for h in each] for each in found] == [[h.rows for h in each] for each in wanted]
