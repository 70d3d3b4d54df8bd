"""What README and documentation say can be typed, works and gives what is shown: all commands and all Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, Output, Page, agrees, prepare, run_page

CHAINS = {  # pages that use each other's runs, and how many commands and values they show at least
    ("README.md",): 4,
    (
        "docs/index.md",
        "docs/alignments.md",
        "docs/reference/python.md",
        "docs/recipes.md",
        "docs/clusters.md",
        "docs/lite.md",
    ): 16,
    ("docs/online.md",): 8,
    ("docs/tutorials/inflection.md", "docs/improve.md", "docs/little-data.md"): 15,
    ("docs/tutorials/pronunciation.md",): 5,
    ("docs/tutorials/translation.md",): 5,
    ("docs/tutorials/summarisation.md",): 4,
    ("docs/tutorials/noisy-channel.md",): 3,
    ("docs/answer-selection.md",): 6,
    ("docs/lattice.md",): 1,
    ("docs/pronounce.md",): 6,
}
SLOW = (
    "docs/online.md",
    "docs/tutorials/inflection.md",
    "docs/tutorials/translation.md",
    "docs/tutorials/noisy-channel.md",
)
"""First pages of chains that `make test-all` runs: their trainings take a quarter of a minute each, or more."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    "chain",
    [pytest.param(chain, marks=[pytest.mark.slow] if chain[0] in SLOW else []) for chain in CHAINS],
    ids=lambda chain: Path(chain[0]).stem,
)
def test_every_command_and_all_python_of_a_page_work_and_give_what_is_shown(
    chain, antiphon, tmp_path, toy_run, monkeypatch
):
    monkeypatch.chdir(prepare(tmp_path))
    monkeypatch.delenv("COLUMNS", raising=False)  # pages show what goes into a file
    shutil.copytree(toy_run, tmp_path / "runs/toy")

    def run(*arguments, stdin):
        result = antiphon(*arguments, stdin=stdin)
        return Output(result.status, result.out, result.err)

    compared = sum(run_page(Page(ROOT / name), tmp_path, run) for name in chain)
    assert compared >= CHAINS[chain]


def test_every_page_with_commands_or_python_is_run():
    run = {str(path.relative_to(ROOT)) for path in PAGES if Page(path).run_blocks}
    assert run == {name for chain in CHAINS for name in chain}


def test_every_block_says_what_it_is_and_only_figures_are_not_run_as_a_whole():
    for path in PAGES:
        page = Page(path)
        assert len(page.blocks) * 2 == sum(line.startswith("```") for line in page.text.splitlines()), path
        assert all(block.language for block in page.blocks), path
        assert page.text.startswith("<!-- not run") == (path.name == "results.md"), path


def test_an_output_agrees_with_itself_but_for_numbers_and_a_few_lines():
    shown = "accuracy 93.5\nedits 0.2\nbest: tem\nbest: dag\n"
    assert agrees(shown, shown.replace("93.5", "91"))
    assert agrees(shown, shown.replace("dag", "dog"))
    assert not agrees(shown, shown.replace("best", "worst"))
    assert not agrees(shown, "")
    assert agrees("│ accuracy │ 93 │\nfree text\n", "│ accuracy │ 0 │\n", small=True)
    assert not agrees("│ accuracy │ 93 │\n", "free text\n", small=True)


@pytest.mark.slow
def test_all_python_of_readme_and_docs_passes_mypy_strict(tmp_path):
    for page in map(Page, PAGES):
        python = [block.body for block in page.blocks if block.language == "python"]
        if python:  # later blocks of a page go on with the names of earlier ones
            (tmp_path / f"{page.path.stem.replace('-', '_').lower()}.py").write_text("\n".join(python))
    files = sorted(tmp_path.glob("*.py"))
    assert {"readme.py", "index.py", "improve.py", "online.py"} <= {file.name for file in files}
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
