from itertools import product

import pytest
import torch

from antiphon.decode.alignments import add_alignments
from antiphon.decode.beam_search import search_outputs
from antiphon.models.ensemble_model import Ensemble, MemberIds
from antiphon.models.transducer import Transducer
from antiphon.torch_free.hypothesis import Hypothesis
from antiphon.torch_free.vocab import END
from tests.decode.small_models import batch_of, every_output, pair, small_model, sources
from tests.networks import beam_settings

SAME = torch.arange(9)
WIDE = beam_settings(beam=200, nbest=5, threshold=float("inf"), max_length_ratio=0.0, max_length_extra=4)


def together(*members, target_size=6):
    ids = [MemberIds(SAME, torch.arange(target_size), SAME[:8])] * len(members)
    return Ensemble(members, ids).double().eval()


@pytest.mark.parametrize("name", ["attention", "encoder_decoder", "transformer"])
def test_an_ensemble_of_one_is_the_model(name):
    model, batch = small_model(name, target_size=12), batch_of(sources(4, 7))
    settings = beam_settings(beam=4, nbest=3)
    wanted = search_outputs(model, batch, settings)
    found = search_outputs(together(model, target_size=12), batch, settings)
    assert [[h.tokens for h in each] for each in found] == [[h.tokens for h in each] for each in wanted]
    assert found[0][0].log_prob == pytest.approx(wanted[0][0].log_prob)


@pytest.mark.parametrize("name", ["transducer", "copying"])
def test_an_ensemble_of_one_transducer_is_the_transducer(name):
    model, batch = small_model(name, target_size=12), batch_of(sources(4, 7))
    wanted, found = (
        search_outputs(each, batch, beam_settings(beam=4)) for each in (model, together(model, target_size=12))
    )
    assert [each[0] for each in found] == [each[0] for each in wanted]


@torch.no_grad()
def test_the_next_token_has_the_mean_of_what_members_say():
    members = [small_model("transducer", 1), small_model("attention", 2)]
    ensemble, batch = together(*members), batch_of(sources(3))
    token, sentence = torch.tensor([2]), torch.tensor([0])
    each = [model.step(*model.start(batch), token, sentence)[0] for model in members]
    found, _ = ensemble.step(*ensemble.start(batch), token, sentence)
    by_hand = sum(log_next.exp() for log_next in each) / 2
    torch.testing.assert_close(found.exp(), by_hand)


def test_the_score_of_an_output_is_the_product_of_its_averages():
    ensemble = together(small_model("copying", 1), small_model("attention", 2), small_model("geometric", 3))
    (source,) = sources(3)
    (found,) = search_outputs(ensemble, batch_of([source]), WIDE)
    listed = every_output(ensemble, source, longest=4)[:5]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for *_, tokens in listed]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([p for _, p, _ in listed], abs=1e-9)


@torch.no_grad()
def test_members_may_number_their_tokens_differently():
    model = small_model("attention", 2)
    order = torch.tensor([0, 1, 2, 3, 5, 4])
    renumbered = small_model("attention", 2)
    renumbered.embedding.weight.copy_(model.embedding.weight[order])
    renumbered.output.weight.copy_(model.output.weight[order])
    renumbered.output.bias.copy_(model.output.bias[order])
    ids = [MemberIds(SAME, target, SAME[:8]) for target in (torch.arange(6), order)]
    ensemble = Ensemble([model, renumbered], ids).double()
    (source,) = sources(3)
    for words in ((4, 5, 5), (5,), ()):
        batch = pair(source, words)
        torch.testing.assert_close(ensemble.log_prob(batch), model.log_prob(batch))


@torch.no_grad()
def test_members_may_number_their_features_differently():
    order = torch.tensor([0, 1, 2, 3, 6, 7, 4, 5])
    model, renumbered = small_model("copying"), small_model("copying")
    for embedding in (renumbered.source_features, renumbered.target_features):
        embedding.weight.copy_(embedding.weight[order])
    ids = [MemberIds(SAME, torch.arange(6), features) for features in (SAME[:8], order)]
    ensemble = Ensemble([model, renumbered], ids).double()
    (source,) = sources(5)
    batch = pair(source, (4, 5, 5))
    assert batch.features.shape[1]
    torch.testing.assert_close(ensemble.log_prob(batch), model.log_prob(batch))


def test_outputs_are_aligned_by_the_first_member_that_copies():
    plain, copying = small_model(), small_model("copying")
    batch = batch_of(sources(3))
    assert together(plain, copying).member_of(Transducer, batch)[0] is copying
    assert together(small_model("attention"), plain).member_of(Transducer, batch)[0] is plain
    assert together(small_model("attention")).member_of(Transducer, batch) is None


def test_outputs_are_aligned_in_the_ids_of_the_member():
    attention, transducer = small_model("attention"), small_model()
    order = torch.tensor([0, 1, 2, 3, 5, 4])
    ids = [MemberIds(SAME, table, SAME[:8]) for table in (torch.arange(6), order)]
    ensemble, batch = Ensemble([attention, transducer], ids).double(), batch_of(sources(4))
    for tokens in product((4, 5), repeat=3):
        ours, theirs = ([[Hypothesis((*some, END), 0.0, 0.0)]] for some in (tokens, order[list(tokens)].tolist()))
        aligned, alone = add_alignments(ensemble, batch, ours), add_alignments(transducer, batch, theirs)
        assert aligned[0][0].alignment == alone[0][0].alignment
