"""Text to tokens to ids, and back: normalisation, tokenisers, and the codec of both sides of a pair."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

from antiphon.exceptions import InputError, check_installed
from antiphon.terminal import one_line
from antiphon.torch_free.batch import Padded, PaddedPairs
from antiphon.torch_free.readers import Source
from antiphon.torch_free.vocab import END, SPECIALS, UNKNOWN, CopiedWords, Ids, Vocab, WordIds

NO_FEATURES = Vocab(())
"""The vocabulary of features if there are none."""
_SPACE = "\u2581"
"""The space before a word in the pieces of SentencePiece."""
_DIGIT = re.compile(r"\d")
_SYLLABLES = re.compile("[\uac00-\ud7a3]+")
"""Syllables of Hangul, 11,172 of them, each of two or three letters."""
_JAMO = re.compile("[\u1100-\u11ff]+")
"""Letters of Hangul that combine to syllables."""
_ATTACHED = re.compile(r"""(?<=\w)(?=[?!,;:)"\]]+(?:\s|$)|\.\s*$)|(?<=\s["(\[])(?=\w)|(?<=\A["(\[])(?=\w)""")
"""Positions where punctuation touches a word; a full stop only at the end of the text."""


@dataclass(frozen=True)
class Normalisation:
    """Normalisation of text before it is tokenised.  Thesis: section 4.6, lower-casing and digits to ``#``."""

    nfc: bool = False
    lowercase: bool = False
    digits_to_hash: bool = False
    split_punctuation: bool = False
    split_hangul: bool = False

    def __call__(self, text: str) -> str:
        """The normalised text."""
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        if self.lowercase:
            text = text.lower()
        if self.digits_to_hash:
            text = _DIGIT.sub("#", text)
        if self.split_punctuation:
            text = _ATTACHED.sub(" ", text)
        if self.split_hangul:
            text = _SYLLABLES.sub(lambda syllables: unicodedata.normalize("NFD", syllables[0]), text)
        return text

    def each(self, texts: Sequence[str]) -> Sequence[str]:
        """Every text normalised."""
        return texts if self == Normalisation() else [self(text) for text in texts]

    def __str__(self) -> str:
        chosen = [name for name, wanted in asdict(self).items() if wanted]
        return "+".join(chosen) or "none"


class Tokeniser(ABC):
    """Splits text into tokens, and joins them again."""

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """The tokens of a text."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text."""
        return list(map(self.split, texts))

    def word_indices(self, tokens: Sequence[str]) -> list[int]:
        """For each token of a text, the index of the word that it is part of; a character counts as a word."""
        return list(range(len(tokens)))


class Chars(Tokeniser):
    """Every character is a token; letters of Hangul are put together again to syllables."""

    def split(self, text: str) -> list[str]:
        """The characters of a text."""
        return list(text)

    def join(self, tokens: Sequence[str]) -> str:
        """The characters joined; letters of Hangul become syllables again."""
        return _JAMO.sub(lambda letters: unicodedata.normalize("NFC", letters[0]), "".join(tokens))


class Words(Tokeniser):
    """Tokens are separated by spaces: words of tokenised text, or phonemes."""

    def split(self, text: str) -> list[str]:
        """The words of a text."""
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        """The tokens with single spaces between them."""
        return " ".join(tokens)


class SentencePiece(Tokeniser):
    """Subwords of a SentencePiece model, trained here or elsewhere."""

    def __init__(self, model: Path) -> None:
        sentencepiece = _sentencepiece()
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        except (OSError, RuntimeError) as error:
            raise InputError(f"{model}: not a SentencePiece model, expected a file that spm_train wrote") from error

    def split(self, text: str) -> list[str]:
        """The pieces of a text."""
        pieces: list[str] = self._processor.encode(text, out_type=str)
        return pieces

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """The pieces of each text."""
        pieces: list[list[str]] = self._processor.encode(list(texts), out_type=str)
        return pieces

    def join(self, tokens: Sequence[str]) -> str:
        """The text that the pieces spell."""
        text: str = self._processor.decode(list(tokens))
        return text

    def word_indices(self, tokens: Sequence[str]) -> list[int]:
        """For each piece, the number of words before the one it is part of; a piece with a space begins a word."""
        return list(accumulate(index > 0 and piece.startswith(_SPACE) for index, piece in enumerate(tokens)))


def open_tokeniser(kind: str, model: Path) -> Tokeniser:
    """The tokeniser of a kind of tokens; ``model`` is the file of a SentencePiece model, if that is the kind."""
    if kind == "sentencepiece":
        return SentencePiece(model)
    return Chars() if kind == "chars" else Words()


def _sentencepiece() -> Any:
    """The package, which only texts of subwords need."""
    check_installed("sentencepiece", "lite", "text of subwords")
    import sentencepiece

    return sentencepiece


def train_sentencepiece(texts: Iterable[str], model: Path, vocabulary_size: int) -> None:
    """Trains a SentencePiece model on the texts and writes it."""
    sentencepiece = _sentencepiece()
    with model.open("wb") as file:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=file,
                vocab_size=vocabulary_size,
                character_coverage=1.0,
                hard_vocab_limit=False,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise InputError(f"{model.name}: SentencePiece could not be trained ({error})") from error


@dataclass(frozen=True)
class TextTokeniser:
    """Text to tokens for one side of a pair: normalisation, then tokenisation."""

    normalisation: Normalisation
    tokeniser: Tokeniser

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text after normalisation."""
        return self.tokeniser.split(self.normalisation(text))

    def tokens_of(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text after normalisation."""
        return self.tokeniser.split_all(self.normalisation.each(texts))


@dataclass(frozen=True)
class TextCodec(TextTokeniser):
    """Text to token ids and back for one side of a pair."""

    vocab: Vocab

    def encode(self, text: str) -> Ids:
        """The token ids of a text, without an end symbol."""
        return self.vocab.encode(self.tokens(text))

    def known_ids(self, tokens: Sequence[str], where: str) -> list[int]:
        """The ids of tokens; one that training never saw is refused."""
        for token in tokens:
            if token not in self.vocab:
                raise InputError(f"{where}: token {one_line(token)} was never seen in training, expected known tokens")
        return [int(id_) for id_ in self.vocab.encode(tokens)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, up to the end symbol."""
        return self.tokeniser.join(self.vocab.decode(ids))

    def normalised(self, text: str) -> str:
        """The text as this side would write it: normalised, tokenised and joined again."""
        return self.tokeniser.join(self.tokens(text))

    def count_unknown(self, text: str) -> int:
        """How many tokens of the text are not in the vocabulary."""
        return int((self.encode(text) == UNKNOWN).sum())


@dataclass(frozen=True)
class PairTokeniser:
    """Text to tokens for both sides of a pair."""

    source: TextTokeniser
    target: TextTokeniser


@dataclass(frozen=True)
class PairCodec(PairTokeniser):
    """Text to token ids and back for both sides of a pair, and its features.

    If ``copies_words``, unknown words of the source have ids of their own (``torch_free/vocab.py``).
    """

    source: TextCodec
    target: TextCodec
    features: Vocab = NO_FEATURES
    copies_words: bool = False

    @property
    def vocabs(self) -> tuple[Vocab, Vocab, Vocab]:
        """The vocabularies of sources, targets and features."""
        return self.source.vocab, self.target.vocab, self.features

    @cached_property
    def known_features(self) -> frozenset[str]:
        """The features seen in training."""
        return frozenset(self.features.tokens[len(SPECIALS) :])

    def encode_features(self, features: Iterable[str]) -> Ids:
        """The ids of a set of features."""
        return self.features.encode(sorted(set(features)))

    def decode_copied(self, ids: Iterable[int], alignment: Sequence[int], source: Sequence[str]) -> list[str]:
        """The tokens of an output; a copied word has the position of an input token in its id.

        An unknown token is replaced by the input token that it is aligned to. One that is aligned to the end symbol
        becomes the last unknown token of the input, or else its last token.
        """
        tokens = self.decode_words(ids, source)
        if not source:
            return tokens
        at_the_end = next((token for token in reversed(source) if token not in self.source.vocab), source[-1])
        copied = [*source, at_the_end]
        triples = zip(tokens, ids, alignment, strict=False)
        return [copied[row] if id_ == UNKNOWN else token for token, id_, row in triples] if alignment else tokens

    def decode_words(self, ids: Iterable[int], words: Sequence[str]) -> list[str]:
        """The tokens of an output; ids beyond the vocabulary are those of ``words``."""
        size = len(self.target.vocab)
        tokens: list[str] = []
        for id_ in takewhile(lambda each: each != END, ids):
            tokens += self.target.vocab.decode([id_]) if id_ < size else [words[id_ - size]]
        return tokens

    def padded(self, sources: Sequence[Source], targets: Sequence[str] | None = None) -> PaddedPairs:
        """The padded ids of sources with their features, and of their targets if given."""
        return self.padded_tokens(
            [self.source.tokens(source.text) for source in sources],
            None if targets is None else [self.target.tokens(target) for target in targets],
            [source.features for source in sources],
        )

    def padded_tokens(
        self,
        sources: Sequence[Sequence[str]],
        targets: Sequence[Sequence[str]] | None,
        features: Sequence[Iterable[str]],
    ) -> PaddedPairs:
        """The same for text that is tokenised already."""
        words, known = WordIds(self.target.vocab), self.target.vocab
        encode = words.encode if self.copies_words else known.encode
        copied = CopiedWords(list(map(words.encode, sources)), len(known)) if self.copies_words else None
        return PaddedPairs.of(
            list(map(self.source.vocab.encode, sources)),
            None if targets is None else list(map(encode, targets)),
            list(map(self.encode_features, features)),
            copied=copied,
        )

    def feature_ids(self, features: Sequence[Iterable[str]]) -> Padded:
        """The padded ids of sets of features."""
        return self.padded_tokens([()] * len(features), None, features).features
