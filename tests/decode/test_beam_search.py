from dataclasses import replace
from itertools import count

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from antiphon.decode.beam_search import BeamSearch, search_outputs
from antiphon.torch_free.vocab import END
from tests.decode.small_models import ALIGNED, MODELS, batch_of, every_output, pair, small_model, sources
from tests.networks import beam_settings

WIDE = beam_settings(beam=200, nbest=8, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)
RANKINGS = [(0.0, 0.0), (1.0, 0.0), (0.6, 0.5), (0.0, 2.0), (0.5, -0.3), (1.5, 0.4)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_with_a_wide_beam_the_list_equals_listing_all_outputs_with_their_sums(name, seed):
    model = small_model(name, seed)
    inputs = sources(3, 1, 5, seed=seed)
    for source, found in zip(inputs, search_outputs(model, batch_of(inputs), WIDE), strict=True):
        listed = every_output(model, source, longest=4)[:8]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for *_, tokens in listed]
        assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([p for _, p, _ in listed], abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_the_log_probability_of_every_candidate_is_that_of_a_forward_pass(name):
    model = small_model(name, 1, target_size=12)
    inputs = sources(6, 0, 9, 4)
    found = search_outputs(model, batch_of(inputs), beam_settings(beam=5, nbest=5, threshold=float("inf")))
    for source, hypotheses in zip(inputs, found, strict=True):
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses) > 1
        for hypothesis in hypotheses:
            with torch.no_grad():
                log_prob = model.log_prob(pair(source, hypothesis.tokens[:-1])).item()
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-9)
            assert sum(hypothesis.token_log_probs) == pytest.approx(log_prob, abs=1e-9)
            assert len(hypothesis.token_log_probs) == len(hypothesis.tokens)


@pytest.mark.parametrize("name", ["transducer", "geometric", "forced"])
def test_logits_of_magnitude_100_change_nothing(name):
    model = small_model(name, 2)
    with torch.no_grad():
        model.source_logits.weight.mul_(300.0)
        model.target_logits.weight.mul_(300.0)
    (source,) = sources(4, seed=2)
    assert model.encode(batch_of([source]))[0].logits.abs().max() > 100
    (found,) = search_outputs(model, batch_of([source]), WIDE)
    listed = every_output(model, source, longest=4)[: len(found)]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for *_, tokens in listed]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([p for _, p, _ in listed], abs=1e-9)


@pytest.mark.parametrize(("normalisation", "bias"), RANKINGS)
@pytest.mark.parametrize("name", ["transducer", "attention"])
def test_finished_outputs_are_ranked_with_length_bias_and_normalisation(name, normalisation, bias):
    settings = replace(WIDE, nbest=6, length_normalisation=normalisation, length_bias=bias)
    for seed in range(3):
        model = small_model(name, seed)
        (source,) = sources(3, seed=seed)
        (found,) = search_outputs(model, batch_of([source]), settings)
        listed = every_output(model, source, 4, lambda p, n: (p + bias * n) / n**normalisation)[:6]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for *_, tokens in listed]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, *_ in listed])


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_gives_what_single_sentences_give_in_any_order(name, beam):
    model = small_model(name, target_size=12)
    settings = beam_settings(beam=beam, nbest=3, length_normalisation=1.0)
    inputs = sources(1, 7, 3, 0, 12)
    together = search_outputs(model, batch_of(inputs), settings)
    backwards = search_outputs(model, batch_of(inputs[::-1]), settings)[::-1]
    for source, found, other in zip(inputs, together, backwards, strict=True):
        (alone,) = search_outputs(model, batch_of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone] == [h.tokens for h in other]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone])


@pytest.mark.parametrize("name", ["attention", "transducer", "transformer"])
@torch.no_grad()
def test_a_beam_of_one_is_greedy(name):
    model = small_model(name, 3, target_size=12)
    (source,) = sources(5)
    (memory, state), token, written = model.start(batch_of([source])), torch.tensor([2]), []
    for _ in range(20):
        log_next, state = model.step(memory, state, token, torch.tensor([0]))
        log_next[:, :3] = float("-inf")
        token = log_next.argmax(1)
        written.append(token.item())
        if written[-1] == END:
            break
    settings = beam_settings(beam=1, max_length_ratio=0.0, max_length_extra=20)
    (found,) = search_outputs(model, batch_of([source]), settings)
    assert list(found[0].tokens) == (written if written[-1] == END else [*written[:19], END])


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("name", ["encoder_decoder", "transducer"])
def test_outputs_end_by_the_longest_length_allowed(name, limit):
    model = small_model(name, 1, target_size=12)
    settings = beam_settings(beam=3, nbest=3, max_length_ratio=0.0, max_length_extra=limit)
    (found,) = search_outputs(model, batch_of(sources(3)), settings)
    assert max(len(hypothesis.tokens) for hypothesis in found) <= limit
    assert all(hypothesis.tokens[-1] == END for hypothesis in found)


def test_the_default_threshold_changes_no_answer_here():
    model, batch = small_model(seed=2, target_size=30), batch_of(sources(5, 9, 2, 7))
    with_threshold = search_outputs(model, batch, beam_settings(beam=5))
    without = search_outputs(model, batch, beam_settings(beam=5, threshold=float("inf")))
    assert [f[0].tokens for f in with_threshold] == [f[0].tokens for f in without]


@pytest.mark.parametrize(("normalisation", "bias"), RANKINGS)
def test_the_bound_is_never_below_what_can_still_be_reached(normalisation, bias):
    log_prob, limits = torch.tensor([-3.0, -0.1, -20.0]).double(), torch.tensor([9, 5, 40]).double()
    settings = beam_settings(length_normalisation=normalisation, length_bias=bias)
    bound = settings.upper_bound(log_prob, 3, limits)
    for sentence, limit in enumerate(map(int, limits)):
        reachable = max(settings.search_score(log_prob[sentence], n).item() for n in range(4, limit + 1))
        assert reachable - 1e-12 <= bound[sentence].item() <= reachable + 0.05


STATIC = [
    {"beam": 1},
    {"beam": 4, "nbest": 3},
    {"beam": 4, "nbest": 3, "length_normalisation": 1.0},
    {"beam": 3, "threshold": 2.0, "max_length_ratio": 0.5, "max_length_extra": 2},
]


@pytest.mark.parametrize("settings", STATIC)
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_static_shapes_change_no_answer(name, settings):
    model, batch = small_model(name, 2, target_size=30), batch_of(sources(5, 9, 0, 7))
    wanted = search_outputs(model, batch, beam_settings(**settings))
    found = BeamSearch(model, batch, beam_settings(**settings), static_shapes=True).run()
    assert_same_answers(found, wanted)


def assert_same_answers(found, wanted):
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs])
        assert [h.features for h in ours] == [pytest.approx(h.features) for h in theirs]


def assert_no_device_sync(search):
    """Steps on tensors without values, of which nothing can be asked; shapes stay as they are."""
    beam = search._first_beam()
    with FakeTensorMode(allow_non_fake_inputs=True):
        after, _ = search._step(search._step(beam)[0])
    for leaf, leaf_after in zip(leaves(beam), leaves(after), strict=True):
        assert (leaf.shape, leaf.dtype) == (leaf_after.shape, leaf_after.dtype)


def leaves(tree):
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree] if isinstance(tree, torch.Tensor) else []


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ALIGNED])
@torch.inference_mode()
def test_a_step_of_static_shapes_has_no_device_sync(name):
    model, batch = small_model(name, 2, target_size=30), batch_of(sources(5, 9, 2))
    assert_no_device_sync(BeamSearch(model, batch, beam_settings(beam=4, nbest=2), static_shapes=True))


@pytest.mark.parametrize("name", ALIGNED)
@torch.inference_mode()
def test_a_transducer_step_of_static_shapes_has_no_device_sync_but_for_lost_cells(name, monkeypatch):
    monkeypatch.setattr("antiphon.nn.factored_softmax.cell_blocks", lambda *_: [])  # kernels see to them on a GPU
    monkeypatch.setattr("antiphon.nn.factored_softmax._SMALL_GATHER", 2**40)
    model, batch = small_model(name, 2, target_size=30), batch_of(sources(5, 9, 2))
    assert_no_device_sync(BeamSearch(model, batch, beam_settings(beam=4, nbest=2), static_shapes=True))


def test_on_a_long_input_at_most_half_a_beam_is_written_in_one_row(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.LONG_SOURCE", 4)
    model, batch = small_model(seed=4, target_size=12), batch_of(sources(30))
    search, rows = BeamSearch(model, batch, beam_settings(beam=4, threshold=float("inf"))), []
    keep = search._keep

    def noted(extensions, finished, length, state):
        value, chosen = keep(extensions, finished, length, state)
        kept = extensions.take(chosen, value)
        index = kept.parent.flatten(), kept.token.flatten(), torch.zeros(4, dtype=torch.long)
        written = model.log_rows(search.memory, state, *index).argmax(1)[value.flatten() > float("-inf")]
        rows.append(max(torch.bincount(written).tolist(), default=0))
        return value, chosen

    monkeypatch.setattr(search, "_keep", noted)
    with torch.inference_mode():
        search.run()
    assert max(rows[1:]) <= 2


def test_a_long_input_in_the_batch_does_not_change_the_outputs_of_a_short_one(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.LONG_SOURCE", 12)
    model, inputs = small_model(seed=4, target_size=12, scale=3.0), sources(8, 30)
    settings = beam_settings(beam=4, nbest=4, threshold=float("inf"))
    wanted = [search_outputs(model, batch_of([source]), settings)[0] for source in inputs]
    assert_same_answers(search_outputs(model, batch_of(inputs), settings), wanted)


@torch.inference_mode()
def test_a_search_that_never_reads_on_gives_up(monkeypatch):
    model = small_model("geometric", seed=1, target_size=12)
    model.transition.constant_log_odds.fill_(200.0)
    batch = batch_of(sources(2000))
    search = BeamSearch(model, batch, beam_settings(beam=2))
    steps, step = [], search._step
    monkeypatch.setattr(search, "_step", lambda beam: steps.append(1) or step(beam))
    assert search.run() == [[]]
    assert len(steps) <= 600


@torch.inference_mode()
def test_giving_up_on_one_long_input_ends_no_other(monkeypatch):
    monkeypatch.setattr("antiphon.decode.beam_search.LONG_SOURCE", 4)
    monkeypatch.setattr("antiphon.decode.beam_search.STUCK_AFTER", 2)
    model, inputs = small_model(seed=4, target_size=12, scale=3.0), sources(30, 28)
    settings = beam_settings(beam=4, nbest=4, threshold=float("inf"))
    together, alone = (BeamSearch(model, batch_of(each), settings) for each in (inputs, inputs[1:]))
    row, row_alone = count(), count()
    monkeypatch.setattr(together, "_furthest_rows", lambda beam: torch.tensor([0, next(row)]))
    monkeypatch.setattr(alone, "_furthest_rows", lambda beam: torch.tensor([next(row_alone)]))
    stuck, other = together.run()
    assert all(len(hypothesis.tokens) <= 4 for hypothesis in stuck)
    assert max(len(hypothesis.tokens) for hypothesis in other) > 4
    assert_same_answers([other], alone.run())
