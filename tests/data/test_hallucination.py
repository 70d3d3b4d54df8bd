import numpy as np
import pytest

from antiphon.data.codec import PairCodec, TextCodec
from antiphon.data.corpus import Corpus, Limits, write_corpus
from antiphon.data.hallucination import Hallucinator, Shared, longest_shared
from antiphon.data.readers import Pair
from antiphon.data.tokenise import Chars, TextSteps
from antiphon.data.vocab import Vocab

SOURCE = TextCodec(TextSteps(), Chars(), Vocab("abcdefghijklmn"))
TARGET = TextCodec(TextSteps(), Chars(), Vocab("nmlkjihgfedcbax"))
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
def corpus(tmp_path):
    pairs = (Pair(source, target, ("N",), "here") for source, target in PAIRS)
    write_corpus(pairs, PairCodec(SOURCE, TARGET, Vocab(["N"])), tmp_path / "x.arrow", Limits())
    return Corpus(tmp_path / "x.arrow")


def texts(batch):
    return [
        (SOURCE.decode(source), TARGET.decode(target))
        for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True)
    ]


def test_what_is_shared_is_replaced_alike_but_for_its_edges(corpus):
    made = texts(Hallucinator(corpus, COUNTERPARTS, 1.0).batch(np.array([0] * 20), np.arange(20)))
    assert len(set(made)) > 15
    for source, target in made:
        assert (source[0], source[-1]) == ("a", "f")
        assert target == f"xx{source}x"
        assert set(source) <= set("abcdefghijk")  # letters that some pair has on both sides


def test_short_stems_and_features_stay(corpus):
    batch = Hallucinator(corpus, COUNTERPARTS, 1.0).batch(np.array([1, 2]), np.array([5, 6]))
    assert texts(batch)[0] == PAIRS[1]
    assert texts(batch)[1][0][3:] == "jk"
    assert batch.features.tolist() == [[4], [4]]


def test_the_share_says_how_many_are_made_up(corpus):
    some = Hallucinator(corpus, COUNTERPARTS, 0.3).batch(np.array([0] * 400), np.arange(400))
    assert 90 < sum(pair != PAIRS[0] for pair in texts(some)) < 150
    none = Hallucinator(corpus, COUNTERPARTS, 0.0).batch(np.array([0, 1, 2]), np.arange(3))
    assert texts(none) == PAIRS


def test_the_seed_of_a_pair_decides_alone(corpus):
    hallucinator = Hallucinator(corpus, COUNTERPARTS, 0.8)
    together = texts(hallucinator.batch(np.array([0, 2, 0]), np.array([7, 8, 9])))
    alone = [texts(hallucinator.batch(np.array([n]), np.array([s])))[0] for n, s in ((0, 7), (2, 8), (0, 9))]
    assert together == alone
