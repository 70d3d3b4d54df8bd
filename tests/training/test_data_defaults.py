"""What a recipe leaves open and the vocabularies and the number of pairs decide."""

import numpy as np
import pytest

from antiphon.recipe.recipe_file import parse_recipe
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.vocab import Vocab
from antiphon.training.data.data_defaults import with_data_defaults, with_model_defaults, with_search_defaults

LETTERS, OTHERS = (TextCodec(Normalisation(), Chars(), Vocab(letters)) for letters in ("abcdef", "uvwxyz"))


def defaults_of(source, target, pairs, **tables):
    recipe = parse_recipe({"model": {"kind": "transducer"}, **tables}, "here")
    return with_model_defaults(recipe, PairCodec(source, target), pairs)


@pytest.mark.parametrize(("pairs", "share"), [(100, 0.5), (400, 0.5), (1_000, 0.2), (4_000, 0.05), (5_000, 0.0)])
def test_with_one_alphabet_unknown_letters_are_copied_and_few_pairs_are_made_up(pairs, share):
    recipe = defaults_of(LETTERS, LETTERS, pairs)
    assert recipe.model.copy_unknown
    assert recipe.train.hallucination == share


def test_with_two_alphabets_or_lexicons_nothing_is_copied_or_made_up():
    words = TextCodec(Normalisation(), Words(), Vocab(f"word{index}" for index in range(200_000)))
    for source, target in ((LETTERS, OTHERS), (words, LETTERS)):
        recipe = defaults_of(source, target, 800)
        assert not recipe.model.copy_unknown
        assert recipe.train.hallucination == 0.0


@pytest.mark.parametrize(
    ("tokens", "encoder", "context"),
    [
        ("words", "bidirectional", "attention"),
        ("words", "unidirectional", "none"),
        ("sentencepiece", "bidirectional", "attention"),
        ("chars", "bidirectional", "none"),
    ],
)
def test_only_what_reads_words_from_both_ends_attends_to_the_source(tokens, encoder, context):
    given = {"model": {"encoder": encoder}, "data": {"source_tokens": tokens}}
    assert defaults_of(LETTERS, OTHERS, 800, **given).model.context == context


@pytest.mark.parametrize(("source", "target", "splits"), [("chars", "words", True), ("words", "words", False)])
def test_hangul_is_taken_apart_where_tokens_are_characters(source, target, splits):
    data = {"source_tokens": source, "target_tokens": target, "features": False}
    assert with_data_defaults(parse_recipe({"data": data}, "here")).data.split_hangul is splits
    assert (
        with_data_defaults(parse_recipe({"data": data | {"split_hangul": not splits}}, "here")).data.split_hangul
        != splits
    )


@pytest.mark.parametrize(("pairs", "dropout"), [(100, 0.5), (4_999, 0.5), (5_000, 0.3)])
@pytest.mark.parametrize("kind", ["transducer", "attention", "language_model"])
def test_many_pairs_need_less_dropout(kind, pairs, dropout):
    assert defaults_of(LETTERS, OTHERS, pairs, model={"kind": kind}).model.dropout == dropout
    assert defaults_of(LETTERS, OTHERS, pairs, model={"kind": kind, "dropout": 0.1}).model.dropout == 0.1


def test_what_a_recipe_says_holds():
    given = {"model": {"copy_unknown": False}, "train": {"hallucination": 0.3}}
    recipe = defaults_of(LETTERS, LETTERS, 100, **given)
    assert (recipe.model.copy_unknown, recipe.train.hallucination) == (False, 0.3)
    words = defaults_of(LETTERS, LETTERS, 100, data={"target_tokens": "words"})
    assert (words.model.copy_unknown, words.train.hallucination) == (False, 0.0)
    attention = defaults_of(LETTERS, LETTERS, 100, model={"kind": "attention"})
    assert attention.train.hallucination is None


@pytest.mark.parametrize(("kind", "smoothing"), [("transformer", 0.1), ("attention", None), ("transducer", None)])
def test_only_a_transformer_smooths_labels_unasked(kind, smoothing):
    assert defaults_of(LETTERS, OTHERS, 100, model={"kind": kind}).train.label_smoothing == smoothing
    asked = defaults_of(LETTERS, OTHERS, 100, model={"kind": kind}, train={"label_smoothing": 0.0})
    assert asked.train.label_smoothing == 0.0


def limits_of(source_lengths, target_lengths, **search):
    recipe = parse_recipe({"search": search}, "here")
    search = with_search_defaults(recipe, np.array(source_lengths), np.array(target_lengths)).search
    return search.max_length_ratio, search.max_length_extra


def test_outputs_may_be_as_long_as_the_targets_of_training():
    assert limits_of([5, 9, 1], [14, 20, 12]) == (2.0, 10)
    assert limits_of([3, 4, 5] * 100, [61, 85, 110] * 100) == (25.0, 10)  # 20 times as long and 10 more, with room
    assert limits_of([10] * 999 + [2], [10] * 999 + [300]) == (2.0, 296)  # one pair does not lengthen all outputs
    assert limits_of([3], [90], max_length_ratio=5, max_length_extra=7) == (5.0, 7)
    assert limits_of([1], [10**6]) == (100.0, 10**4)
