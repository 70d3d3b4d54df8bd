"""Settings that a recipe leaves unset: what the data decide, and why."""

import numpy as np
import pytest

from antiphon.recipe.recipe_file import parse_recipe
from antiphon.recipe.schema import Recipe
from antiphon.torch_free.codec import Chars, Normalisation, PairCodec, TextCodec, Words
from antiphon.torch_free.vocab import Vocab
from antiphon.training.optimisation import TrainingLength
from antiphon.training.resolution import Facts, Resolution, resolve, resolve_reading, share_vocabulary

LETTERS, OTHERS = (TextCodec(Normalisation(), Chars(), Vocab(letters)) for letters in ("abcdef", "uvwxyz"))


def defaults_of(source, target, pairs, **tables):
    recipe = parse_recipe({"model": {"kind": "transducer"}, **tables}, "here")
    shared = share_vocabulary(recipe, PairCodec(source, target))
    return resolve(Resolution(recipe), Facts(pairs, 1, shared)).recipe


@pytest.mark.parametrize(("pairs", "share"), [(100, 0.5), (400, 0.5), (1_000, 0.2), (4_000, 0.05), (5_000, 0.0)])
def test_with_one_alphabet_unknown_letters_are_copied_and_few_pairs_are_made_up(pairs, share):
    recipe = defaults_of(LETTERS, LETTERS, pairs)
    assert recipe.model.copy_unknown
    assert recipe.train.hallucination == share


def test_with_two_alphabets_or_lexicons_nothing_is_copied_or_made_up():
    words = TextCodec(Normalisation(), Words(), Vocab(f"word{index}" for index in range(200_000)))
    for source, target in ((LETTERS, OTHERS), (words, LETTERS)):
        recipe = defaults_of(source, target, 800)
        assert recipe.model.copy_unknown is False
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
    assert resolve_reading(parse_recipe({"data": data}, "here")).recipe.data.split_hangul is splits
    asked = parse_recipe({"data": data | {"split_hangul": not splits}}, "here")
    assert resolve_reading(asked).recipe.data.split_hangul is not splits


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


@pytest.mark.parametrize(
    ("tables", "share"),
    [
        ({"model": {"copy_unknown": False}}, 0.01),
        ({"model": {"copy_unknown": True}}, 0.0),
        ({"model": {"kind": "attention"}}, 0.01),
        ({"model": {"kind": "attention"}, "data": {"min_count": 2}}, 0.0),
    ],
)
def test_unknown_source_tokens_are_met_in_training_unless_they_are_copied(tables, share):
    facts = Facts(800, 25, lengths=(np.full(800, 5), np.full(800, 6)))
    assert resolve(Resolution(parse_recipe(tables, "here")), facts).recipe.train.hidden_sources == share


@pytest.mark.parametrize(("kind", "smoothing"), [("transformer", 0.1), ("attention", None), ("transducer", None)])
def test_only_a_transformer_smooths_labels_unasked(kind, smoothing):
    assert defaults_of(LETTERS, OTHERS, 100, model={"kind": kind}).train.label_smoothing == smoothing
    asked = defaults_of(LETTERS, OTHERS, 100, model={"kind": kind}, train={"label_smoothing": 0.0})
    assert asked.train.label_smoothing == 0.0


def limits_of(source_lengths, target_lengths, **search):
    facts = Facts(len(source_lengths), 1, lengths=(np.array(source_lengths), np.array(target_lengths)))
    search = resolve(Resolution(parse_recipe({"search": search}, "here")), facts).recipe.search
    return search.max_length_ratio, search.max_length_extra


def test_outputs_may_be_as_long_as_the_targets_of_training():
    assert limits_of([5, 9, 1], [14, 20, 12]) == (2.0, 10)
    assert limits_of([3, 4, 5] * 100, [61, 85, 110] * 100) == (25.0, 10)  # 20 times as long and 10 more, with room
    assert limits_of([10] * 999 + [2], [10] * 999 + [300]) == (2.0, 296)  # one pair does not lengthen all outputs
    assert limits_of([3], [90], max_length_ratio=5, max_length_extra=7) == (5.0, 7)
    assert limits_of([1], [10**6]) == (100.0, 10**4)


def length_of(pairs, batch_size=32, **settings):
    recipe = Recipe.model_validate({"train": {"batch_size": batch_size, **settings}})
    return TrainingLength.of(resolve(Resolution(recipe), Facts(pairs, -(-pairs // batch_size))).recipe.train)


@pytest.mark.parametrize(
    ("pairs", "batch_size", "length"),
    [
        (1, 32, TrainingLength(passes=100, max_epochs=60, patience=12)),
        (100, 16, TrainingLength(passes=15, max_epochs=58, patience=12)),
        (100, 32, TrainingLength(passes=25, max_epochs=60, patience=12)),
        (1_000, 16, TrainingLength(passes=2, max_epochs=48, patience=10)),
        (1_000, 32, TrainingLength(passes=4, max_epochs=47, patience=10)),
        (10_000, 32, TrainingLength(passes=1, max_epochs=40, patience=10)),
        (100_000, 32, TrainingLength(passes=1, max_epochs=40, patience=10)),
    ],
)
def test_few_pairs_are_learnt_for_as_many_updates_and_many_for_enough_passes(pairs, batch_size, length):
    assert length_of(pairs, batch_size) == length
    per_pass = -(-pairs // batch_size)
    assert length.passes * per_pass >= 100
    assert length.max_epochs * length.passes * per_pass >= 6_000
    assert length.max_epochs * length.passes >= 40


def test_a_length_given_in_updates_or_passes_is_rounded_up_to_whole_epochs():
    assert length_of(1_000, max_updates=30_000).max_epochs == 235
    assert length_of(1_000, max_updates=1, min_passes=9) == TrainingLength(passes=4, max_epochs=3, patience=10)


def test_a_length_that_a_recipe_says_holds():
    assert length_of(100, max_epochs=7, patience=3, passes=2) == TrainingLength(passes=2, max_epochs=7, patience=3)
    assert length_of(1_000, max_epochs=100, max_updates=1) == TrainingLength(passes=4, max_epochs=100, patience=20)


def test_patience_is_longer_where_the_learning_rate_falls():
    assert length_of(1_000, max_epochs=60, final_learning_rate_ratio=0.1) == TrainingLength(
        passes=4, max_epochs=60, patience=30
    )


@pytest.mark.parametrize(
    ("model", "updates", "expected"),
    [
        ({"kind": "transducer"}, 400, (0.001, 0)),
        ({"kind": "transformer"}, 400, (0.001, 800)),
        ({"kind": "transformer", "hidden_size": 1024}, 4000, (0.0005, 1000)),
        ({"kind": "transformer", "hidden_size": 64}, 25, (0.002, 100)),
    ],
)
def test_an_unset_learning_rate_and_warm_up_suit_the_model(model, updates, expected):
    facts = Facts(1_000, updates)
    decided = resolve(Resolution(parse_recipe({"model": model, "train": {"passes": 1}}, "here")), facts).recipe.train
    assert (decided.learning_rate, decided.warmup_updates) == expected
    asked = {"learning_rate": 0.3, "warmup_updates": 7}
    same = resolve(Resolution(parse_recipe({"model": model, "train": asked}, "here")), facts).recipe.train
    assert (same.learning_rate, same.warmup_updates) == (0.3, 7)


TABLE = """
data.features            false  data.train has no third column
data.split_hangul        true   tokens are characters
model.dropout            0.5    800 training pairs, fewer than 5,000
model.copy_words         false  tokens are not words on both sides
model.copy_unknown       true   most target tokens are source tokens too
model.context            none   letters are read
train.hallucination      0.25   800 training pairs with letters in common are few
train.hidden_sources     0      unknown tokens are copied
search.max_length_extra  10     enough for all training targets
train.passes             4      a pass has 25 updates, an epoch at least 100
train.patience           10     20% of the epochs, at least 10
train.learning_rate      0.001  usual
train.warmup_updates     0      no transformer
"""


def test_the_reason_for_every_value_that_was_not_given_is_told(tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ab\tba\n")
    recipe = parse_recipe({"data": {"train": pairs}, "train": {"max_epochs": 7}, "search": {"max_length_ratio": 3}}, "")
    lengths = np.full(800, 5), np.full(800, 6)
    found = resolve(resolve_reading(recipe), Facts(800, 25, shares_tokens=True, lengths=lengths))
    assert found.table() == TABLE.strip().splitlines()
    assert {"train.max_epochs", "search.max_length_ratio"}.isdisjoint(found.reasons)


def test_a_resolved_recipe_is_not_changed_by_other_facts():
    facts = Facts(800, 25, lengths=(np.full(800, 5), np.full(800, 6)))
    for kind in ("transducer", "attention", "transformer", "language_model", "matcher"):
        found = resolve(Resolution(parse_recipe({"model": {"kind": kind}}, "here")), facts)
        again = resolve(Resolution(found.recipe), Facts(10**6, 10**5, shares_tokens=True, lengths=facts.lengths))
        assert again == Resolution(found.recipe)
