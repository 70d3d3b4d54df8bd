"""Text to tokens and back."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from antiphon.exceptions import InputError, check_installed


class Tokeniser(Protocol):
    """Splits text into tokens, and joins them again."""

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        ...

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text."""
        ...

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        ...

    def word_indices(self, tokens: Sequence[str]) -> list[int]:
        """For each token of a text, the index of the word that it is part of."""
        ...


class Chars:
    """Every character is a token; letters of Hangul are put together again to syllables."""

    def split(self, text: str) -> list[str]:
        """The characters of a text."""
        return list(text)

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """The characters of each text."""
        return [list(text) for text in texts]

    def join(self, tokens: Sequence[str]) -> str:
        """The characters joined; letters of Hangul become syllables again."""
        return _JAMO.sub(lambda letters: unicodedata.normalize("NFC", letters[0]), "".join(tokens))

    def word_indices(self, tokens: Sequence[str]) -> list[int]:
        """The index of each character, which counts as a word."""
        return list(range(len(tokens)))


class Words:
    """Tokens are separated by spaces: words of tokenised text, or phonemes."""

    def split(self, text: str) -> list[str]:
        """The words of a text."""
        return text.split()

    def split_all(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text."""
        return [text.split() for text in texts]

    def join(self, tokens: Sequence[str]) -> str:
        """The tokens with single spaces between them."""
        return " ".join(tokens)

    def word_indices(self, tokens: Sequence[str]) -> list[int]:
        """The index of each word."""
        return list(range(len(tokens)))


class SentencePiece:
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
    """Normalisation of text before it is tokenised.  Thesis: section 5.5, lower-casing and digits to ``#``."""

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
