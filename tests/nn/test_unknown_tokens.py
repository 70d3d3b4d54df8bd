"""Tokens are made unknown on both sides of some pairs, and nothing else is changed."""

import torch

from antiphon.build import find_counterparts
from antiphon.data.batch import Batch
from antiphon.data.vocab import END, NO_COUNTERPART, PAD, UNKNOWN, Vocab
from antiphon.nn.unknown_tokens import make_some_unknown
from tests.models.test_transducer import COPYING, ids, model_of

COUNTERPARTS = torch.tensor([-1, UNKNOWN, -1, -1, 5, 4, UNKNOWN, 6])
"""Source 4 is target 5 and the reverse, source 7 is target 6; the target has nothing for source 6."""


def many(source, target, pairs=4000):
    torch.manual_seed(3)
    batch = Batch.of([ids(*source)] * pairs, [ids(*target)] * pairs, [ids(4)] * pairs)
    return batch, make_some_unknown(batch, COUNTERPARTS)


def test_the_same_token_of_both_sides_is_made_unknown_in_about_one_pair_of_twenty():
    before, after = many([4, 5, 4, 7], [5, 4, 4, 6, 5])
    changed = (after.source != before.source).any(1)
    assert torch.equal(changed, (after.target != before.target).any(1))
    assert 0.04 < changed.float().mean() < 0.06
    rows = (map(tuple, side.tolist()) for side in (after.source, after.target))
    assert set(zip(*rows, strict=True)) == {
        ((4, 5, 4, 7, END), (5, 4, 4, 6, 5, END)),
        ((UNKNOWN, 5, UNKNOWN, 7, END), (UNKNOWN, 4, 4, 6, UNKNOWN, END)),
        ((4, UNKNOWN, 4, 7, END), (5, UNKNOWN, UNKNOWN, 6, 5, END)),
        ((4, 5, 4, UNKNOWN, END), (5, 4, 4, UNKNOWN, 5, END)),
    }


def test_lengths_and_features_stay_as_they_are():
    before, after = many([4, 5], [5, 4])
    assert torch.equal(after.source_lengths, before.source_lengths)
    assert torch.equal(after.target_lengths, before.target_lengths)
    assert torch.equal(after.features, before.features)


def test_tokens_of_one_side_alone_stay():
    for source, target in (([4, 6], [4, 6]), ([], [4]), ([4], []), ([], [])):
        before, after = many(source, target)
        assert torch.equal(after.source, before.source)
        assert torch.equal(after.target, before.target)


def test_padding_and_end_symbols_stay():
    torch.manual_seed(3)
    batch = Batch.of([ids(4), ids(4, 5, 7)] * 1000, [ids(5, 5, 5), ids(5)] * 1000)
    after = make_some_unknown(batch, COUNTERPARTS)
    for old, new in ((batch.source, after.source), (batch.target, after.target)):
        special = (old == PAD) | (old == END)
        assert torch.equal(old[special], new[special])
        assert (old != new).any()


def test_counterparts_are_the_same_tokens_of_the_other_side():
    found = find_counterparts(Vocab("abc"), Vocab("cxa"))
    assert found.tolist() == [NO_COUNTERPART, UNKNOWN, NO_COUNTERPART, NO_COUNTERPART, 6, UNKNOWN, 4]


def test_only_a_model_in_training_that_copies_makes_tokens_unknown():
    batch = Batch.of([ids(4, 5, 6)] * 200, [ids(4, 5, 6)] * 200)
    copying, plain = model_of(**COPYING), model_of(feature_size=8)
    for model, is_training, values in ((copying, True, 4), (copying, False, 1), (plain, True, 1)):
        torch.manual_seed(0)
        found = model.train(is_training).log_prob(batch)
        assert len({round(value, 9) for value in found.tolist()}) == values
