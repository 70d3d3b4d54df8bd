import math

import pytest
import torch

from antiphon.data.batch import Batch
from antiphon.lattice import posteriors
from antiphon.models.transducer import Transducer
from antiphon.nn import transducer_layers
from antiphon.torch_free.vocab import END, UNKNOWN, CopiedWords
from tests.lattice.every_path import listed_log_marginal
from tests.networks import build_network

CHOICES = [
    {"encoder": encoder, "transition": transition, "final_write": final_write}
    for encoder in ("unidirectional", "bidirectional")
    for transition in ("geometric", "neural")
    for final_write in ("learned", "forced")
]
COPYING = {"feature_size": 8, "copy_unknown": True}


def model_of(target_size=7, **settings):
    torch.manual_seed(1)
    return build_network(Transducer, 8, target_size, **settings).double().eval()


def ids(*numbers):
    return torch.tensor(numbers, dtype=torch.int32).numpy()


@pytest.mark.parametrize("choice", [*CHOICES, *(choice | COPYING for choice in CHOICES)])
def test_log_prob_of_a_batch_equals_listing_every_path_of_each_pair(choice):
    model = model_of(**choice)
    triples = [
        (ids(4, 5, 6), ids(4, 5), ids(5)),
        (ids(7, UNKNOWN), ids(UNKNOWN, 6, 5, 4), ids(4, 6, 7)),
        (ids(5, 5, 5, 4), ids(5, 5, 4), ids(UNKNOWN)),
        (ids(), ids(), ids()),
    ]
    together = model.log_prob(Batch.of(*zip(*triples, strict=True)))
    for b, triple in enumerate(triples):
        moves = model.moves(Batch.of(*([part] for part in triple)))
        torch.testing.assert_close(together[b], listed_log_marginal(moves.log_write[0], moves.log_read[0]))


def gradients(model, log_prob):
    """The gradient of every weight, by its name."""
    names, weights = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(log_prob.sum(), weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("choice", [*CHOICES[::3], {"context": "attention"}])
def test_label_smoothing_adds_the_gradient_of_the_mean_token_where_each_token_is_written(choice):
    model, share = model_of(**choice), 0.3
    batch = Batch.of([ids(4, 5, 6), ids(7)], [ids(4, 5), ids(UNKNOWN, 6, 5, 4)])
    (source, context), (states, _) = (
        model.encode(batch),
        model.read_prefix(batch.shifted_target, model.target_state(batch.features)),
    )
    target = model.target_factors(model.attend(states, context))
    cells = (source.logits[:, :, None] + target.logits[:, None]).log_softmax(3)
    of_token = cells.gather(3, batch.target[:, None, :, None].expand(-1, cells.shape[1], -1, -1))[..., 0]
    lengths = batch.source_lengths, batch.target_lengths
    written = posteriors(*model.moves(batch), *lengths).write.detach()
    log_prob = model.log_prob(batch)
    expected = gradients(model, log_prob + share * (written * (cells.mean(3) - of_token)).sum((1, 2)))
    torch.testing.assert_close(model.log_prob(batch, share), log_prob)
    torch.testing.assert_close(gradients(model, model.log_prob(batch, share)), expected)
    torch.testing.assert_close(gradients(model, model.log_prob(batch.padded(3, 8, 8), share)[:2]), expected)


@pytest.mark.parametrize("encoder", ["unidirectional", "bidirectional"])
def test_label_smoothing_has_no_say_in_where_tokens_are_written(encoder):
    model, batch = model_of(encoder=encoder), Batch.of([ids(4, 5, 6), ids(7)], [ids(4, 5), ids(UNKNOWN, 6, 5, 4)])
    plain, smoothed = (gradients(model, model.log_prob(batch, share)) for share in (0.0, 0.3))
    of_transition = [name for name in plain if name.startswith("transition.")]
    assert of_transition
    assert all(torch.equal(plain[name], smoothed[name]) for name in of_transition)
    assert not torch.allclose(plain["target_logits.weight"], smoothed["target_logits.weight"])


def test_tokens_that_a_gpu_pads_the_vocabulary_with_are_not_smoothed(monkeypatch):
    model, batch = model_of(), Batch.of([ids(4, 5, 6)], [ids(4, 5)])
    expected = gradients(model, model.log_prob(batch, 0.3))
    monkeypatch.setattr(transducer_layers, "kernels_can_run", lambda tensor: True)
    assert model.train().encode(batch)[0].logits.shape[2] == 8
    torch.testing.assert_close(gradients(model, model.log_prob(batch, 0.3)), expected)


def test_words_that_are_copied_are_not_smoothed():
    model = model_of(copy_words=True)
    batch = Batch.of([ids(4, 5)], [ids(7, 4)], copied=CopiedWords([ids(-4, 5)], 7))
    copied = batch.target[0] >= model.target_size
    assert copied.tolist() == [True, False, False]
    plain, smoothed = (
        [gradients(model, column.sum()) for column in model.moves(batch, share).log_write[0].T] for share in (0.0, 0.3)
    )
    torch.testing.assert_close(smoothed[0], plain[0])
    for before, after in zip(plain[1:], smoothed[1:], strict=True):
        assert not torch.allclose(before["target_logits.weight"], after["target_logits.weight"])


@pytest.mark.parametrize("settings", [{}, {"copy_words": True}, {"context": "attention", "encoder": "bidirectional"}])
def test_a_tied_output_layer_is_an_untied_one_with_equal_weights(settings):
    tied, plain = (model_of(embedding_size=6, tie_output=tie, **settings) for tie in (True, False))
    weights, projection = tied.target_logits.weight, tied.source_projection.weight
    own = {"decoder.embedding.weight": weights[:7], "source_logits.weight": weights @ projection}
    plain.load_state_dict({name: own.get(name, tied.state_dict().get(name)) for name in plain.state_dict()})
    batch = Batch.of([ids(4, 5, 6)], [ids(4, 5)], copied=CopiedWords([ids(4, 5, 6)], 7))
    torch.testing.assert_close(tied.log_prob(batch), plain.log_prob(batch))
    assert len({tensor.data_ptr() for tensor in tied.state_dict().values()}) == len(tied.state_dict())


def test_forcing_the_last_emit_gives_outputs_the_mass_of_shifting_past_the_end():
    learned, forced = (model_of(target_size=6, final_write=choice) for choice in ("learned", "forced"))
    with torch.no_grad():
        for model in (learned, forced):
            model.target_logits.bias[END] += 2.0
    lengths = range(6)
    assert sum(_mass_of_outputs(learned, n) for n in lengths) < sum(_mass_of_outputs(forced, n) for n in lengths) < 1


def _mass_of_outputs(model, length):
    words = torch.cartesian_prod(*[torch.arange(6)] * length).reshape(-1, length) if length else torch.zeros(1, 0)
    words = words[(words != END).all(1)].int()
    batch = Batch.of([ids(4, 5)] * len(words), [row.numpy() for row in words])
    return model.log_prob(batch).exp().sum().item()


def test_geometric_transition_is_its_closed_form_and_fixed():
    model = model_of(transition="geometric", write_probability=0.3)
    moves = model.moves(Batch.of([ids(4, 5)], [ids(6, 6)]))
    torch.testing.assert_close(moves.log_read, torch.full((1, 3, 3), math.log(0.7), dtype=torch.float64))
    assert not any(name.startswith("transition") for name, _ in model.named_parameters())
    assert "transition.constant_log_odds" in model.state_dict()


def test_emit_is_certain_in_the_last_row_only_if_forced():
    batch = Batch.of([ids(4, 5), ids(4)], [ids(6, 6), ids(6)])
    learned, forced = (model_of(final_write=choice).moves(batch).log_write for choice in ("learned", "forced"))
    for b, length in enumerate(batch.source_lengths.tolist()):
        assert torch.equal(learned[b, : length - 1], forced[b, : length - 1])
        assert (forced[b, length - 1] > learned[b, length - 1]).all()


@pytest.mark.parametrize("settings", [{}, COPYING])
def test_gradients_of_padded_batches_equal_those_of_single_pairs(settings):
    model = model_of(**settings)
    pairs = [(ids(4, 5, 6), ids(4, 5), ids(4, 5)), (ids(7), ids(6, 6, 5, 4), ids())]
    model.log_prob(Batch.of(*zip(*pairs, strict=True))).sum().backward()
    together = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for source, target, features in pairs:
        model.log_prob(Batch.of([source], [target], [features])).sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(together[name], parameter.grad)


@pytest.mark.parametrize("settings", [{}, COPYING])
def test_columns_computed_apart_give_the_same_moves(monkeypatch, settings):
    model = model_of(**settings)
    batch = Batch.of([ids(4, 5, 6)], [ids(4, 5, 4, 4, 6)])
    with_gradient = model.moves(batch)
    monkeypatch.setattr("antiphon.models.transducer._CPU_ELEMENTS", 1)
    with torch.no_grad():
        apart = model.moves(batch)
    torch.testing.assert_close(apart.log_write, with_gradient.log_write)


def test_posteriors_of_a_model_are_probabilities():
    batch = Batch.of([ids(4, 5, 6), ids(4)], [ids(4, 5), ids(6, 5, 4)])
    write = posteriors(*model_of().moves(batch), batch.source_lengths, batch.target_lengths).write
    torch.testing.assert_close(write.sum((1, 2)), batch.target_lengths.double())


@torch.no_grad()
def test_features_are_a_set_to_which_unseen_ones_and_padding_add_nothing():
    model = model_of(**COPYING)
    features = [ids(), ids(UNKNOWN), ids(4), ids(4, UNKNOWN), ids(4, 6), ids(6, 4), ids(6)]
    batch = Batch.of([ids(4, 5)] * 7, [ids(4, 5, 6)] * 7, features, max_features=5)
    none, unseen, one, one_more, two, reverse, other = model.log_prob(batch).tolist()
    assert unseen == pytest.approx(none, abs=1e-12)
    assert one_more == pytest.approx(one, abs=1e-12)
    assert reverse == pytest.approx(two, abs=1e-12)
    assert len({round(value, 6) for value in (none, one, two, other)}) == 4


def test_parameters_keep_their_order_since_seeds_and_saved_optimisers_depend_on_it():
    model = build_network(Transducer, 6, 7, 3, context="attention", copy_words=True)
    parts = dict.fromkeys(name.split(".")[0] for name, _ in model.named_parameters())
    before = "encoder decoder source_features target_features attention source_logits target_logits transition"
    assert list(parts) == before.split()
