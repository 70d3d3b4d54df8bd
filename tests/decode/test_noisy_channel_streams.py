from dataclasses import replace

import pytest
import torch

from antiphon.decode.noisy_channel import search_noisy_channel
from antiphon.decode.noisy_channel_streams import NoisyChannelPolicy, NoisyChannelStreams
from antiphon.decode.streams import TransducerStreams
from antiphon.torch_free.stream_policies import BeamPolicy
from antiphon.torch_free.vocab import END
from tests.decode.small_models import batch_of
from tests.decode.test_rescoring import COPYING, combine, components, sources
from tests.networks import beam_settings

WIDE = beam_settings(beam=200, proposals=400, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)
NO_FEATURES = torch.zeros(1, 0, dtype=torch.long)


def online_components(seed, **settings):
    """A proposer that reads from the left alone, a channel and a language model."""
    directly = settings.pop("direct_settings", {}) | {"encoder": "unidirectional"}
    return components(seed, direct_settings=directly, **settings)


class EveryOutputLives(NoisyChannelPolicy):
    """A stream without a bound on the active outputs, as the search of whole inputs has none."""

    def _best_active(self, outputs):
        return outputs


def start(model, features, settings, policy=NoisyChannelPolicy):
    return policy(model, settings, features.numpy())


def stream(streams, source):
    written = [streams.advance([0], [int(token)])[0] for token in source]
    return [*written, streams.advance([], [], ending=[0])[0]]


def whole(written):
    return [token for part in written for token in part]


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 0.5), (0.0, 1.0, 0.7, 1.0), (1.0, 0.0, 0.5, 0.0)])
@pytest.mark.parametrize(("seed", "parts"), [(0, {}), (1, {}), (2, COPYING), (3, COPYING)])
def test_a_stream_ends_where_the_search_of_the_whole_input_ends(seed, weights, parts):
    model = combine(online_components(seed, **parts), weights)
    (source,) = sources(4, seed=seed)
    batch = batch_of([source])
    (found,) = search_noisy_channel(model, batch, WIDE)
    streamed = stream(start(model, batch.features, WIDE, EveryOutputLives), source)
    assert [*whole(streamed), END] == list(found[0].tokens)


def test_without_channel_and_language_model_it_is_the_direct_stream():
    direct, _, _ = online_components(2)
    model = combine((direct, None, None), (1.0, 0.0, 0.0, 0.0))
    settings = replace(WIDE, proposals=4, threshold=6.0)
    for seed in range(5):
        (source,) = sources(6, seed=seed)
        alone = stream(BeamPolicy(TransducerStreams(direct), settings, NO_FEATURES.numpy()), source)
        assert stream(start(model, NO_FEATURES, settings), source) == alone


def test_input_not_yet_read_never_changes_what_was_written():
    model = combine(online_components(3), (1.0, 0.5, 0.5, 0.5))
    settings = beam_settings(beam=3, proposals=6, threshold=1.0)
    (one,), (other,) = sources(9, seed=3), sources(9, seed=4)
    first, second = (stream(start(model, NO_FEATURES, settings), source) for source in (one, [*one[:6], *other[6:]]))
    assert first[:6] == second[:6]


def test_work_and_memory_stay_the_same_however_long_the_input():
    model = combine(online_components(4), (1.0, 0.5, 0.5, 0.5))
    (source,) = sources(200, seed=4)
    streams = start(model, NO_FEATURES, beam_settings(beam=3, proposals=6, threshold=4.0))
    sizes = []
    for token in source:
        streams.advance([0], [int(token)])
        sizes.append(streams.rows.scores.read.numel())
    assert max(sizes[100:]) <= 3 * max(sizes[:100])


def test_several_streams_are_searched_each_by_itself():
    model = combine(online_components(5), (1.0, 1.0, 1.0, 0.0))
    settings = beam_settings(beam=3, proposals=6)
    inputs = sources(5, 3, seed=5)
    alone = [stream(start(model, NO_FEATURES, settings), source) for source in inputs]
    together = NoisyChannelStreams(model, settings, NO_FEATURES.numpy().repeat(len(inputs), 0))
    written = [[], []]
    for position in range(3):
        for n, part in enumerate(together.advance([0, 1], [int(source[position]) for source in inputs])):
            written[n].append(part)
    for token in inputs[0][3:4]:
        first, second = together.advance([0], [int(token)], ending=[1])
        written[0].append(first)
        written[1].append(second)
    for token in inputs[0][4:]:
        written[0] += together.advance([0], [int(token)])
    written[0] += together.advance([], [], ending=[0])
    assert written == alone
