from itertools import product

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.data.vocab import END
from antiphon.models.attention import Attention
from antiphon.models.encoder_decoder import EncoderDecoder
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.left_to_right import search_left_to_right

KINDS = [EncoderDecoder, Attention]
RANKINGS = [(0.0, 0.0), (1.0, 0.0), (0.6, 0.5), (0.0, 2.0)]


def small_model(kind, seed=0, target_size=6):
    torch.manual_seed(seed)
    model = kind(9, target_size, hidden_size=6, embedding_size=5).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.eval()


def sources(*lengths):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(4, 9, (length,), generator=generator).numpy() for length in lengths]


@torch.no_grad()
def every_output(model, source, longest, settings):
    scored = []
    for length in range(longest):
        for words in product(range(4, model.output.out_features), repeat=length):
            log_prob = model.log_prob(Batch.of([source], [torch.tensor(words, dtype=torch.int32).numpy()]))
            scored.append((settings.normalise(log_prob, length + 1).item(), (*words, END)))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize(("normalisation", "bias"), RANKINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_wider_than_all_outputs_equals_exhaustive_search(kind, normalisation, bias):
    settings = BeamSettings(
        beam=200,
        nbest=6,
        max_length_ratio=0.0,
        max_length_extra=4,
        length_normalisation=normalisation,
        length_bias=bias,
    )
    for seed in range(3):
        model = small_model(kind, seed)
        (source,) = sources(3)
        (found,) = search_left_to_right(model, Batch.of([source]), settings)
        listed = every_output(model, source, 4, settings)[:6]
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in listed]
        assert [hypothesis.log_score for hypothesis in found] == pytest.approx([score for score, _ in listed])


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_gives_what_single_sentences_give(kind, beam):
    model = small_model(kind, target_size=12)
    settings = BeamSettings(beam=beam, nbest=min(beam, 3), length_normalisation=1.0)
    inputs = sources(1, 7, 3, 0, 12)
    together = search_left_to_right(model, Batch.of(inputs), settings)
    for source, found in zip(inputs, together, strict=True):
        (alone,) = search_left_to_right(model, Batch.of([source]), settings)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.log_score for h in found] == pytest.approx([h.log_score for h in alone])


@torch.no_grad()
def test_a_beam_of_one_is_greedy():
    model = small_model(Attention, target_size=12)
    (source,) = sources(5)
    state, token, written = model.start(Batch.of([source])), torch.tensor([2]), []
    for _ in range(20):
        log_probs, state = model.step(token, state)
        log_probs[:, :3] = float("-inf")
        token = log_probs.argmax(1)
        written.append(token.item())
        if written[-1] == END:
            break
    settings = BeamSettings(beam=1, max_length_ratio=0.0, max_length_extra=20)
    (found,) = search_left_to_right(model, Batch.of([source]), settings)
    assert list(found[0].tokens) == (written if written[-1] == END else [*written[:19], END])


def test_outputs_end_by_the_longest_length_allowed():
    model = small_model(EncoderDecoder, target_size=12)
    with torch.no_grad():
        model.output.bias[END] = -50.0
    settings = BeamSettings(beam=2, max_length_ratio=1.0, max_length_extra=2, length_normalisation=1.0)
    (found,) = search_left_to_right(model, Batch.of(sources(3)), settings)
    assert len(found[0].tokens) == 6


def test_the_bound_is_never_below_what_can_still_be_reached():
    log_prob, limits = torch.tensor([-3.0, -0.1]).double(), torch.tensor([9, 5])
    for normalisation, bias in RANKINGS:
        settings = BeamSettings(length_normalisation=normalisation, length_bias=bias)
        bound = settings.best_still_possible(log_prob, 3, limits)
        for sentence, limit in enumerate(limits.tolist()):
            reachable = [settings.normalise(log_prob[sentence], n).item() for n in range(4, limit + 1)]
            assert bound[sentence].item() == pytest.approx(max(reachable))
