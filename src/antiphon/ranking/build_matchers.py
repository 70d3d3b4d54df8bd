"""Builds untrained matchers from a recipe."""

from dataclasses import fields

from torch import Tensor

from antiphon.ranking.matcher import Matcher
from antiphon.ranking.sentence_models import AttentiveState, BagOfWords, Bigram, FixedVectors, LastState, ReaderSizes
from antiphon.recipe.model_sections import MatcherSection


def build_matcher(settings: MatcherSection, vectors: Tensor, stops: Tensor) -> Matcher:
    """An untrained matcher over word vectors, ``stops`` are the ids of stop words."""
    words = FixedVectors(vectors)
    if settings.sentence == "bag_of_words":
        return Matcher(BagOfWords(words, stops))
    if settings.sentence == "bigram":
        return Matcher(Bigram(words, settings.dropout))
    sentence = LastState if settings.sentence == "lstm" else AttentiveState
    sizes = ReaderSizes(**{field.name: getattr(settings, field.name) for field in fields(ReaderSizes)})
    return Matcher(sentence(words, sizes, shared=settings.shared))
