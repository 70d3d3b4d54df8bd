"""``antiphon compare --sheet`` and ``--tally``: outputs of two runs to human judges and back."""

import json

import pytest

from tests.toy import inflect, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Suffix rules of few pairs and of many, and pairs to compare them on."""
    from antiphon.recipe.recipe_file import find_recipe, load_recipe
    from antiphon.training.fit import train

    folder = tmp_path_factory.mktemp("ratings")
    rows = [f"{word}\t{inflect(word)}\n" for word in words(80)]
    for name, lines in (("few", rows[:6]), ("many", rows), ("test", rows[20:])):
        (folder / f"{name}.tsv").write_text("".join(lines))
    for name in ("few", "many"):
        settings = ["model.kind=suffix_rule", f"data.train={folder / name}.tsv", f"data.dev={folder / 'test.tsv'}"]
        train(load_recipe(find_recipe("inflection"), settings), folder / f"run-{name}")
    return folder


def command(folder, *options):
    return ["compare", folder / "run-few", folder / "run-many", folder / "test.tsv", *options]


def test_a_sheet_goes_out_blind_and_comes_back_as_preferences(folder, tmp_path, antiphon):
    written = antiphon(*command(folder, "--sheet", tmp_path / "sheet.tsv", "--questions", "8"))
    assert (written.status, written.out) == (0, "")
    assert "8 questions" in written.err
    lines = (tmp_path / "sheet.tsv").read_text().splitlines()
    head, rows = lines[:2], [line.split("\t") for line in lines[2:]]
    assert len(rows) == 8
    assert all(a != b for _, _, a, b, _ in rows)
    for judge, wanted in (("anna", "right"), ("ben", "right"), ("eve", "wrong")):
        lines = [*head, *("\t".join([*row[:4], choice(row, wanted)]) for row in rows)]
        (tmp_path / f"{judge}.tsv").write_text("\n".join(lines) + "\n")
    sheets = [tmp_path / f"{judge}.tsv" for judge in ("anna", "ben", "eve")]
    counted = json.loads(antiphon("compare", "--tally", *sheets, "--format", "json").out)
    assert counted["runs"] == [str(folder / "run-few"), str(folder / "run-many")]
    assert counted["questions"] == 8
    assert counted["agreement"] == pytest.approx(1 / 3)
    assert counted["preferences"]["second"] > counted["preferences"]["first"]
    assert counted["preferences"]["second"] == counted["judges"][str(sheets[0])]["second"]
    text = antiphon("compare", "--tally", *sheets).out
    assert "8 questions judged" in text
    assert "sign test, two-sided" in text
    assert "most judges" in antiphon("compare", "--tally", *sheets).out


def choice(row, wanted):
    """A if it is the right form, else B; the other way round for a judge who wants what is wrong."""
    is_a = row[2] == inflect(row[1])
    return "A" if is_a is (wanted == "right") else "B"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sheet", "test.tsv"], "test.tsv: exists already, expected the name of a new file"),
        (["--sheet", "new.tsv", "--questions", "mixed"], "--questions mixed: not a number of questions, expected 1"),
        (["--sheet", "new.tsv", "--questions", "0"], "--questions 0: not a number"),
        (["--sheet", "new.tsv", "--questions", f"{1:010}{'9' * 5000}"], "not a number of questions"),
        (["--sheet", "new.tsv", "--format", "json"], "--format: does not work with --sheet"),
        (["--questions", "5"], "--questions 5: no set of questions, expected all, answerable, mixed"),
        (["--tally"], "run-few"),
        (["--tally", "--sheet", "new.tsv"], "--sheet: does not work with --tally"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(folder, antiphon, monkeypatch, options, message):
    monkeypatch.chdir(folder)
    refused = antiphon("compare", "run-few", "run-many", "test.tsv", *options)
    assert (refused.status, refused.out) == (2, "")
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (folder / "new.tsv").exists()


def test_sheets_have_two_runs_whose_outputs_differ(folder, antiphon, tmp_path):
    run, file, sheet = folder / "run-few", folder / "test.tsv", tmp_path / "sheet.tsv"
    same = antiphon("compare", run, run, file, "--sheet", sheet)
    assert (same.status, "both runs have the same outputs" in same.err) == (2, True)
    three = antiphon("compare", run, run, folder / "run-many", file, "--sheet", sheet)
    assert (three.status, "--sheet: 3 runs, expected two" in three.err) == (2, True)
    assert not sheet.exists()


def test_a_sheet_is_counted_once_and_only_if_a_judge_wrote_into_it(folder, antiphon, tmp_path):
    sheet = tmp_path / "sheet.tsv"
    assert antiphon(*command(folder, "--sheet", sheet)).status == 0
    unjudged = antiphon("compare", "--tally", sheet)
    assert (unjudged.status, "nothing in the column better" in unjudged.err) == (2, True)
    twice = antiphon("compare", "--tally", sheet, sheet)
    assert (twice.status, "given 2 times, expected each sheet once" in twice.err) == (2, True)
    missing = antiphon("compare", "--tally", tmp_path / "nothing.tsv")
    assert (missing.status, "nothing.tsv" in missing.err) == (2, True)
