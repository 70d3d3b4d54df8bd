"""Items one by one: what training has seen of them, published predictions, and the paired test over sets."""

from pathlib import Path

import numpy as np
import pytest
from experiments.item_scores import mark_right, p_value, pack, seen_accuracies, unpack
from experiments.records import read_records

from antiphon.metrics.output_metrics import Outputs
from antiphon.metrics.output_statistics import compare_systems
from antiphon.torch_free.readers import Pair
from tests.experiments.test_experiments import measure

TABLE = """
title = "Items"
metric = ["accuracy", "seen lemma and tags", "seen lemma", "seen tags", "neither seen"]
columns = { mean = ["one", "two"] }
train = "{set}.train.tsv"
dev = "{set}.dev.tsv"
score = "{set}.test.tsv"
file_columns = "source features target"
by_seen = true
by_set = true

[[row]]
name = "suffix rules"
recipe = "inflection"
set = { "model.kind" = "suffix_rule" }

[[row]]
name = "others"
predictions = "{set}.predictions.tsv"
"""


def pairs(*rows: str) -> list[Pair]:
    return [Pair(source, target, tuple(tags.split(";")), "") for source, target, tags in map(str.split, rows)]


def test_accuracy_is_split_by_what_training_has_seen() -> None:
    train = pairs("go goes V;SG", "walk walked V;PST")
    items = pairs("go went V;PST", "go gone V;PTCP", "see sees V;SG", "see sees V;SG", "be been V;PTCP")
    right = mark_right(["went", "goed", "sees", "sêes", "been"], items)
    found = seen_accuracies(train, items, right)
    assert {name: each["value"] for name, each in found.items()} == {
        "accuracy": 60.0,
        "seen lemma and tags": 100.0,
        "seen lemma": 0.0,
        "seen tags": 50.0,
        "neither seen": 100.0,
    }
    assert [each["items"] for each in found.values()] == [5, 1, 1, 2, 1]
    assert set(seen_accuracies(train, items[:1], right[:1])) == {"accuracy", "seen lemma and tags"}


def test_marks_are_packed_and_unpacked() -> None:
    marks = np.array([False, False, True, False, True, True])
    assert unpack(pack(marks)).tolist() == marks.tolist()


def test_p_of_one_set_is_that_of_the_compare_command_and_several_sets_count_alike() -> None:
    generator = np.random.default_rng(5)
    ours, theirs = generator.random(400) < 0.55, generator.random(400) < 0.50
    texts = [["y" if mark else "n" for mark in marks] for marks in (theirs, ours)]
    systems = [Outputs(text, [["y"]] * 400, text, [[["y"]]] * 400) for text in texts]
    expected = compare_systems(systems, "accuracy")[1].p_value
    assert p_value([ours], [theirs]) == pytest.approx(expected, abs=0.05)
    assert p_value([ours], [ours]) == 1.0
    assert p_value([ours] * 30, [theirs] * 30) < p_value([ours], [theirs])


def test_a_run_stands_beside_published_predictions_of_the_same_items(tmp_path: Path) -> None:
    verbs = [f"w{letter}k" for letter in "abcdefghij"]
    for name in ("one", "two"):
        rows = [f"{verb}\t{tag}\t{verb}{end}\n" for verb in verbs for tag, end in (("V;PST", "ed"), ("V;SG", "s"))]
        for part, chosen in (("train", rows[:12]), ("dev", rows[12:14]), ("test", rows[11:])):
            (tmp_path / f"{name}.{part}.tsv").write_text("".join(chosen))
        (tmp_path / f"{name}.predictions.tsv").write_text("".join(rows[11:]).replace("ed\n", "d\n"))
    done = measure(tmp_path, TABLE, data=tmp_path)
    assert done.returncode == 0, done.stderr
    ours, theirs = (line.split("|")[2:-1] for line in done.stdout.splitlines()[4:6])
    assert ours[0].strip() == "100.0"
    assert theirs[0].strip() == "55.6"
    assert [cell.strip() for cell in (ours[2], ours[4], theirs[5])] == ["", "", ""]  # no such items; no p of itself
    assert float(ours[5]) < 0.01
    assert "| one | 100.0 | 55.6 |" in done.stdout
    by_row = {record["row"]: record for record in read_records(tmp_path / "records.jsonl").values()}
    assert by_row["others"]["commands"] == []
    assert by_row["suffix rules"]["commands"][1].endswith(
        "predict RUNS/" + by_row["suffix rules"]["key"] + " - --allow-unknown-features"
    )
    (tmp_path / "one.predictions.tsv").write_text("other\tV;SG\tothers\n")
    refused = measure(tmp_path, TABLE, data=tmp_path)
    assert "one.predictions.tsv: expected the inputs of one.test.tsv, in order" in refused.stderr
