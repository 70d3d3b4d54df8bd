"""Text to token ids and back, for both sides of a pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from antiphon.exceptions import InputError
from antiphon.terminal import one_line
from antiphon.torch_free.copied_words import CopiedWords, WordIds
from antiphon.torch_free.padded_pairs import PaddedPairs
from antiphon.torch_free.readers import Source
from antiphon.torch_free.tokenise import Normalisation, Tokeniser
from antiphon.torch_free.vocab import END, SPECIALS, UNKNOWN, Vocab

NO_FEATURES = Vocab(())
"""The vocabulary of features if there are none."""


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

    def encode(self, text: str) -> NDArray[np.int32]:
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

    If ``copies_words``, unknown words of the source have ids of their own (``torch_free/copied_words.py``).
    """

    source: TextCodec
    target: TextCodec
    features: Vocab = NO_FEATURES
    copies_words: bool = False

    @cached_property
    def known_features(self) -> frozenset[str]:
        """The features seen in training."""
        return frozenset(self.features.tokens[len(SPECIALS) :])

    def encode_features(self, features: Iterable[str]) -> NDArray[np.int32]:
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

    def feature_ids(self, features: Sequence[Iterable[str]]) -> NDArray[np.int64]:
        """The padded ids of sets of features."""
        return self.padded_tokens([()] * len(features), None, features).features
