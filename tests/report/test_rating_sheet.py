"""Rating sheets: what judges see, what comes back, and what is counted."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from antiphon.exceptions import InputError
from antiphon.report.rating_sheet import JudgedSheet, RatedPair, RatingSheet, Tally, sign_test

RUNS = ("runs/direct", "runs/channel")
PAIRS = [RatedPair(f"source {n}", f"first {n}", f"second {n}") for n in range(40)]


def fill(path, sheet, choose, name="judge.tsv"):
    """The sheet as a judge sends it back, who chooses by the number of a question and both outputs."""
    head, columns, *rows = csv.reader(sheet.text().splitlines(), delimiter="\t")
    filled = [[*row[:4], choose(int(row[0]), row[2], row[3])] for row in rows]
    with (path / name).open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([head, columns, *filled])
    return path / name


def prefers_second(_, a, b):
    return "A" if a.startswith("second") else "B"


def test_a_sheet_has_drawn_pairs_in_random_places_and_names_no_run_beside_an_output():
    sheet = RatingSheet.draw(RUNS, [*PAIRS, *PAIRS], 30, seed=1)
    assert len(set(sheet.pairs)) == 30
    assert list(sheet.pairs) != sorted(sheet.pairs)
    head, columns, *rows = csv.reader(sheet.text().splitlines(), delimiter="\t")
    assert columns == ["question", "source", "A", "B", "better"]
    assert {row[4] for row in rows} == {""}
    firsts = sum(row[2].startswith("first") for row in rows)
    assert 5 < firsts < 25
    assert "runs/direct" in head
    assert not any("runs/" in cell for row in rows for cell in row)
    assert RatingSheet.draw(RUNS, PAIRS, 30, seed=1).text() == sheet.text()
    assert RatingSheet.draw(RUNS, PAIRS, 30, seed=2).pairs != sheet.pairs


def test_choices_come_back_as_those_of_the_runs(tmp_path):
    sheet = RatingSheet.draw(RUNS, PAIRS, 30, seed=3)
    judged = JudgedSheet.read(fill(tmp_path, sheet, prefers_second))
    assert judged.sheet == sheet
    assert set(judged.outcomes) == {"second"}
    some = JudgedSheet.read(fill(tmp_path, sheet, lambda n, *_: {1: "good", 2: " BAD ", 3: ""}.get(n, "")))
    assert some.outcomes[:3] == ("good", "bad", None)


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\0"), max_size=9
)


@given(st.lists(st.builds(RatedPair, TEXT, TEXT, TEXT), min_size=1, max_size=5))
def test_a_sheet_survives_its_file_whatever_its_text(tmp_path_factory, pairs):
    sheet = RatingSheet.draw(RUNS, pairs, 5, seed=0)
    path = fill(tmp_path_factory.mktemp("sheet"), sheet, lambda *_: "good")
    assert JudgedSheet.read(path).sheet.pairs == sheet.pairs


def judges(tmp_path, *choices):
    sheet = RatingSheet.draw(RUNS, PAIRS, 10, seed=4)
    paths = [fill(tmp_path, sheet, choose, f"{index}.tsv") for index, choose in enumerate(choices)]
    return list(map(JudgedSheet.read, paths))


def test_the_choice_of_most_judges_counts(tmp_path):
    def prefers_first_up_to(limit):
        return lambda n, a, b: {"A": "B", "B": "A"}[prefers_second(n, a, b)] if n <= limit else prefers_second(n, a, b)

    tally = Tally.of(judges(tmp_path, prefers_first_up_to(2), prefers_first_up_to(4), lambda *_: "bad"))
    assert tally.preferences == {"first": 2, "second": 6, "good": 0, "bad": 0, "split": 2}
    assert tally.agreement == pytest.approx(8 / 30)
    assert [count["second"] for count in tally.by_judge.values()] == [8, 6, 0]
    assert tally.p_value == pytest.approx(binomtest(2, 8).pvalue)
    shares = [6 / 30, 14 / 30, 10 / 30]
    chance = sum(share**2 for share in shares)
    assert tally.kappa == pytest.approx((8 / 30 - chance) / (1 - chance))


def test_one_judge_has_nobody_to_agree_with(tmp_path):
    tally = Tally.of(judges(tmp_path, prefers_second))
    assert (tally.preferences["second"], tally.agreement, tally.kappa) == (10, None, None)
    assert tally.p_value == pytest.approx(2 / 2**10)
    assert not any("agreement" in note for note in tally.notes())


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_a_two_sided_binomial_test(first, second):
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert sign_test(first, second) == pytest.approx(expected)


def test_a_changed_sheet_is_refused(tmp_path):
    path = fill(tmp_path, RatingSheet.draw(RUNS, PAIRS, 10, seed=4), prefers_second)
    text = path.read_text()
    for changed, message in (
        (text.replace("first 1", "First 1", 1), "other questions or outputs than were written"),
        (text.replace("\tA\n", "\tC\n", 1), r":\d+: better is C, expected A, B, good, bad or nothing"),
        ("\n".join(text.splitlines()[:5]), "other questions or outputs"),
        ("a\tb\n", r":1: no rating sheet, expected a file that compare --sheet wrote"),
        ("", r":1: no rating sheet"),
        (text.replace("\t4\tsha", f"\t{'4' * 5000}\tsha", 1), r":1: no rating sheet"),
        (text.replace("source", "Source", 1), r":1: no rating sheet"),
        (text + "11\n", "1 column, expected 5"),
        ('"' * 200_001, "no rating sheet"),
    ):
        path.write_text(changed)
        with pytest.raises(InputError, match=message):
            JudgedSheet.read(path)


def test_a_sheet_without_choices_is_refused(tmp_path):
    path = fill(tmp_path, RatingSheet.draw(RUNS, PAIRS, 10, seed=4), lambda *_: "")
    with pytest.raises(InputError, match="nothing in the column better, expected A, B, good, bad in some lines"):
        JudgedSheet.read(path)


def test_sheets_on_other_runs_are_not_counted_together(tmp_path):
    (one,) = judges(tmp_path, prefers_second)
    other = RatingSheet.draw(("runs/direct", "runs/lm"), PAIRS, 10, seed=4)
    another = JudgedSheet.read(fill(tmp_path, other, prefers_second, "other.tsv"))
    with pytest.raises(InputError, match=r"about runs/direct and runs/lm, expected runs/direct and runs/channel as in"):
        Tally.of([one, another])
