"""Text in and out of streams."""

from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, SentencePiece, TextCodec, train_sentencepiece
from antiphon.torch_free.text_streams import StreamGroup, run_streams
from antiphon.torch_free.vocab import UNKNOWN, Vocab


class Scripted:
    """Streams of a test, which say what they write after a token and at the end."""

    writes_at_once = True

    def advance(self, streams, tokens, copied=None, ending=()):
        return [*self.read(streams, tokens), *self.finish(ending)]


class Echo(Scripted):
    """Streams that write what they read."""

    def read(self, streams, tokens):
        return [[token] for token in tokens]

    def finish(self, streams):
        return [[] for _ in streams]


def test_subwords_are_read_as_they_are(tmp_path):
    text = "barol baronit celiro celinit"
    train_sentencepiece([text] * 20, tmp_path / "pieces.model", 20)
    tokeniser = SentencePiece(tmp_path / "pieces.model")
    pieces = tokeniser.split(text)
    side = TextCodec(Normalisation(), tokeniser, Vocab(sorted(set(pieces))))
    assert any(tokeniser.split(piece) != [piece] for piece in pieces)
    (timed,) = run_streams(StreamGroup(Echo(), PairCodec(side, side), 1), [pieces])
    assert timed.tokens == pieces
    assert timed.read == list(range(1, len(pieces) + 1))
    group = StreamGroup(Echo(), PairCodec(side, side), 1)
    assert [token for word in text.split() for token in group.read([word])[0]] == pieces


class Late(Scripted):
    """Streams that write all but their first letters when the input has ended, and add an unknown token."""

    writes_at_once = False

    def __init__(self):
        self.held = []

    def read(self, streams, tokens):
        self.held += tokens
        return [[] for _ in streams]

    def finish(self, streams):
        return [[*self.held, UNKNOWN] for _ in streams]


class Doubling(Echo):
    """Streams that write what they read twice, and at the end an unknown token."""

    def read(self, streams, tokens):
        return [[token] * 2 for token in tokens]

    def finish(self, streams):
        return [[UNKNOWN] for _ in streams]


LETTERS = TextCodec(Normalisation(), Chars(), Vocab("ab"))


def stream_letters(streams, text):
    (timed,) = run_streams(StreamGroup(streams, PairCodec(LETTERS, LETTERS), 1), [list(text)])
    return "".join(timed.tokens)


def test_an_unknown_token_written_at_once_is_the_token_just_read():
    assert stream_letters(Doubling(), "axyb") == "aaxxyybby"
    assert stream_letters(Doubling(), "ab") == "aabbb"


def test_unknown_tokens_written_late_are_those_of_the_input_in_order():
    assert stream_letters(Late(), "axyxb") == "axyxbx"
    assert stream_letters(Late(), "ab") == "abb"


def test_every_stream_copies_from_its_own_input():
    group = StreamGroup(Echo(), PairCodec(LETTERS, LETTERS), 2)
    assert group.read(["ax", "yb"]) == [["a", "x"], ["y", "b"]]
    assert group.read([None, "z"]) == [[], ["z"]]
