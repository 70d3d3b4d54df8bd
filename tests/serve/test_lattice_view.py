"""The lattice of the page against sums over every path."""

import math

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.serve.lattice_view import LatticeInput, LatticeView, transducer_of
from antiphon.serve.streams import StreamHistory


def view(model, source, target, **more):
    return LatticeView(model, transducer_of(model), LatticeInput([*source], [*target], **more))


def paths(rows, columns):
    """Every way to write ``columns`` tokens in rows that never fall: the row of each token."""
    if not columns:
        return [()]
    return [(*before, row) for before in paths(rows, columns - 1) for row in range(before[-1] if before else 0, rows)]


def weight(lattice, path):
    """The probability of a path of an input that has not ended: it leaves the last row after its last token."""
    total, row = 0.0, 0
    for column, written in enumerate(path):
        total += lattice.log_read[row:written, column].sum().item()
        total += (lattice.log_emit[written, column] + lattice.log_token[written, column]).item()
        row = written
    return math.exp(total + lattice.log_read[row:, len(path)].sum().item())


@pytest.mark.parametrize("emit_bias", [0.0, 1.0])
@pytest.mark.parametrize(("source", "target"), [("d", "d"), ("dag", "da"), ("dagi", "daa"), ("da", "")])
def test_a_part_of_an_input_is_summed_over_every_path(models, source, target, emit_bias):
    lattice = view(models["online"], source, target, ended=False, emit_bias=emit_bias)
    found = {path: weight(lattice, path) for path in paths(len(source), len(target))}
    total = sum(found.values())
    assert lattice.log_prob == pytest.approx(math.log(total), abs=1e-9)
    if target:
        assert tuple(lattice.rows[:-1]) == max(found, key=found.get)
    for row in range(len(source)):
        for column in range(len(target)):
            wanted = sum(each for path, each in found.items() if path[column] == row) / total
            assert lattice.posterior.write[row, column].item() == pytest.approx(wanted, abs=1e-9)
    last = lattice.posterior.write[:, -1]
    assert last.tolist() == pytest.approx([0.0] * (len(source) - 1) + [1.0])


def test_next_tokens_and_reading_on_leave_only_tokens_that_are_never_written(models):
    lattice = view(models["online"], "dagi", "daa", ended=False)
    for column in range(4):
        found = lattice.next_tokens(column, top=100)
        assert 0.5 < sum(value for _, value in found["summed"]) + found["read_on"] < 1 + 1e-4


@torch.inference_mode()
def test_next_tokens_of_a_whole_input_are_those_of_decoding(models):
    model = models["offline"]
    lattice, module = view(model, "dagi", "daa"), model.module
    from antiphon.torch_free.readers import Source
    from antiphon.torch_free.vocab import START

    batch = Batch.of_text(model.codec, [Source("dagi")])
    memory, state = module.start(batch)
    tokens = [START, *model.codec.target.vocab.encode("daa").tolist()]
    for column, token in enumerate(tokens):
        log_next, state = module.step(memory, state, torch.tensor([token]), torch.tensor([0]))
        summed = dict(map(tuple, lattice.next_tokens(column, top=100)["summed"]))
        for name in "dagi":
            wanted = log_next[0, model.codec.target.vocab.encode([name])[0]].exp().item()
            assert summed.get(name, 0.0) == pytest.approx(wanted, abs=1e-5)


def test_an_output_is_dropped_once_nothing_active_begins_with_it():
    history = StreamHistory()
    history.read(["k"])
    history.watch([(["a"], -0.1), (["b"], -2.0)])
    history.read(["l"])
    history.watch([(["a", "x"], -0.3), (["a"], -0.9)])
    assert [(each["tokens"], each["step"]) for each in history.latest_dropped(5)] == [(["b"], 2)]
    history.write(["a"])
    history.read(["m"])
    history.watch([(["x"], -0.3)])
    assert history.best == ["a", "x"]
    assert [each["tokens"] for each in history.latest_dropped(5)] == [["b"]]
    assert history.average_lagging == pytest.approx(2.0)
