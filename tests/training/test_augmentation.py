import numpy as np
import pytest

from antiphon.data.corpus import Corpus, LengthLimits
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import NO_COUNTERPART, UNKNOWN, Vocab
from antiphon.training.augmentation import AugmentedPairs, HiddenSources, Shared, find_counterparts, longest_shared

SOURCE = TextCodec(Normalisation(), Chars(), Vocab("abcdefghijklmn"))
TARGET = TextCodec(Normalisation(), Chars(), Vocab("nmlkjihgfedcbax"))
SEEDS = np.random.default_rng(0).integers(2**63, size=2000)
NEVER = np.array([2**63 - 1, 2**63 - 2, 2**63 - 3])  # seeds of pairs that stay as they are
PAIRS = [("abcdef", "xxabcdefx"), ("ab", "abx"), ("ghijk", "ghixjk")]
COUNTERPARTS = np.array([-1, 1, -1, -1, *TARGET.vocab.encode("abcdefghijklmn")])


def encoded(text):
    return COUNTERPARTS[SOURCE.encode(text)]


@pytest.mark.parametrize(
    ("source", "target", "shared"),
    [
        ("abcd", "xxabcdx", Shared(0, 2, 4)),
        ("abcd", "bcda", Shared(1, 0, 3)),
        ("abab", "ab", Shared(0, 0, 2)),
        ("aab", "bb", Shared(2, 0, 1)),
        ("abc", "xxx", Shared(0, 0, 0)),
        ("", "a", Shared(0, 0, 0)),
    ],
)
def test_the_longest_shared_run_is_found(source, target, shared):
    assert longest_shared(encoded(source), TARGET.encode(target)) == shared


@pytest.fixture
def corpus():
    pairs = (Pair(source, target, ("N",), "here") for source, target in PAIRS)
    return Corpus.encode(pairs, PairCodec(SOURCE, TARGET, Vocab(["N"])), LengthLimits())


def texts(batch):
    return [
        (SOURCE.decode(source), TARGET.decode(target))
        for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    ]


def test_pairs_without_a_known_letter_stay_as_they_are():
    nothing = TextCodec(Normalisation(), Chars(), Vocab(()))
    pairs = [Pair("abcdef", "abcdef", (), "here")]
    corpus = Corpus.encode(pairs, PairCodec(nothing, nothing), LengthLimits())
    counterparts = np.array([NO_COUNTERPART, UNKNOWN, NO_COUNTERPART, NO_COUNTERPART])
    batch = AugmentedPairs(corpus, counterparts, 1.0).batch(np.array([0]), SEEDS[:1])
    assert set(batch.source[0, :-1].tolist()) == {UNKNOWN}


def test_what_is_shared_is_replaced_alike_but_for_its_edges(corpus):
    made = texts(AugmentedPairs(corpus, COUNTERPARTS, 1.0).batch(np.array([0] * 20), SEEDS[:20]))
    assert len(set(made)) > 15
    for source, target in made:
        assert (source[0], source[-1]) == ("a", "f")
        assert target == f"xx{source}x"
        assert set(source) <= set("abcdefghijk")  # letters that some pair has on both sides


def test_short_stems_and_features_stay(corpus):
    batch = AugmentedPairs(corpus, COUNTERPARTS, 1.0).batch(np.array([1, 2]), SEEDS[:2])
    assert texts(batch)[0] == PAIRS[1]
    assert texts(batch)[1][0][3:] == "jk"
    assert batch.features.tolist() == [[4], [4]]


def test_the_share_says_how_many_are_made_up(corpus):
    some = AugmentedPairs(corpus, COUNTERPARTS, 0.3).batch(np.array([0] * 400), SEEDS[:400])
    assert 90 < sum("<unk>" not in pair[0] and pair != PAIRS[0] for pair in texts(some)) < 150
    none = AugmentedPairs(corpus, COUNTERPARTS, 0.0).batch(np.array([0, 1, 2]), NEVER)
    assert texts(none) == PAIRS


def test_the_seed_of_a_pair_decides_alone(corpus):
    pairs_ = AugmentedPairs(corpus, COUNTERPARTS, 0.8)
    together = texts(pairs_.batch(np.array([0, 2, 0]), SEEDS[7:10]))
    alone = [texts(pairs_.batch(np.array([n]), np.array([s])))[0] for n, s in zip((0, 2, 0), SEEDS[7:10], strict=True)]
    assert together == alone


def test_a_token_of_both_sides_is_unknown_in_one_pair_of_twenty(corpus):
    made = texts(AugmentedPairs(corpus, COUNTERPARTS, 0.0).batch(np.array([0] * 2000), SEEDS))
    hidden = [pair for pair in made if pair != PAIRS[0]]
    assert 60 < len(hidden) < 140
    for source, target in hidden:
        assert source.count("<unk>") == 1
        assert target == f"xx{source}x"
    assert len(set(hidden)) == 6  # any letter of the six
    kept = texts(AugmentedPairs(corpus, np.full(18, -1), 0.0).batch(np.array([0] * 2000), SEEDS))
    assert set(kept) == {PAIRS[0]}


def test_source_tokens_of_some_pairs_are_hidden_and_nothing_else(corpus):
    made = texts(HiddenSources(corpus, 0.5).batch(np.array([0] * 2000), SEEDS))
    hidden = [source.replace("<unk>", "?") for source, _ in made]
    assert {target for _, target in made} == {PAIRS[0][1]}
    assert all(len(source) == 6 for source in hidden)
    assert 0.3 < np.mean(["?" in source for source in hidden]) < 0.4
    assert 0.1 < np.mean([source.count("?") / 6 for source in hidden]) < 0.15
    assert texts(HiddenSources(corpus, 0.5).batch(np.array([0, 1, 2]), NEVER)) == PAIRS


def test_counterparts_are_the_same_tokens_of_the_other_side():
    found = find_counterparts(Vocab("abc"), Vocab("cxa"))
    assert found.tolist() == [NO_COUNTERPART, UNKNOWN, NO_COUNTERPART, NO_COUNTERPART, 6, UNKNOWN, 4]
