import numpy as np

from antiphon.data.association import associate
from antiphon.data.codec import PairCodec, TextCodec
from antiphon.data.corpus import Corpus, LengthLimits, write_corpus
from antiphon.data.readers import Pair
from antiphon.data.tokenise import Chars, Normalisation
from antiphon.data.vocab import NO_COUNTERPART, Vocab

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
