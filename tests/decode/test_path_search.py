from dataclasses import replace

import pytest
import torch

from antiphon.decode.thesis_searches import search_paths
from antiphon.lattice import best_path
from antiphon.torch_free.vocab import END
from tests.decode.small_models import batch_of, every_target, pair, small_model, sources
from tests.networks import beam_settings

WIDE = beam_settings(beam=200, nbest=5, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)


@torch.no_grad()
def every_output(model, source, longest):
    """Every output of at most ``longest`` tokens, end included, with its best-path score, best first."""
    scored = []
    for words in every_target(6, longest, copies=model.copies_unknown):
        batch = pair(source, words)
        path = best_path(*model.moves(batch), batch.source_lengths, batch.target_lengths)
        scored.append((path.log_score.item(), (*words, END), tuple(path.alignment[0].tolist())))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["transducer", "geometric", "forced", "copying"])
def test_a_beam_wider_than_all_paths_equals_listing_every_output_with_every_path(seed, name):
    model = small_model(name, seed)
    (source,) = sources(3, seed=seed)
    (found,) = search_paths(model, batch_of([source]), WIDE)
    listed = every_output(model, source, longest=4)[: len(found)]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens, _ in listed]
    assert [hypothesis.alignment for hypothesis in found] == [rows for _, _, rows in listed]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([score for score, _, _ in listed])


@pytest.mark.parametrize("beam", [1, 3, 10])
def test_a_batch_gives_what_single_sentences_give(beam):
    model, settings = small_model(target_size=12), beam_settings(beam=beam, nbest=3)
    inputs = sources(1, 7, 3, 0, 12)
    together = search_paths(model, batch_of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_paths(model, batch_of([source]), settings)
        assert [(h.tokens, h.alignment) for h in found] == [(h.tokens, h.alignment) for h in alone]
        assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in alone])


def test_no_path_is_better_than_the_best_path_of_its_output():
    model, batch = small_model(seed=3, target_size=12), batch_of(sources(6, 4))
    for b, found in enumerate(search_paths(model, batch, beam_settings(beam=8, nbest=4))):
        for hypothesis in found:
            alone = pair(batch.source[b, : batch.source_lengths[b] - 1].numpy(), hypothesis.tokens[:-1])
            path = best_path(*model.moves(alone), alone.source_lengths, alone.target_lengths)
            assert hypothesis.log_prob <= path.log_score.item() + 1e-9
            assert list(hypothesis.alignment) == sorted(hypothesis.alignment)
            assert hypothesis.alignment[-1] == batch.source_lengths[b] - 1


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("name", ["transducer", "copying"])
def test_an_output_ends_by_the_longest_length_allowed(limit, name):
    settings = beam_settings(beam=2, nbest=3, max_length_ratio=0.0, max_length_extra=limit)
    (found,) = search_paths(small_model(name, seed=1, target_size=12), batch_of(sources(3)), settings)
    assert max(len(hypothesis.tokens) for hypothesis in found) <= limit


@pytest.mark.parametrize(("normalisation", "bias"), [(1.0, 0.0), (0.5, 0.3), (0.0, 1.0)])
def test_finished_outputs_are_ranked_with_length_bias_and_normalisation(normalisation, bias):
    settings = replace(WIDE, length_normalisation=normalisation, length_bias=bias)
    for seed in range(3):
        model = small_model(seed=seed)
        (source,) = sources(3, seed=seed)
        (found,) = search_paths(model, batch_of([source]), settings)
        listed = sorted(
            (((score + bias * len(tokens)) / len(tokens) ** normalisation, tokens))
            for score, tokens, _ in every_output(model, source, longest=4)
        )[::-1][: len(found)]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in listed]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in listed])


def test_the_best_path_need_not_be_the_most_probable_output():
    from antiphon.decode.beam_search import search_outputs

    differing = 0
    for seed in range(10):
        model, batch = small_model("geometric", seed), batch_of(sources(4, seed=seed))
        differing += search_paths(model, batch, WIDE)[0][0].tokens != search_outputs(model, batch, WIDE)[0][0].tokens
    assert differing
