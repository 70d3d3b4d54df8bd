from dataclasses import replace

import pytest
import torch

from antiphon.decode.beam_search import search_outputs
from antiphon.decode.streams import TransducerStreams
from antiphon.exceptions import RunError
from antiphon.models.left_to_right import never_written
from antiphon.torch_free.stream_policies import BeamPolicy, GreedyPolicy
from antiphon.torch_free.vocab import END
from tests.decode.small_models import batch_of, every_output, pair, sources
from tests.decode.small_models import small_model as any_model
from tests.networks import beam_settings

WIDE = beam_settings(threshold=float("inf"), max_length_ratio=0.0, max_length_extra=6)
POLICIES = [GreedyPolicy, BeamPolicy]
COPYING = {"feature_size": 8, "copy_unknown": True}
NO_FEATURES = torch.zeros(1, 0, dtype=torch.long)


def small_model(seed=0, target_size=7, **settings):
    return any_model("unidirectional", seed, target_size, **settings)


def start(policy, model, features, settings, **options):
    return policy(TransducerStreams(model), settings, features.numpy(), **options)


def stream(streams, source, number=0):
    """What is written after each token, and at the end."""
    written = [streams.advance([number], [int(token)])[0] for token in source]
    return [*written, streams.advance([], [], ending=[number])[0]]


def whole(written):
    return [token for part in written for token in part]


class EveryOutputLives(BeamPolicy):
    """A beam stream without a bound on active outputs, as a wide search of whole inputs has none."""

    def _best_active(self, outputs):
        return outputs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("settings", [{}, {"final_write": "forced", "layers": 2}, {"transition": "geometric"}, COPYING])
def test_a_wide_beam_stream_ends_with_the_most_probable_output_alignments_summed(seed, settings):
    model = small_model(seed, **settings)
    (source,) = sources(4, seed=seed)
    settings = replace(WIDE, beam=200, max_length_extra=4)
    batch = batch_of([source])
    streams = start(EveryOutputLives, model, batch.features, settings)
    (found,) = search_outputs(model, batch, settings)
    assert [*whole(stream(streams, source)), END] == list(found[0].tokens)


@pytest.mark.parametrize("settings", [{}, COPYING])
def test_the_score_of_a_finished_output_is_its_probability(settings):
    model, scores = small_model(1, **settings), {}

    class Noted(EveryOutputLives):
        def _search_score(self, extension):
            scores[(*self.tree.path(extension.node, 0), END)] = extension.log_score
            return super()._search_score(extension)

    (source,) = sources(3, seed=1)
    settings = replace(WIDE, beam=200, max_length_extra=3)
    stream(start(Noted, model, batch_of([source]).features, settings), source)
    listed = every_output(model, source, longest=3, target_size=7)
    assert scores == {tokens: pytest.approx(log_prob, abs=1e-9) for _, log_prob, tokens in listed}


@pytest.mark.parametrize("normalisation", [0.0, 1.0])
def test_finished_outputs_are_ranked_as_in_the_search_of_whole_inputs(normalisation):
    settings = replace(WIDE, beam=200, max_length_extra=4, length_normalisation=normalisation, length_bias=0.3)
    for seed in range(8):
        model = small_model(seed)
        (source,) = sources(4, seed=seed)
        (found,) = search_outputs(model, batch_of([source]), settings)
        assert [*whole(stream(start(EveryOutputLives, model, NO_FEATURES, settings), source)), END] == list(
            found[0].tokens
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_input_not_yet_read_never_changes_what_was_written(policy):
    for seed in range(5):
        model = small_model(seed)
        (one,), (other,) = sources(8, seed=seed), sources(8, seed=seed + 100)
        mixed = [*one[:5], *other[5:]]
        settings = beam_settings(beam=4, threshold=4.0)
        first, second = (stream(start(policy, model, NO_FEATURES, settings), source) for source in (one, mixed))
        assert first[:5] == second[:5]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("more", [{}, COPYING])
def test_streams_together_write_what_each_writes_alone(policy, more):
    model, settings = small_model(3, target_size=12, **more), beam_settings(beam=4)
    inputs = sources(6, 1, 9, 0, 4)
    alone = [stream(start(policy, model, batch_of([source]).features, settings), source) for source in inputs]
    together = start(policy, model, batch_of(inputs).features, settings)
    written = [[] for _ in inputs]
    for position in range(10):
        reading = [n for n, source in enumerate(inputs) if position < len(source)]
        ending = [n for n, source in enumerate(inputs) if position == len(source)]
        parts = together.advance(reading, [int(inputs[n][position]) for n in reading], ending=ending)
        for n, part in zip([*reading, *ending], parts, strict=True):
            written[n].append(part)
    assert written == alone


def test_a_beam_stream_writes_out_what_all_active_outputs_share():
    amount = 0
    for seed in range(24, 32):
        streams = start(BeamPolicy, small_model(seed), NO_FEATURES, beam_settings(beam=3, threshold=1.0))
        (source,) = sources(8, seed=seed)
        written = []
        for token in source:
            written += streams.advance([0], [int(token)])[0]
            outputs = [written + streams.tree.path(node, streams.root[0]) for node in streams.active[0]]
            assert all(output[: len(written)] == written for output in outputs)
            assert len(outputs) == 1 or len({tuple(output[: len(written) + 1]) for output in outputs}) > 1
        amount += len(written)
    assert amount > 0


def test_a_smaller_margin_writes_sooner():
    amounts = dict.fromkeys((0.0, 1.0, 12.0), 0)
    for seed in range(12):
        (source,) = sources(8, seed=seed)
        for margin in amounts:
            streams = start(
                BeamPolicy, small_model(seed), NO_FEATURES, beam_settings(beam=3, commit_margin=margin), emit_bias=2.0
            )
            amounts[margin] += len(whole(stream(streams, source)[:-1]))
    assert amounts[0.0] > amounts[1.0] > amounts[12.0]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bias_towards_writing_writes_sooner(policy):
    settings = beam_settings(beam=3, threshold=1.0)
    amounts = {-4.0: 0, 0.0: 0, 4.0: 0}
    for seed in range(24, 32):
        (source,) = sources(8, seed=seed)
        for bias in amounts:
            before_the_end = stream(start(policy, small_model(seed), NO_FEATURES, settings, emit_bias=bias), source)[
                :-1
            ]
            amounts[bias] += len(whole(before_the_end))
    assert amounts[-4.0] < amounts[0.0] < amounts[4.0]


def test_outputs_that_never_agree_hold_back_a_hundred_tokens_at_most():
    streams = start(BeamPolicy, small_model(0), NO_FEATURES, beam_settings())
    one = other = 0
    for _ in range(150):
        one, other = streams._grow([(one, 4), (other, 5)])
    streams.active = [{one: -1.0, other: -2.0}]
    assert streams._commit(0) == [4] * 50
    assert list(streams.active[0]) == [one]


@pytest.mark.parametrize("more", [{}, COPYING])
def test_greedy_writes_the_most_probable_token_when_writing_is_more_probable(more):
    model = small_model(2, **more)
    (source,) = sources(6, seed=2)
    settings = beam_settings(max_length_extra=3)
    written = stream(start(GreedyPolicy, model, batch_of([source]).features, settings), source)
    tokens, rows = [], []
    for row, part in enumerate(written):
        tokens += part
        rows += [row] * len(part)
    batch = pair(source, tokens)
    read, _ = model.encode(batch)
    followed, _ = model.decode_prefix(batch.shifted_target, model.target_state(batch.features))
    odds = model.transition.log_odds(read.transition[0][:, None], followed.transition[0][None])
    for column, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        before = rows[column - 1] if column else 0
        has_room = torch.tensor([column + 1 < 2 * (read + 1) + 3 for read in range(before, row)], dtype=torch.bool)
        assert (odds[before:row, column][has_room] <= 0).all()
        assert odds[row, column] > 0 or row == len(source)
        logits = read.logits[0, row] + followed.logits[0, column]
        forbidden = [*never_written(model), *([END] if row < len(source) else [])]
        assert logits.index_fill(0, torch.tensor(forbidden), float("-inf")).max() == logits[token]


def test_work_and_memory_stay_the_same_however_long_the_input():
    model = small_model(4)
    (source,) = sources(300, seed=4)
    streams = start(BeamPolicy, model, NO_FEATURES, beam_settings(beam=3, threshold=6.0))
    sizes = []
    for token in source:
        streams.advance([0], [int(token)])
        sizes.append(len(streams.tree.owner))
    assert max(sizes[150:]) <= 3 * max(sizes[:150])


def test_a_model_whose_weights_overflow_is_refused_in_a_sentence():
    model = small_model()
    torch.nn.init.constant_(model.target_logits.weight, float("nan"))
    streams = start(BeamPolicy, model, NO_FEATURES, WIDE)
    with pytest.raises(RunError, match=r"scores that are no numbers, expected a run whose weights do not overflow"):
        stream(streams, [4, 5, END])
