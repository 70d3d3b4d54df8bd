"""Text to token ids and back, for both sides of a pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from antiphon.data.readers import Source
from antiphon.data.tokenise import TextSteps, Tokeniser
from antiphon.data.vocab import UNKNOWN, Vocab


def feature_symbol(feature: str) -> str:
    """How a feature is written in the source vocabulary, so that it never meets a character of that name."""
    return f"[{feature}]"


@dataclass(frozen=True)
class TextCutter:
    """One side of a pair before its tokens are numbered: text steps, tokens."""

    steps: TextSteps
    tokeniser: Tokeniser

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, after its text steps."""
        return self.tokeniser.split(self.steps(text))

    def tokens_of(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text, after its text steps."""
        return self.tokeniser.split_all(self.steps.each(texts))


@dataclass(frozen=True)
class TextCodec(TextCutter):
    """One side of a pair: text steps, tokens, numbers."""

    vocab: Vocab

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, without an end symbol."""
        return self.vocab.encode(self.tokens(text))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, up to the end symbol."""
        return self.tokeniser.join(self.vocab.decode(ids))

    def normalised(self, text: str) -> str:
        """The text as this side would write it: after its steps, cut and joined again."""
        return self.tokeniser.join(self.tokens(text))

    def unknown(self, text: str) -> int:
        """How many tokens of the text are not in the vocabulary."""
        return int((self.encode(text) == UNKNOWN).sum())


@dataclass(frozen=True)
class PairCutter:
    """Both sides of a pair as tokens; features come before the source, so that a model knows them from the start."""

    source: TextCutter
    target: TextCutter
    sorts_features: bool = True
    """Features are a set: in the order of their names, each once."""

    def feature_symbols(self, features: Sequence[str]) -> list[str]:
        """The features as symbols, in the order in which the model reads them."""
        return [feature_symbol(feature) for feature in (sorted(set(features)) if self.sorts_features else features)]

    def source_symbols(self, source: Source) -> list[str]:
        """The features, then the source tokens."""
        text = self.source.tokens(source.text) if source.text else []
        return self.feature_symbols(source.features) + text


@dataclass(frozen=True)
class PairCodec(PairCutter):
    """Both sides of a pair as numbers."""

    source: TextCodec
    target: TextCodec

    @cached_property
    def known_features(self) -> frozenset[str]:
        """The features that training saw."""
        symbols = (token for token in self.source.vocab.tokens if token == feature_symbol(token[1:-1]))
        return frozenset(symbol[1:-1] for symbol in symbols)

    def encode_source(self, source: Source) -> NDArray[np.int32]:
        """The ids of features and source tokens."""
        return self.source.vocab.encode(self.source_symbols(source))
