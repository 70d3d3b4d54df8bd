import numpy as np

from antiphon.data.association import associate, count_keys
from antiphon.data.corpus import Corpus, LengthLimits, write_corpus
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec
from antiphon.torch_free.readers import Pair
from antiphon.torch_free.vocab import NO_COUNTERPART, Vocab

SOURCE, TARGET = (TextCodec(Normalisation(), Chars(), Vocab(letters)) for letters in ("abcz", "xyw"))


def test_letters_go_with_what_stands_in_the_same_pairs(tmp_path):
    pairs = [("ab", "xy"), ("a", "x"), ("b", "y"), ("ac", "xw"), ("cb", "wy")]
    given = (Pair(source, target, (), "here") for source, target in pairs)
    write_corpus(given, PairCodec(SOURCE, TARGET), tmp_path / "x.arrow", LengthLimits())
    found = associate(Corpus(tmp_path / "x.arrow"), len(SOURCE.vocab), len(TARGET.vocab))
    x, y, w = TARGET.encode("xyw")
    assert found[:4].tolist() == [NO_COUNTERPART] * 4
    assert found[4:].tolist() == [x, y, w, NO_COUNTERPART]
    assert found.dtype == np.int64


def test_keys_are_counted_in_parts_of_any_size():
    parts = [np.array(part, np.int64) for part in ([5, 1, 5], [], [2**40, 1], [7], [1, 7, 7])]
    for at_once in (1, 3, 100):
        keys, counts = count_keys(iter(parts), at_once)
        assert keys.tolist() == [1, 5, 7, 2**40]
        assert counts.tolist() == [3, 2, 3, 1]
    assert [len(each) for each in count_keys(iter([]))] == [0, 0]
