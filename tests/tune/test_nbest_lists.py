"""Lists of candidates that grow over several searches."""

from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import Vocab
from antiphon.tune import NBestLists

LETTERS = TextCodec(Normalisation(), Chars(), Vocab("abc"))
CODEC = PairCodec(LETTERS, LETTERS)
PAIR = Pair("a", "ab", (), "dev.tsv:1")
BETTER, WORSE = (-1.0, -2.0, -3.0, 2.0), (-4.0, -5.0, -6.0, 2.0)


def test_of_candidates_with_the_same_tokens_the_first_one_counts():
    lists = NBestLists([PAIR], CODEC, "accuracy")
    assert lists.add([[(("a", "b"), BETTER), (("a", "c"), WORSE), (("a", "b"), WORSE)]]) == 2
    assert lists.lists[0].scores[("a", "b")] == BETTER
    assert lists.table().scores.shape == (1, 2, 4)


def test_candidates_that_were_found_before_are_not_new():
    lists = NBestLists([PAIR], CODEC, "accuracy")
    assert lists.add([[(("a", "b"), BETTER)]]) == 1
    assert lists.add([[(("a", "b"), WORSE), (("c",), WORSE)]]) == 1
