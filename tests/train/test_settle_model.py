"""What a recipe leaves open and the vocabularies and the number of pairs decide."""

import pytest

from antiphon.data.codec import PairCodec, TextCodec
from antiphon.data.tokenise import Chars, Normalisation
from antiphon.data.vocab import Vocab
from antiphon.recipe.recipe_file import parse_recipe
from antiphon.train.prepare import settle_model

LETTERS, OTHERS = (TextCodec(Normalisation(), Chars(), Vocab(letters)) for letters in ("abcdef", "uvwxyz"))


def settled(source, target, pairs, **tables):
    recipe = parse_recipe({"model": {"kind": "transducer"}, **tables}, "here")
    return settle_model(recipe, PairCodec(source, target), pairs)


@pytest.mark.parametrize(("pairs", "share"), [(100, 0.5), (400, 0.5), (1_000, 0.2), (4_000, 0.05), (5_000, 0.0)])
def test_one_alphabet_ties_the_same_letters_and_few_pairs_are_made_up(pairs, share):
    recipe = settled(LETTERS, LETTERS, pairs)
    assert recipe.model.tie == "same"
    assert recipe.train.hallucination == share


@pytest.mark.parametrize(("pairs", "tie"), [(800, "associated"), (2_000, "associated"), (8_000, "none")])
def test_two_alphabets_tie_what_goes_together_where_pairs_are_few(pairs, tie):
    recipe = settled(LETTERS, OTHERS, pairs)
    assert recipe.model.tie == tie
    assert recipe.train.hallucination == 0.0


def test_what_a_recipe_says_holds():
    given = {"model": {"tie": "none"}, "train": {"hallucination": 0.3}}
    recipe = settled(LETTERS, LETTERS, 100, **given)
    assert (recipe.model.tie, recipe.train.hallucination) == ("none", 0.3)
    words = settled(LETTERS, LETTERS, 100, data={"target_tokens": "words"})
    assert (words.model.tie, words.train.hallucination) == ("associated", 0.0)
    attention = settled(LETTERS, LETTERS, 100, model={"kind": "attention"})
    assert (attention.model.tie, attention.train.hallucination) == (None, None)
