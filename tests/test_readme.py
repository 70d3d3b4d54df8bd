"""What the README says can be typed, works as it stands: every command and all of its Python, on small data."""

import ast
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.toy import inflect, words, write_questions, write_vectors

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
IMPROVE = (ROOT / "docs/improve.md").read_text(encoding="utf-8")
SMALL = ("model.hidden_size=8", "model.layers=1", "train.max_epochs=1", "train.passes=1")


def blocks(language, text=README):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def commands(text=README):
    """Every antiphon command in a block, with what is piped into it; comments and redirections left out."""
    for block in blocks("", text):
        for line in block.replace("\\\n", " ").splitlines():
            piped, _, command = line.rpartition(" | ")
            words_ = shlex.split(command, comments=True)
            if words_[:1] == ["antiphon"]:
                yield piped.removeprefix("echo "), words_[1 : words_.index(">") if ">" in words_ else None]


@pytest.fixture
def folder(tmp_path, toy_run):
    """A folder with the files that the README names."""
    folder = tmp_path
    for name, number in (("train", 40), ("dev", 6), ("test", 6), ("few", 20)):
        rows = [f"{word}\t{inflect(word)}\t{tag}\n" for word in words(number) for tag in ("N;PL", "N;SG")]
        (folder / f"{name}.tsv").write_text("".join(rows))
    (folder / "new.txt").write_text("badu\tN;PL\n")
    (folder / "lexicon.tsv").write_text("badu\tbaaduun\tN;PL\n")
    (folder / "forms.txt").write_text("".join(f"{inflect(word)}\n" for word in words(30, seed=1)))
    for part, number in (("train", 12), ("dev", 6), ("test", 6), ("new", 3)):
        write_questions(folder / f"qa.{part}.tsv", number)
    write_vectors(folder / "glove.6B.100d.txt")
    shutil.copytree(toy_run, folder / "runs/toy")
    return folder


def made_small(arguments):
    """The same command; what trains is made small, but for the toy recipe, whose figures are shown."""
    settings = SMALL if arguments[0] in ("train", "grid") and not arguments[1].startswith("toy") else ()
    more = ("search.beam=2",) if arguments[1] == "inflection" else ()
    return [*arguments, *(part for setting in (*settings, *more) for part in ("--set", setting))]


def test_every_verb_but_the_demo_is_shown_in_a_command():
    shown = {arguments[0] for _, arguments in commands()}
    assert shown >= {
        "train",
        "evaluate",
        "predict",
        "align",
        "info",
        "recipes",
        "stream",
        "combine",
        "tune",
        "grid",
        "errors",
    }


def test_every_command_and_all_python_work_and_give_what_is_shown(antiphon, folder, monkeypatch):
    monkeypatch.chdir(folder)
    swept = ""
    for piped, arguments in commands():
        result = antiphon(*made_small(arguments), stdin=f"{piped}\n".encode())
        assert result.status == 0, (arguments, result.err)
        swept += result.out if "--sweep" in arguments else ""
    check_sweep(swept)
    assert sum(map(check_python, blocks("python"))) >= 6
    check_improve(antiphon, folder)


def check_improve(antiphon, folder):
    """Every command and all Python of docs/improve.md, with the runs of the README."""
    shutil.copytree(folder / "runs/mine", folder / "runs/other")
    for _, arguments in commands(IMPROVE):
        result = antiphon(*arguments)
        assert result.status == 0, (arguments, result.err)
    assert sum(map(check_python, blocks("python", IMPROVE))) >= 7


def check_sweep(swept):
    found = {row[0]: row for row in (re.findall(r"[\d.]+", line) for line in swept.splitlines()) if len(row) > 3}
    shown = re.findall(r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \|$", README, flags=re.MULTILINE)
    assert len(shown) == 3
    for bias, accuracy, lagging in shown:
        assert float(found[bias][1]) == pytest.approx(float(accuracy), abs=6.0)
        assert float(found[bias][3]) == pytest.approx(float(lagging), abs=0.1)


def check_python(block):
    """Runs a block; how many of its values were compared with the comments beside them."""
    names, checked = {}, 0
    for statement in ast.parse(block).body:
        comment = block.splitlines()[statement.end_lineno - 1].partition("  # ")[2]
        code, wanted = ast.get_source_segment(block, statement), literal(comment)
        if isinstance(statement, ast.Expr) and wanted is not None:
            assert eval(code, names) == wanted, code
            checked += 1
        else:
            exec(code, names)
    return checked


def literal(comment):
    """The Python value that a comment shows, alone or before a colon; None if it shows none."""
    for text in (comment, comment.partition(": ")[0]):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.literal_eval(text)
    return None


def test_all_python_of_readme_and_docs_passes_mypy_strict(tmp_path):
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for document in documents:
        python = blocks("python", document.read_text(encoding="utf-8"))
        if python:  # later blocks of a document go on with the names of earlier ones
            (tmp_path / f"{document.stem.replace('-', '_').lower()}.py").write_text("\n".join(python))
    files = sorted(tmp_path.glob("*.py"))
    assert {"readme.py", "improve.py", "online.py"} <= {file.name for file in files}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout
