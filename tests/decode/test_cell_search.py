"""The thesis's Algorithm 2 against listing every output, and against loops over its cells."""

from itertools import product

import numpy as np
import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.decode.noisy_channel import search_noisy_channel
from antiphon.decode.thesis_searches import search_cells
from antiphon.exceptions import RecipeError
from antiphon.lattice import best_path
from antiphon.torch_free.vocab import END, START, UNKNOWN
from tests.decode.small_models import batch_of, features_of
from tests.decode.test_channel_lattice import slow_row
from tests.decode.test_rescoring import (
    CHANNEL_FEATURES,
    COPYING,
    LANGUAGE_FEATURES,
    WIDE,
    combine,
    components,
    components_without,
    sources,
)
from tests.networks import beam_settings

WEIGHTS = [(1.0, 1.0, 1.0, 0.5), (0.0, 1.0, 0.7, 1.0), (1.0, 0.0, 0.5, 0.0)]
LIMIT = {"max_length_ratio": 0.0, "max_length_extra": 4}


def tokens_of(direct):
    return [UNKNOWN] * direct.copies_unknown + [*range(4, direct.target_logits.out_features)]


def pair(source, words):
    return Batch.of([source], [np.array(words, np.int32)], [features_of(source)])


@torch.no_grad()
def channel_rows(channel, source, words):
    """``log p(x_1^i | y_1^j)`` for every ``i``, and of the whole input; the last token at the last one."""
    given = CHANNEL_FEATURES.numpy()[features_of(source)]
    moves = channel.moves(Batch.of([np.array(words, np.int32)], [source], [given]))
    forward, unfinished = None, None
    for j in range(len(words) + 1):
        forward = slow_row(forward, moves.log_write[0, j], None if j == 0 else moves.log_read[0, j - 1])
        last = forward + moves.log_write[0, j]
        if j < len(words):
            unfinished = last
    return unfinished, last[-1].item()


@torch.no_grad()
def log_language(model, source, tokens):
    memory, state = model.start(Batch.of([source[:0]], None, [LANGUAGE_FEATURES.numpy()[features_of(source)]]))
    total, first = 0.0, torch.zeros(1, dtype=torch.long)
    for before, token in zip((START, *tokens), tokens, strict=False):
        log_next, state = model.step(memory, state, first + before, first)
        total += log_next[0, token].item()
    return total


def weigh(weights, features):
    return sum(weight * feature for weight, feature in zip(weights, features, strict=True) if weight)


@torch.no_grad()
def every_output(parts, weights, source, longest):
    """Every output with its objective, features and best path."""
    direct, channel, language_model = parts
    scored = []
    for length in range(longest):
        for words in product(tokens_of(direct), repeat=length):
            batch = pair(source, words)
            path = best_path(*direct.moves(batch), batch.source_lengths, batch.target_lengths)
            features = (
                path.log_score.item(),
                channel_rows(channel, source, words)[1],
                log_language(language_model, source, (*words, END)),
                float(length + 1),
            )
            scored.append((weigh(weights, features), (*words, END), features, tuple(path.alignment[0].tolist())))
    return sorted(scored, reverse=True)


@torch.no_grad()
def algorithm_2(parts, weights, source, proposals, beam, limit):
    """The best output, found by loops over all cells, prefixes and tokens."""
    direct, channel, language_model = parts
    rows, finished = len(source) + 1, []
    cells = [{(): (0.0, 0.0)}] + [{} for _ in range(rows - 1)]  # prefix: objective, best path
    for j in range(limit):
        after = [{} for _ in range(rows)]
        for i in range(rows):
            reached = {}
            for k in range(i + 1):
                for words, (objective, log_direct) in cells[k].items():
                    for token in [*tokens_of(direct), END]:
                        if (token == END and i < rows - 1) or (token != END and j == limit - 1):
                            continue
                        moves = direct.moves(pair(source, words if token == END else (*words, token)))
                        step = (moves.log_read[0, k:i, j].sum() + moves.log_write[0, i, j]).item()
                        one, other = reached.get((*words, token), (-np.inf, -np.inf))
                        reached[*words, token] = max(one, objective + step), max(other, log_direct + step)
            proposed = sorted(reached, key=lambda words: -reached[words][0])[:proposals]
            scored = {}
            for words in proposed:
                unfinished, whole = channel_rows(channel, source, words[:-1] if words[-1] == END else words)
                log_channel = whole if words[-1] == END else unfinished[i].item()
                features = reached[words][1], log_channel, log_language(language_model, source, words), j + 1.0
                scored[words] = weigh(weights, features), reached[words][1]
            finished += [(value, words) for words, (value, _) in scored.items() if words[-1] == END]
            kept = sorted((words for words in scored if words[-1] != END), key=lambda words: -scored[words][0])[:beam]
            after[i] = {words: scored[words] for words in kept}
        cells = after
    return max(finished)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("seed", "settings"), [(0, {}), (1, {}), (2, COPYING)])
def test_with_wide_beams_the_search_equals_listing_every_output(weights, seed, settings):
    parts = components(seed, **settings)
    (source,) = sources(3, seed=seed)
    (found,) = search_cells(combine(parts, weights), batch_of([source]), beam_settings(nbest=5, **WIDE))
    listed = every_output(parts, weights, source, longest=4)[:5]
    assert [each.tokens for each in found] == [tokens for _, tokens, _, _ in listed]
    assert [each.score for each in found] == pytest.approx([score for score, *_ in listed])
    assert [each.alignment for each in found] == [rows for *_, rows in listed]
    for each, (_, _, features, _) in zip(found, listed, strict=True):
        assert each.features == pytest.approx(features)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("proposals", "beam"), [(1, 1), (2, 1), (4, 2)])
def test_with_narrow_beams_the_search_equals_loops_over_its_cells(weights, proposals, beam):
    for seed in range(3):
        parts = components(seed)
        (source,) = sources(3, seed=seed)
        settings = beam_settings(proposals=proposals, beam=beam, **LIMIT)
        ((found,),) = search_cells(combine(parts, weights), batch_of([source]), settings)
        score, tokens = algorithm_2(parts, weights, source, proposals, beam, limit=4)
        assert found.tokens == tokens
        assert found.score == pytest.approx(score)


def test_a_batch_gives_what_single_sentences_give():
    model = combine(components(target_size=12), (1.0, 0.8, 0.6, 0.4))
    settings, inputs = beam_settings(beam=3, proposals=6, nbest=3), sources(1, 6, 3, 0)
    together = search_cells(model, batch_of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_cells(model, batch_of([source]), settings)
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        assert [each.score for each in found] == pytest.approx([each.score for each in alone])


@pytest.mark.parametrize("missing", ["channel", "language_model"])
def test_any_part_but_the_direct_model_may_be_missing(missing):
    models, parts, weights = components_without(missing)
    (source,) = sources(3)
    (found,) = search_cells(combine(parts, weights), batch_of([source]), beam_settings(nbest=3, **WIDE))
    listed = every_output(models, weights, source, longest=4)[:3]
    assert [each.tokens for each in found] == [tokens for _, tokens, _, _ in listed]


def test_both_searches_of_a_noisy_channel_find_good_outputs():
    """With four cells of a row instead of one beam, the printed search finds the optimum at least as often."""
    batch = batch_of(sources(3, 3, 3, 3, 3, 3))
    model = combine(components(7, target_size=8), (0.0, 1.0, 1.0, 0.5))
    best = [each[0].score for each in search_cells(model, batch, beam_settings(**WIDE | {"beam": 100}))]
    narrow = beam_settings(beam=4, proposals=8, **LIMIT)
    printed, ours = (
        [each[0].score for each in search(model, batch, narrow)] for search in (search_cells, search_noisy_channel)
    )
    assert all(one <= optimum + 1e-9 for one, optimum in zip(printed, best, strict=True))
    assert np.isclose(printed, best).sum() >= 5
    assert len(ours) == len(printed)


def test_what_the_search_cannot_do_is_refused():
    model, batch = combine(components(), WEIGHTS[0]), batch_of(sources(3))
    with pytest.raises(RecipeError, match='"cells": no prefix can be given'):
        search_cells(model, batch, beam_settings(), [4])
    model.direct = torch.nn.Identity()
    with pytest.raises(RecipeError, match='"cells": the direct model is an ensemble, expected a single transducer'):
        search_cells(model, batch, beam_settings())
