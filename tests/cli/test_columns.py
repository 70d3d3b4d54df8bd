"""Files with the columns in another order (``data.columns``) are read alike by every command."""

import pytest

import antiphon as package
from antiphon.lite import load
from tests.toy import inflect, words

SMALL = {"model.hidden_size": 8, "train.max_epochs": 1, "train.passes": 1, "train.dev_metric": "perplexity"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of the same pairs in two files: with the features last, and with the targets last."""
    folder = tmp_path_factory.mktemp("columns")
    for name, columns in (("usual", "source target features"), ("other", "source features target")):
        rows = [
            {"source": word, "target": inflect(word) + tag[-2], "features": tag}
            for word in words(40)
            for tag in ("N;NOM(SG)", "N;NOM(PL)")
        ]
        lines = ["\t".join(row[column] for column in columns.split()) for row in rows]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        data = {"data.train": folder / f"{name}.tsv", "data.dev": folder / f"{name}.tsv", "data.columns": columns}
        package.train({}, folder / name, settings=SMALL | data)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--json"),
        ("errors", "--format", "jsonl"),
        ("align", "--format", "jsonl"),
        ("predict", "--format", "jsonl"),
    ],
)
def test_every_command_reads_the_columns_of_the_run(folder, antiphon, command):
    verb, *options = command
    answers = [antiphon(verb, folder / name, folder / f"{name}.tsv", *options) for name in ("usual", "other")]
    assert answers[0].status == answers[1].status == 0, answers[1].err
    assert answers[0].out.replace("usual", "other") == answers[1].out


def test_an_exported_run_reads_the_same_columns(folder, tmp_path, antiphon):
    scores = {}
    for name in ("usual", "other"):
        assert antiphon("export", folder / name, "--out", tmp_path / name).status == 0
        scores[name] = list(load(tmp_path / name).score(folder / f"{name}.tsv"))
    assert scores["usual"] == scores["other"]
