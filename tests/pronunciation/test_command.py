"""``antiphon pronounce`` needs numpy and onnxruntime alone."""

import json
from io import BytesIO, TextIOWrapper

import pytest
import typer

from antiphon.cli import app
from antiphon.pronunciation.command import main, parser
from tests.lite.test_without_torch import run_hidden

MAIN = "sys.argv[0] = 'antiphon'\nfrom antiphon.__main__ import main\nmain()"


def pronounce(*arguments, stdin=""):
    """The command in a Python without PyTorch and the other packages of the extras."""
    return run_hidden(MAIN, "pronounce", *arguments, stdin=stdin)


def test_a_text_gets_a_row_for_each_word():
    done = pronounce("The knight read 12 floofing emails.")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["The", "knight", "read", "twelve", "floofing", "emails"]
    assert rows[1] == ["knight", "N", "AY1", "T", "lexicon"]
    assert rows[2][1:] == ["R", "EH1", "D", "lexicon", "or", "R", "IY1", "D"]


def test_lines_of_standard_input_get_a_line_each():
    done = pronounce("--line", stdin="a knight\n\n5 cats\n")
    assert done.stdout.splitlines() == ["AH0 | N AY1 T", "", "F AY1 V | K AE1 T S"]
    done = pronounce("--line", "--alphabet", "ipa", "The (good) knight, Sir!")
    assert done.stdout == "ðə (ˈɡʊd) ˈnaɪt, ˈsɝ!\n"


def test_json_has_positions_origins_probabilities_and_alignment():
    done = pronounce("--jsonl", "--align", "--nbest", "2", stdin="A floofing\n")
    found = json.loads(done.stdout)
    assert found["text"] == "A floofing"
    article, unknown = found["parts"]
    assert (article["start"], article["end"], unknown["start"], unknown["end"]) == (0, 1, 2, 10)
    (word,) = unknown["words"]
    assert word["origin"] == "model"
    assert word["probability"] == word["readings"][0]["probability"] > word["readings"][1]["probability"]
    assert word["alignment"][0] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nbest", "0", "x"], "antiphon: nbest = 0: expected a whole number, at least 1\n"),
        (["--cover", "x", "y"], "antiphon: argument --cover: invalid float value: 'x'; antiphon pronounce --help says"),
        (["[x](/Q/)"], "antiphon: [x](/Q/): 'Q' is no phoneme of ARPAbet"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(arguments, message):
    done = pronounce(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


def test_a_mistake_in_standard_input_names_its_line():
    done = pronounce("--line", stdin="a\n[x](/Q/)\n")
    assert (done.returncode, done.stdout) == (2, "AH0\n")
    assert done.stderr.startswith("antiphon: standard input:2: [x](/Q/): 'Q' is no phoneme")


@pytest.mark.parametrize("text", ["...", "🙂"])
def test_a_text_without_words_gets_a_note(text):
    done = pronounce(text)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("antiphon: no word to pronounce in the text")


def test_words_in_other_letters_get_a_note():
    done = pronounce("knight привет")
    assert done.returncode == 0
    assert done.stderr == "antiphon: no pronunciation for 'привет', expected Latin letters\n"


def test_help_is_that_of_the_command():
    done = pronounce("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: antiphon pronounce")


def test_both_front_ends_have_the_same_options():
    verb = typer.main.get_command(app).commands["pronounce"]
    theirs = {name for parameter in verb.params for name in parameter.opts if name.startswith("--")}
    ours = {name for action in parser()._actions for name in action.option_strings if name.startswith("--")}
    assert ours - {"--help"} == theirs


def test_letters_of_other_scripts_have_no_pronunciation_in_capitals_either():
    done = pronounce("ΑΒΓ, РФ")
    assert done.stdout == "ΑΒΓ    unknown\nРФ     unknown\n"
    assert done.stderr == "antiphon: no pronunciation for 'ΑΒΓ', 'РФ', expected Latin letters\n"


def test_bytes_that_are_no_text_are_noted(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"a\ncaf\xe9\n")))
    assert main(["--line"]) == 0
    done = capsys.readouterr()
    assert done.out.splitlines()[0] == "AH0"
    assert done.err == "antiphon: standard input:2: bytes that are not UTF-8 were skipped, expected UTF-8 text\n"
