"""What a table is and how to learn it is decided from its cells, and each decision is said."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from antiphon.exceptions import InputError
from antiphon.own_data.plan import find_columns, hold_out, how_split, make_plan
from antiphon.own_data.table_file import read_table
from tests.toy import words

WORDS = words(80)


def plan_of(tmp_path, lines, given=()):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return make_plan(read_table(path), given)


def said(plan, about):
    return next(each.found for each in plan.decisions if each.about == about)


def test_words_to_phonemes_are_learnt_by_g2p(tmp_path):
    plan = plan_of(tmp_path, [f"{word}\t{' '.join(word.upper())}" for word in WORDS])
    assert plan.recipe == "g2p"
    assert plan.settings == {"data.source_tokens": "chars", "data.target_tokens": "words"}
    assert "symbols between spaces" in said(plan, "target")


def test_words_to_words_with_tags_are_inflection(tmp_path):
    lines = [f"{word}\tN;{number}\t{word}{end}" for word in WORDS for number, end in (("SG", ""), ("PL", "s"))]
    plan = plan_of(tmp_path, lines)
    assert plan.recipe == "inflection"
    assert plan.has_features
    assert plan.parts["train"][0][2] in ("N;SG", "N;PL")
    assert said(plan, "features").startswith("column 2, 2 different")


def test_sentences_are_learnt_by_words(tmp_path):
    lines = [f"{' '.join(WORDS[n : n + 6])}\t{' '.join(reversed(WORDS[n : n + 6]))}" for n in range(70)]
    assert plan_of(tmp_path, lines).recipe == "words"


def test_columns_without_text_and_numbers_of_rows_are_no_features(tmp_path):
    def columns(lines):
        (tmp_path / "pairs.tsv").write_text("".join(f"{line}\n" for line in lines))
        return find_columns(read_table(tmp_path / "pairs.tsv"))

    assert columns([f"{word}\t{word}s\t" for word in WORDS]) == (0, 1, None)
    assert columns([f"{n}\t{word}\t{word}s" for n, word in enumerate(WORDS)]) == (1, 2, None)
    assert columns(["id\tEnglish\tFrench", *(f"{n}\t{word}\t{word}s" for n, word in enumerate(WORDS))]) == (1, 2, None)
    assert columns([f"{n}\t{word}\t{word}s\tN;PL" for n, word in enumerate(WORDS)]) == (1, 2, 3)
    assert columns([f"{n}\t{word}\tN;SG" for n, word in enumerate(WORDS)]) == (0, 1, 2)
    assert columns([f"{n}\t{word}" for n, word in enumerate(WORDS)]) == (0, 1, None)


def test_names_of_languages_are_a_first_line(tmp_path):
    (tmp_path / "pairs.tsv").write_text("English\tFrench\n" + "".join(f"{word}\t{word[::-1]}\n" for word in WORDS))
    assert read_table(tmp_path / "pairs.tsv").header == ("English", "French")


def test_pairs_that_are_too_long_are_named_where_too_few_are_left(tmp_path):
    with pytest.raises(InputError, match="pairs of at most 1,000 letters, expected 60 or more"):
        plan_of(tmp_path, [f"{word * 600}\t{word}" for word in WORDS])


def test_tokens_in_another_order_are_learnt_by_attention_unless_the_kind_is_given(tmp_path):
    lines = [f"{word}\t{word[::-1]}" for word in words(80, seed=2)]
    plan = plan_of(tmp_path, lines)
    assert (plan.recipe, plan.settings["model.kind"]) == ("letters", "attention")
    assert "in another order: attention learns that" in said(plan, "order")
    plan = plan_of(tmp_path, lines, ["model.kind"])
    assert "model.kind" not in plan.settings
    assert "takes more pairs to learn" in said(plan, "order")
    assert "model.kind" not in plan_of(tmp_path, [f"{word}\t{word}s" for word in WORDS]).settings


@pytest.mark.parametrize(
    ("texts", "split"),
    [
        (["abc", "new york", "xyz"], "letters"),
        (["a b c", "b c", "c a b"] * 10, "symbols"),
        (["one hundred two", "two hundred", "seven"] * 20, "symbols"),
        ([f"he said {word} and then {word[::-1]} too" for word in words(300)], "words"),
        ([f"{word} {word[::-1]}" for word in words(300)], "letters"),
    ],
)
def test_a_side_is_split_by_what_is_between_its_spaces(texts, split):
    assert how_split(texts) == split


def test_named_columns_are_found_in_any_order(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("tag,form,lemma,count\n" + "".join(f"PL,{word}s,{word},{n}\n" for n, word in enumerate(WORDS)))
    assert find_columns(read_table(path)) == (2, 1, 0)


def test_three_columns_without_tags_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"pairs.tsv:1: 3 columns \(.*\), expected source and target"):
        plan_of(tmp_path, [f"{word}\t{word[::-1]}\t{word}{word}" for word in WORDS])


def test_a_source_is_held_out_with_all_of_its_pairs_and_always_the_same():
    rows = [(word, word + end, "") for word in WORDS for end in "ab"]
    train, dev = hold_out(rows)
    assert len(dev) == 40
    assert not {row[0] for row in train} & {row[0] for row in dev}
    assert sorted(hold_out(rows[::-1])[1]) == sorted(dev)


def test_a_dev_file_of_the_user_leaves_all_pairs_to_training(tmp_path):
    plan = plan_of(tmp_path, [f"{word}\t{word[::-1]}" for word in WORDS], given=["data.dev", "data.source_tokens"])
    assert len(plan.parts["train"]) == len(WORDS)
    assert "dev" not in plan.parts
    assert "data.source_tokens" not in plan.settings


def test_doubtful_rows_are_counted(tmp_path):
    lines = [f"{word}\t{word[::-1]}" for word in WORDS]
    plan = plan_of(tmp_path, [*lines, lines[0], f"{WORDS[1]}\tother", "empty\t"])
    found = [each.found for each in plan.decisions if each.about in ("left out", "ambiguous")]
    assert found[0] == "1 row without a source or a target"
    assert found[1] == "1 row that repeat another"
    assert found[2] == f"1 source with several targets, all kept; such as {WORDS[1]}: {WORDS[1][::-1]} and other"


def test_too_few_pairs_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"3 pairs, expected 60 or more"):
        plan_of(tmp_path, ["a\tb", "c\td", "e\tf"])


def toy_plan(tmp_path):
    return plan_of(tmp_path, [f"{word}\t{word[::-1]}" for word in WORDS])


def write_pairs(plan, folder, **options):
    with plan.written(folder, is_used=lambda: False, **options):
        pass


def test_pairs_that_are_there_already_are_not_overwritten(tmp_path):
    plan, folder = toy_plan(tmp_path), tmp_path / "pairs"
    write_pairs(plan, folder)
    write_pairs(plan, folder)
    (folder / "dev.tsv").write_text("mine\tmine\n")
    (folder / "train.tsv").unlink()
    with pytest.raises(InputError, match=r"dev.tsv: other pairs"):
        write_pairs(plan, folder)
    assert [path.name for path in folder.iterdir()] == ["dev.tsv"]
    assert (folder / "dev.tsv").read_text() == "mine\tmine\n"


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("replace", [False, True])
def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path, make, replace):
    (tmp_path / "pairs").mkdir()
    make(tmp_path / "pairs/train.tsv")
    with pytest.raises(InputError, match=r"train.tsv: other pairs"):
        write_pairs(toy_plan(tmp_path), tmp_path / "pairs", replace=replace)
    assert [path.name for path in (tmp_path / "pairs").iterdir()] == ["train.tsv"]


@pytest.mark.parametrize("is_used", [False, True])
def test_pairs_of_a_training_that_fails_are_replaced_only_if_it_has_begun(tmp_path, is_used):
    plan, folder = toy_plan(tmp_path), tmp_path / "pairs"
    folder.mkdir()
    (folder / "dev.tsv").write_text("before\tbefore\n")
    with suppress(InputError), plan.written(folder, replace=True, is_used=lambda: is_used):
        assert len((folder / "dev.tsv").read_text().splitlines()) == len(plan.parts["dev"])
        raise InputError("no training")
    assert ((folder / "dev.tsv").read_text() == "before\tbefore\n") is not is_used
    assert sorted(path.name for path in folder.iterdir()) == ["dev.tsv", *["train.tsv"] * is_used]
