"""The pronunciation of text: lexicon first, then rules, then a model for all other words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from antiphon.exceptions import InputError
from antiphon.pronunciation import FOLDER
from antiphon.pronunciation.lexicon import CompactLexicon, Readings
from antiphon.pronunciation.phonemes import Alphabet, check_phonemes, write
from antiphon.pronunciation.spoken_forms import Piece
from antiphon.pronunciation.tokens import Token, fold, tokens
from antiphon.pronunciation.word_readings import WordReadings

TextLike = str | Sequence[tuple[str, str]]
"""A text, or words with their parts of speech."""
_LONGEST = 32
"""Letters that the model reads at once; longer words are read in parts."""
_MAX_ACRONYMS = 2
"""Where more words than these are all in capitals, capitals do not tell acronyms from words."""
_CACHED = 20_000
"""Words whose readings by the model are kept."""


@dataclass(frozen=True)
class Reading:
    """A way to pronounce a word; the model gives its probability."""

    phonemes: tuple[str, ...]
    probability: float | None = None


@dataclass(frozen=True)
class Word:
    """What is said as one word.

    ``origin`` says where the readings come from: ``lexicon``, ``derived`` from a word in the lexicon, ``model``,
    ``spelt`` letter by letter, ``given`` in the text, or ``unknown`` if there are none. ``alignment`` has pairs of
    positions of letters and phonemes, if it was asked for.
    """

    text: str
    origin: str
    readings: tuple[Reading, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()

    @property
    def phonemes(self) -> tuple[str, ...]:
        """The phonemes of the preferred reading."""
        return self.readings[0].phonemes if self.readings else ()

    @property
    def probability(self) -> float | None:
        """The probability of the preferred reading, if the model gave it."""
        return self.readings[0].probability if self.readings else None

    def to_dict(self, alphabet: Alphabet = "arpabet") -> dict[str, Any]:
        """The object of a word in JSON."""
        readings = [
            {"phonemes": write(each.phonemes, alphabet), "probability": each.probability} for each in self.readings
        ]
        return {
            "word": self.text,
            "phonemes": write(self.phonemes, alphabet),
            "origin": self.origin,
            "probability": self.probability,
            "alignment": self.alignment,
            "readings": readings,
        }


@dataclass(frozen=True)
class Spoken:
    """A part of a text, from ``start`` to ``end``, and the words that are said for it: none for punctuation."""

    text: str
    start: int
    end: int
    words: tuple[Word, ...]

    @property
    def phonemes(self) -> tuple[str, ...]:
        """The phonemes of all words."""
        return tuple(phoneme for word in self.words for phoneme in word.phonemes)

    def to_dict(self, alphabet: Alphabet = "arpabet") -> dict[str, Any]:
        """The object of a part in JSON."""
        words = [word.to_dict(alphabet) for word in self.words]
        return {"text": self.text, "start": self.start, "end": self.end, "words": words}


@dataclass(frozen=True)
class ReadingOptions:
    """How many readings a word gets, and whether its letters are aligned.

    At most ``nbest``; with ``cover``, of the model those whose probabilities add up to it. Unset, all in the lexicon
    and one of the model.
    """

    nbest: int | None = None
    cover: float | None = None
    align: bool = False

    def __post_init__(self) -> None:
        if self.nbest is not None and self.nbest < 1:
            raise InputError(f"nbest = {self.nbest}: expected a whole number, at least 1")
        if self.cover is not None and not 0 < self.cover <= 1:
            raise InputError(f"cover = {self.cover:g}: expected a probability above 0, at most 1")


class Pronouncer:
    """Pronounces text with a lexicon and a model, which is loaded when a word first needs it."""

    def __init__(self, lexicon: Mapping[str, Readings] | None = None) -> None:
        self._readings = WordReadings(CompactLexicon(FOLDER / "en.lexicon") if lexicon is None else lexicon)
        self._cache: dict[tuple[str, ReadingOptions], Word] = {}

    def __call__(self, text: TextLike, options: ReadingOptions | None = None) -> list[Spoken]:
        """The parts of a text with the words that are said for them."""
        return self.pronounce_tokens(list(_tokens(text)), options or ReadingOptions())

    def pronounce_tokens(self, found: Sequence[Token], options: ReadingOptions) -> list[Spoken]:
        """The same tokens with the words that are said for them."""
        in_capitals = _are_in_capitals(found)
        pieces = dict.fromkeys(piece for token in found for piece in token.pieces)
        said = {piece: self._word(piece, options, in_capitals=in_capitals) for piece in pieces}
        asked = {fold(piece.text) for piece, word in said.items() if word is None}
        words = self._by_model([word for word in asked if _is_readable(word)], options)
        for piece, word in said.items():
            if word is None:
                known = words.get(fold(piece.text))
                said[piece] = Word(piece.text, "unknown") if known is None else replace(known, text=piece.text)
        return [
            Spoken(token.text, token.start, token.end, tuple(said[piece] for piece in token.pieces))  # type: ignore[misc]
            for token in found
        ]

    def _word(self, piece: Piece, options: ReadingOptions, *, in_capitals: bool) -> Word | None:
        """The word of a piece, or None if the model has to read it."""
        found = self._readings.find(piece, in_capitals=in_capitals)
        if found is None:
            return None
        origin, listed = found
        if origin == "given":
            check_phonemes(listed[0], f"[{piece.text}](/{write(listed[0])}/)")
        readings = tuple(map(Reading, listed[: options.nbest]))
        links = self._align(fold(piece.text), listed[0]) if options.align and origin != "spelt" else ()
        return Word(piece.text, origin, readings, links)

    def _by_model(self, words: Sequence[str], options: ReadingOptions) -> dict[str, Word]:
        """What the model reads for words; the latest are kept."""
        missing = [word for word in words if (word, options) not in self._cache]
        if len(self._cache) + len(missing) > _CACHED:
            self._cache.clear()
            missing = list(words)
        parts = {word: _parts(word) for word in missing}
        read = self._read([part for each in parts.values() for part in each], options) if missing else {}
        for word, its_parts in parts.items():
            self._cache[word, options] = _join(word, [read[part] for part in its_parts])
        return {word: self._cache[word, options] for word in words}

    def _read(self, words: Iterable[str], options: ReadingOptions) -> dict[str, Word]:
        """What the model reads for words that are short enough."""
        asked = list(dict.fromkeys(words))
        predictions = self._model.predict(asked, nbest=options.nbest, cover=options.cover, align=options.align)
        return {
            word: Word(
                word,
                "model",
                tuple(Reading(each.tokens, each.probability) for each in prediction.nbest),
                tuple(prediction.alignment) if options.align else (),
            )
            for word, prediction in zip(asked, predictions, strict=True)
        }

    def _align(self, word: str, phonemes: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """The letter of each phoneme on the best alignment of the model; none for what it never saw."""
        known = self._model.codec.target.vocab
        if not word or not phonemes or not all(phoneme in known for phoneme in phonemes):
            return ()
        return tuple(self._model.links(word, " ".join(phonemes)))

    @cached_property
    def _model(self) -> Any:
        from antiphon.lite.model import SHIPPED, load

        return load(SHIPPED / "en")  # whatever a folder of this name in the current one holds


def pronounce(
    text: TextLike, *, nbest: int | None = None, cover: float | None = None, align: bool = False
) -> list[Spoken]:
    """How English text is pronounced: its parts with positions, words and readings.

    A word has its readings in the lexicon, or the most probable ones of a model with their probabilities: one, or
    ``nbest``, or those that ``cover`` a probability such as 0.95. ``align`` links letters to phonemes. Words with their
    parts of speech, such as ``[("I", "PRP"), ("read", "VBD")]``, choose between several readings.
    """
    return shipped()(text, ReadingOptions(nbest, cover, align))


@cache
def shipped() -> Pronouncer:
    """The pronouncer of the package, made once."""
    return Pronouncer()


def _tokens(text: TextLike) -> Iterable[Token]:
    if isinstance(text, str):
        return tokens(text)
    are_pairs = isinstance(text, Sequence) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in text)
    if not are_pairs:
        raise InputError(f"text {text!r:.80}: expected a string, or pairs of a word and its part of speech")
    return [token for word, tag in text for token in _tagged(word, tag)]


def _tagged(word: str, tag: str) -> Iterable[Token]:
    for token in tokens(word):
        yield token._replace(pieces=tuple(piece._replace(tag=piece.tag or tag) for piece in token.pieces))


def _are_in_capitals(found: Iterable[Token]) -> bool:
    """Whether all words are in capitals, and not only one or two, which may be acronyms."""
    written = [token.text for token in found if any(map(str.isalpha, token.text))]
    return len(written) > _MAX_ACRONYMS and all(map(str.isupper, written))


def _is_readable(word: str) -> bool:
    """Whether a folded word has Latin letters alone, as the model reads."""
    return any(letter != "'" for letter in word) and all("a" <= letter <= "z" or letter == "'" for letter in word)


def _parts(word: str) -> list[str]:
    """A word in parts that the model reads at once."""
    return [word[start : start + _LONGEST] for start in range(0, len(word), _LONGEST)]


def _join(word: str, parts: Sequence[Word]) -> Word:
    """A word of its parts, which have one reading together if there are several."""
    if len(parts) == 1:
        return parts[0]
    return Word(word, "model", (Reading(tuple(phoneme for part in parts for phoneme in part.phonemes)),))
