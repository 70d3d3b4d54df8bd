"""Help fits a terminal of 80 columns, in whole paragraphs, with examples for every verb."""

import re
import shlex

import pytest
import typer

from antiphon.cli import app

COMMANDS = typer.main.get_command(app).commands
VERBS = sorted(COMMANDS)


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def help_of(antiphon, *verb):
    result = antiphon(*verb, "--help")
    assert result.status == 0
    return result.out


def examples_of(text):
    section = text.partition("  Examples:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in section.splitlines()]


def test_the_list_of_verbs_cuts_no_sentence(antiphon):
    text = help_of(antiphon)
    assert "..." not in text.partition("Commands:")[2]
    assert all(f"  {verb} " in text for verb in VERBS)
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_fits_80_columns_without_noise(antiphon, verb):
    text = help_of(antiphon, verb)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not re.search(r"<bool>|\bBOOLEAN\b|\bunset\b|\[default: None\]", text)
    assert not re.search(r"[{}]|\[\[|<(path|str|list.*)>", text.partition("Options:\n")[0])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_of_itself_with_options_that_exist(antiphon, verb):
    examples = examples_of(help_of(antiphon, verb))
    assert examples
    options = {name for parameter in COMMANDS[verb].params for name in parameter.opts}
    for example in examples:
        command = shlex.split(example.rpartition(" | ")[2])
        assert command[:2] == ["antiphon", verb]
        assert {word for word in command if word.startswith("--")} <= options


@pytest.mark.parametrize("verb", VERBS)
def test_lines_inside_a_paragraph_are_full(antiphon, verb):
    about = help_of(antiphon, verb).partition("\n\n")[2].partition("  Examples:")[0]
    for paragraph in about.strip("\n").split("\n\n"):
        for line, following in zip(paragraph.splitlines(), paragraph.splitlines()[1:], strict=False):
            assert len(line) + 1 + len(following.split()[0]) > 78, line


@pytest.mark.parametrize("verb", ["train", "grid"])
def test_set_says_where_keys_are_listed(antiphon, verb):
    text = " ".join(help_of(antiphon, verb).split())
    assert "antiphon settings [KEY]" in text
    assert antiphon("settings", "train.seed").status == 0


def test_without_a_verb_the_help_is_printed_and_nothing_else(antiphon):
    bare = antiphon()
    assert (bare.status, bare.err) == (2, "")
    assert bare.out == help_of(antiphon)


def test_a_misspelt_verb_is_one_sentence_with_the_nearest(antiphon):
    assert antiphon("trian").err == "antiphon: no such command 'trian', did you mean 'train'?\n"
