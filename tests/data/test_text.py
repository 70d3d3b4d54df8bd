import pytest

from antiphon.data.batch import Batch
from antiphon.exceptions import InputError
from antiphon.torch_free.codec import (
    Chars,
    Normalisation,
    PairCodec,
    SentencePiece,
    TextCodec,
    TextTokeniser,
    Words,
    train_sentencepiece,
)
from antiphon.torch_free.readers import Source
from antiphon.torch_free.vocab import END, PAD, SPECIALS, UNKNOWN, TokenCounts, Vocab


def test_text_steps_are_those_asked_for():
    decomposed = "Cafe\u0301 1984"
    assert Normalisation()(decomposed) == decomposed
    assert Normalisation(nfc=True)(decomposed) == "Café 1984"
    assert Normalisation(lowercase=True, digits_to_hash=True)("In 1984") == "in ####"


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("who wrote Hamlet?", "who wrote Hamlet ?"),
        ('"No", he (the king) said.', '" No ", he ( the king ) said .'),
        ("at 3:30 in the U.S. army", "at 3:30 in the U.S. army"),
        ("it 's already split , is n't it ?", "it 's already split , is n't it ?"),
    ],
)
def test_punctuation_is_set_apart_where_it_touches_a_word(text, split):
    assert Normalisation(split_punctuation=True)(text) == split


def test_chars_and_words_come_back_as_they_were():
    assert Chars().split("a b") == ["a", " ", "b"]
    assert Chars().join(Chars().split("a b")) == "a b"
    assert Words().split(" a  b ") == ["a", "b"]
    assert Words().join(["a", "b"]) == "a b"


def test_syllables_of_hangul_are_read_by_their_letters_and_written_as_syllables():
    normalise = Normalisation(split_hangul=True)
    letters = Chars().split(normalise("한글 e\u0301"))
    assert letters == ["ᄒ", "ᅡ", "ᆫ", "ᄀ", "ᅳ", "ᆯ", " ", "e", "\u0301"]
    assert Chars().join(letters) == "한글 e\u0301"


@pytest.mark.parametrize("kind", ["chars", "words", "sentencepiece"])
def test_many_texts_are_cut_as_each_is(tmp_path, kind):
    texts = ["", " The cat  sat ", *(f"The cat number {n}" for n in range(99))]
    if kind == "sentencepiece":
        train_sentencepiece(texts, tmp_path / "x.spm", 30)
    tokeniser = {"chars": Chars, "words": Words, "sentencepiece": lambda: SentencePiece(tmp_path / "x.spm")}[kind]()
    for steps in (Normalisation(), Normalisation(lowercase=True, digits_to_hash=True)):
        cutter = TextTokeniser(steps, tokeniser)
        assert cutter.tokens_of(texts) == [cutter.tokens(text) for text in texts]


def test_sentencepiece_is_trained_and_undone(tmp_path):
    texts = [f"the cat number {n} sat on the mat" for n in range(200)]
    model = tmp_path / "source.spm"
    train_sentencepiece(texts, model, 60)
    pieces = SentencePiece(model)
    assert pieces.join(pieces.split("the cat sat")) == "the cat sat"
    assert len(pieces.split("the cat sat")) < len("the cat sat")


def test_what_is_no_sentencepiece_model_is_named(tmp_path):
    (tmp_path / "bad.model").write_text("nothing")
    with pytest.raises(InputError, match=r"bad\.model: not a SentencePiece model"):
        SentencePiece(tmp_path / "bad.model")


def test_vocabulary_numbers_frequent_tokens_first_and_leaves_rare_ones_out():
    tally = TokenCounts()
    assert tally.encode(["c", "a", "a"]).tolist() == [0, 1, 1]
    assert tally.encode(["b", "a", "<s>", "<s>", "b"]).tolist() == [2, 1, 3, 3, 2]
    vocab = tally.vocab(min_count=2)
    assert vocab.tokens == (*SPECIALS, "a", "b")
    assert vocab.encode("abc").tolist() == [4, 5, UNKNOWN]


def test_text_that_reads_like_a_special_symbol_is_unknown_text():
    vocab = Vocab(["a"])
    assert vocab.encode(["</s>", "<pad>", "<s>", "<unk>", "a"]).tolist() == [UNKNOWN] * 4 + [4]


def test_decoding_stops_at_the_end_symbol():
    assert Vocab("ab").decode([2, 4, 5, END, 4]) == ["a", "b"]


def test_vocabulary_survives_its_file_whatever_the_tokens(tmp_path):
    vocab = Vocab(["a", " ", "\u2028", "\x85", "\r", "[N;PL]", "ɑ̃"])
    vocab.save(tmp_path / "vocab")
    assert Vocab.load(tmp_path / "vocab") == vocab


def test_what_is_no_vocabulary_is_refused(tmp_path):
    (tmp_path / "vocab").write_text("a\nb\n")
    with pytest.raises(InputError, match="not a vocabulary"):
        Vocab.load(tmp_path / "vocab")


def test_features_are_a_set_with_ids_of_its_own():
    source = TextCodec(Normalisation(lowercase=True), Chars(), Vocab(["N", "n"]))
    codec = PairCodec(source, source, Vocab(["N", "PL"]))
    assert codec.known_features == {"N", "PL"}
    batch = Batch.of_text(
        codec, [Source("Nn", ("PL", "N", "PL")), Source("n", ("N", "X")), Source("n")], ["n", "", "nn"]
    )
    assert batch.features.tolist() == [[4, 5], [4, UNKNOWN], [PAD, PAD]]
    assert batch.source.tolist() == [[5, 5, END], [5, END, PAD], [5, END, PAD]]
    assert batch.target_lengths.tolist() == [2, 1, 3]
    assert source.count_unknown("nXx") == 2
    assert source.normalised("NX") == "nx"


def test_an_unknown_token_is_the_input_token_of_its_row():
    codec = PairCodec(*[TextCodec(Normalisation(), Chars(), Vocab("ab"))] * 2)
    written = [4, UNKNOWN, UNKNOWN, 5, END]
    assert codec.decode_copied(written, (0, 1, 2, 2, 4), list("axyb")) == list("axyb")
    assert codec.decode_copied(written, (0, 0, 4, 4, 4), list("axyb")) == list("aayb")
    assert codec.decode_copied(written, (0, 1, 2, 2, 2), list("ab")) == list("abbb")
    assert codec.decode_copied(written, (), list("ab")) == ["a", "<unk>", "<unk>", "b"]
    assert codec.decode_copied([4, END], (0, 1), list("x")) == ["a"]
