"""The page of pictures: what is drawn from runs, and what is said of those that are missing."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from experiments.pictures import SECTIONS, Gallery, crossings, write_page
from experiments.runner import Runner

from antiphon.api.model import load
from antiphon.metrics.gold_links import GoldLinks
from experiments import prepare
from tests.toy import inflect

PAIRS = [f"{'bad' * n}es\t{inflect('bad' * n + 'es')}" for n in range(2, 7)]
FILES = {
    "inflection/de-V.train.tsv.gz": [f"{pair}\tt{n:02}" for n in range(27) for pair in PAIRS],
    "inflection/de-V.dev.tsv.gz": [f"{pair}\tt{n:02}" for n in range(27) for pair in PAIRS],
    "inflection/de-V.test.tsv.gz": [f"{pair}\tt{n:02}" for n in range(27) for pair in PAIRS],
    "summarisation/google_sentcomp.dev.tsv.gz": PAIRS * 2,
    "zh-en/mixed.dev.tsv.gz": PAIRS * 2,
    "fr-en/multi30k.test2016.tsv.gz": PAIRS,
    "alignment/enfr.gold.tsv.gz": [
        "a b c d e\tb a c d e\t1-1 2-2 3-3 4-4 5-5",
        "a b c d e\tb a c d e\t1-2 2-1 3-3 4-4 5-5",
    ],
}


@pytest.fixture
def gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gallery:
    monkeypatch.setattr(prepare, "_DEV", 5)
    for name, lines in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    (tmp_path / "runs").mkdir()
    return Gallery(Runner(tmp_path, tmp_path / "runs"), tmp_path / "pictures", 4)


def test_every_figure_and_table_is_made_from_runs(gallery: Gallery, toy_run: Path, monkeypatch) -> None:
    model = load(toy_run)

    def shout(sources: Sequence[str], align: bool) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=source.upper()) for source in sources]

    def open_run(self: Gallery, table: str, name: str, row: str) -> object:
        is_other = row.startswith("direct +")
        return SimpleNamespace(codec=model.codec, predict=shout) if is_other else model

    monkeypatch.setattr(Gallery, "open", open_run)
    page = "\n\n".join(write_page(gallery))
    assert "Not made yet" not in page
    assert all(f"## {title}\n" in page for title in SECTIONS)
    pictures = sorted(path.name for path in gallery.folder.iterdir())
    assert all(f"](pictures/{name})" in page for name in pictures)
    assert len(pictures) == 8
    assert "gold link" in (gallery.folder / "gold-biSSNT.svg").read_text()
    assert "decides otherwise than the direct model for 4 of 4 inputs, and is nearer to the target in 0" in page
    assert "| noisy channel | BADBADES |" in page
    assert "among the first 4 scored pairs" in " ".join(page.split())


def test_missing_runs_are_said_at_the_end(gallery: Gallery) -> None:
    *_, last = write_page(gallery)
    title, *lines = filter(None, last.splitlines())
    assert title == "## Not made yet"
    assert len(lines) == len(SECTIONS)
    assert lines[0] == f"* {next(iter(SECTIONS))}: no run of `thesis-4.3`, row biSSNT+, set de-V.t26"
    assert lines[1].endswith(
        ": summarisation/google_sentcomp.train.tsv.gz: no such file; --data names the folder that has summarisation"
    )
    assert not gallery.folder.exists()


def test_links_that_cross_are_counted() -> None:
    assert crossings(GoldLinks.parse("0-0 1-2 2-1 3-0", "")) == 3
