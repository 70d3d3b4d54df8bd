"""Help fits a terminal of 80 columns, in whole paragraphs, with an example for every verb."""

import pytest
import typer

from antiphon.cli import app

VERBS = sorted(typer.main.get_command(app).commands)


def help_of(antiphon, *verb):
    result = antiphon(*verb, "--help")
    assert result.status == 0
    return result.out


def test_the_list_of_verbs_cuts_no_sentence(antiphon):
    text = help_of(antiphon)
    assert "..." not in text.partition("Commands:")[2]
    assert all(f"  {verb} " in text for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_fits_80_columns_and_has_an_example(antiphon, verb):
    text = help_of(antiphon, verb)
    assert all(len(line) <= 80 for line in text.splitlines())
    (example,) = [line for line in text.splitlines() if line.startswith("  Example:")]
    assert f"antiphon {verb}" in example
    assert "<bool>" not in text


@pytest.mark.parametrize("verb", VERBS)
def test_lines_inside_a_paragraph_are_full(antiphon, verb):
    about = help_of(antiphon, verb).partition("\n\n")[2]
    for paragraph in about.partition("Options:")[0].partition("Arguments:")[0].strip("\n").split("\n\n"):
        for line, following in zip(paragraph.splitlines(), paragraph.splitlines()[1:], strict=False):
            assert len(line) + 1 + len(following.split()[0]) > 78, line


def test_set_says_where_keys_are_listed(antiphon):
    assert "antiphon settings lists all keys" in help_of(antiphon, "train")
