"""Text in and out of streams."""

from antiphon.data.codec import PairCodec, TextCodec
from antiphon.data.tokenise import SentencePiece, TextSteps, train_sentencepiece
from antiphon.data.vocab import Vocab
from antiphon.streaming import StreamGroup, run_streams


class Echo:
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
    side = TextCodec(TextSteps(), tokeniser, Vocab(sorted(set(pieces))))
    assert any(tokeniser.split(piece) != [piece] for piece in pieces)
    (timed,) = run_streams(StreamGroup(Echo(), PairCodec(side, side), [()]), [pieces])
    assert timed.tokens == pieces
    assert timed.read == list(range(1, len(pieces) + 1))
    group = StreamGroup(Echo(), PairCodec(side, side), [()])
    assert [token for word in text.split() for token in group.read([word])[0]] == pieces
