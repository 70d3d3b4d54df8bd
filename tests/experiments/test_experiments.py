"""Tables of experiments: what they run, what they record, and what they refuse."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from experiments.made_data import make, spell_number
from experiments.page import PAGE, format_table, measured_rows, write_page
from experiments.prepare import check_sources, cut
from experiments.question_folds import fold
from experiments.records import Found, all_records, find_records, read_records
from experiments.table import FOLDER, Table, load_table

from antiphon.exceptions import AntiphonError
from tests.toy import write_questions

TABLE = """
title = "A toy"
metric = "accuracy"
sets = ["toy"]
train = "{set}/train.tsv"
dev = "{set}/dev.tsv"

[[row]]
name = "one epoch"
recipe = "toy"
set = { "train.max_epochs" = 1, "model.hidden_size" = 8 }
"""
DATA = Path(__file__).parents[2] / "src/antiphon/recipe/shipped"


def measure(folder: Path, text: str = TABLE, *words: str, data: Path = DATA) -> subprocess.CompletedProcess[str]:
    (folder / "table.toml").write_text(text)
    command = [sys.executable, "-m", "experiments", str(folder / "table.toml"), "--data", str(data), *words]
    places = ["--runs", str(folder / "runs"), "--records", str(folder / "records.jsonl")]
    root = Path(__file__).parents[2]
    return subprocess.run([*command, *places], capture_output=True, text=True, check=False, cwd=root)


def test_a_table_is_measured_once_and_every_figure_has_a_record(tmp_path: Path) -> None:
    first = measure(tmp_path)
    assert first.returncode == 0, first.stderr
    assert "1 of 1 runs to do" in first.stderr
    (record,) = read_records(tmp_path / "records.jsonl").values()
    value = record["metrics"]["accuracy"]["value"]
    assert f"| one epoch | {value:.1f} |" in first.stdout
    assert record["recipe"]["model"]["hidden_size"] == 8
    assert set(record["files"]) == {"train", "dev", "score"}
    assert record["seed"] == 1
    assert record["cpu_seconds"] > 0
    assert str(tmp_path) not in json.dumps(record)
    assert "0 of 1 runs to do" in measure(tmp_path).stderr


def test_a_run_is_measured_again_when_its_settings_change(tmp_path: Path) -> None:
    table = Table.model_validate_json(
        json.dumps(
            {
                "title": "",
                "metric": "accuracy",
                "sets": ["a", "b"],
                "seeds": [1, 2],
                "train": "{set}.tsv",
                "dev": "{set}.dev",
                "row": [{"name": "x", "recipe": "toy"}, {"name": "y", "recipe": "toy", "set": {"model.layers": 2}}],
            }
        )
    )
    same = {"train": "1", "dev": "2", "score": "2"}
    keys = {job.key(same) for job in table.jobs()}
    assert len(keys) == 4  # two rows, two seeds; files with equal contents are the same data
    assert len({job.key({**same, "train": "3"}) for job in table.jobs()} | keys) == 8


SEVERAL = {
    "title": "",
    "metric": ("rouge1", "rouge2"),
    "columns": {"nouns": ("n.1", "n.2"), "verbs": ("v.1",)},
    "train": "{set}",
    "dev": "{set}",
    "row": (
        {"name": "each", "recipe": "toy", "thesis": {"nouns rouge1": 30.5}},
        {"name": "joint", "recipe": "toy", "sets": ("nouns",)},
    ),
}


def found_of(table: Table, **values: float) -> list[Found]:
    """Records of jobs that measured a value of both metrics, by row and set."""
    jobs = {f"{job.row.name} {job.set}": job for job in table.jobs()}
    return [
        Found(
            jobs[name],
            {"metrics": {metric: {"value": value} for metric in table.metric}, "cpu_seconds": 1.0, "commit": "abc"},
        )
        for name, value in values.items()
    ]


def test_columns_are_means_over_sets_with_the_thesis_beside_them() -> None:
    table = Table.model_validate(SEVERAL)
    shown = format_table(table, found_of(table, **{"each n.1": 20.0, "each n.2": 30.0, "joint nouns": 27.0}))
    assert shown.splitlines() == [
        "| system | nouns rouge1 | thesis | nouns rouge2 | verbs rouge1 | verbs rouge2 | seeds | CPU s | commit |",
        "|---|---|---|---|---|---|---|---|---|",
        "| each | 25.00 | 30.5 | 25.00 |  |  | 1 | 1 | abc |",
        "| joint | 27.00 |  | 27.00 |  |  | 1 | 1 | abc |",
    ]


def test_a_row_without_a_whole_column_is_not_shown() -> None:
    table = Table.model_validate(SEVERAL)
    assert len(format_table(table, found_of(table, **{"each n.1": 20.0})).splitlines()) == 2
    assert not measured_rows(table, found_of(table, **{"each n.1": 20.0}))


def test_a_run_that_another_set_has_measured_with_the_same_contents_is_not_measured_again(tmp_path: Path) -> None:
    table = TABLE.replace('sets = ["toy"]', 'sets = ["toy", "./toy"]')
    assert measure(tmp_path, table, "--sets", "./").returncode == 0
    done = measure(tmp_path, table)
    assert "0 of 1 runs to do" in done.stderr
    records = all_records(tmp_path / "records.jsonl")
    assert [record["set"] for record in records] == ["./toy", "toy"]
    assert len({record["key"] for record in records}) == 1
    assert records[1]["files"]["train"]["name"] == "toy/train.tsv"
    found = list(find_records(load_table(str(tmp_path / "table.toml")), "table", records))
    assert [each.is_current for each in found] == [True, True]
    assert "0 of 1 runs to do" in measure(tmp_path, table.replace("{set}/train", "{set}/./train")).stderr
    names = [record["files"]["train"]["name"] for record in all_records(tmp_path / "records.jsonl")]
    assert sorted(names[2:]) == ["./toy/./train.tsv", "toy/./train.tsv"]


def test_a_combination_has_the_parts_and_settings_that_its_row_names(tmp_path: Path) -> None:
    combination = """
[[row]]
name = "language model"
recipe = "toy"
hidden = true
set = { "train.max_epochs" = 1, "model.kind" = "language_model", "train.dev_metric" = "perplexity" }

[[row]]
name = "direct + LM"
combine = { direct = "one epoch", lm = "language model" }
set = { "search.beam" = 2, "search.weights" = [1.0, 1.0, 1.0, 0.0] }
"""
    table = TABLE.replace("[[row]]", 'tune = ["--rounds", "1", "--nbest", "2"]\n\n[[row]]', 1) + combination
    done = measure(tmp_path, table)
    assert done.returncode == 0, done.stderr
    *_, record = all_records(tmp_path / "records.jsonl")
    combine, tune, _ = record["commands"]
    assert "--channel" not in combine
    assert "--set search.beam=2" in combine
    assert tune.endswith("--rounds 1 --nbest 2")
    assert record["recipe"]["search"]["beam"] == 2
    assert record["recipe"]["search"]["weights"][1] == 0


def test_a_row_may_be_an_ensemble_of_several_seeds(tmp_path: Path) -> None:
    done = measure(tmp_path, TABLE + "members = 2\n")
    assert "1 of 1 runs to do" in done.stderr
    (record,) = read_records(tmp_path / "records.jsonl").values()
    assert record["recipe"]["model"]["kind"] == "ensemble"
    assert "--seeds 2" in record["commands"][0]
    assert "one epoch" not in measure(tmp_path, TABLE, "--show").stdout  # a single model is another run


def test_a_row_may_change_a_constant_and_a_table_count_outputs_that_do_not_end(tmp_path: Path) -> None:
    table = TABLE.replace('"accuracy"', '["accuracy", "runaways", "greedy runaways"]')
    changed = table + 'constants = { "antiphon.nn.recurrent._EMBEDDING_STD" = 5.0 }\n'
    for text in (table, changed):
        done = measure(tmp_path, text)
        assert done.returncode == 0, done.stderr
    plain, other = all_records(tmp_path / "records.jsonl")
    assert plain["key"] != other["key"]
    assert plain["metrics"]["perplexity"] != other["metrics"]["perplexity"]
    assert other["commands"][0].startswith(
        "python -m experiments.changed_constants antiphon.nn.recurrent._EMBEDDING_STD=5.0 train toy"
    )
    assert other["commands"][1].startswith("antiphon evaluate")
    for record in (plain, other):
        assert 0 <= record["metrics"]["greedy runaways"]["value"] <= 100
    unknown = measure(tmp_path, changed.replace("_EMBEDDING_STD", "_NONSENSE"))
    assert "no constant _NONSENSE" in unknown.stderr


def test_the_worst_seed_stands_behind_the_mean() -> None:
    table = Table.model_validate(SEVERAL | {"worst_seed": True, "seeds": (1, 2), "columns": {"verbs": ("v.1",)}})
    jobs = [job for job in table.jobs() if job.row.name == "each"]
    records = [{"metrics": {name: {"value": value} for name in table.metric}} for value in (20.0, 30.0)]
    found = [Found(job, record | {"cpu_seconds": 1, "commit": "a"}) for job, record in zip(jobs, records, strict=True)]
    assert "| each | 25.00 (20.00) | 25.00 (20.00) |" in format_table(table, found)


def test_averages_are_over_all_sets_or_missing() -> None:
    table = Table.model_validate(
        {
            "title": "",
            "metric": "accuracy",
            "show": "error",
            "sets": ("a", "b"),
            "seeds": (1, 2),
            "train": "",
            "dev": "",
            "row": ({"name": "x", "recipe": "toy"},),
        }
    )
    jobs = table.jobs()
    records = [
        {"metrics": {"accuracy": {"value": value}}, "cpu_seconds": 10.0, "commit": "abc"}
        for value in (90.0, 80.0, 92.0, 84.0)
    ]
    by_set = dict(zip([(job.seed, job.set) for job in jobs], records, strict=True))
    found = [Found(job, by_set[job.seed, job.set]) for job in jobs]
    assert all(line.count("|") == 8 for line in format_table(table, found).splitlines())
    assert "| x | 9.0 | 18.0 | **13.50** | 2 | 10 | abc |" in format_table(table, found)
    assert "| x | 9.0 |  |  | 2 | 10 | abc |" in format_table(table, [each for each in found if each.job.set == "a"])


def test_a_figure_whose_recipe_has_changed_since_is_marked(tmp_path: Path) -> None:
    assert measure(tmp_path).returncode == 0
    records = list(read_records(tmp_path / "records.jsonl").values())
    table = load_table(str(tmp_path / "table.toml"))
    (found,) = find_records(table, "table", records)
    assert found.is_current
    (tmp_path / "table.toml").write_text(TABLE.replace('"model.hidden_size" = 8', '"model.hidden_size" = 9'))
    (changed,) = find_records(load_table(str(tmp_path / "table.toml")), "table", records)
    assert not changed.is_current
    assert f"{changed.value:.1f}* |" in format_table(changed.job.table, [changed])


def test_the_page_of_results_says_what_the_records_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ('recipe = "toy"\n', "expected one of recipe, combine and predictions"),
        ('metric = "accuracy"\n', "metric"),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(tmp_path: Path, change: str, expected: str) -> None:
    done = measure(tmp_path, TABLE.replace(change, ""))
    assert done.returncode == 1
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_tables_are_refused_by_name() -> None:
    with pytest.raises(AntiphonError, match="no such table, expected one of"):
        load_table("nonsense")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_table_that_is_shipped_can_be_read(path: Path) -> None:
    assert load_table(str(path)).jobs()


def test_made_data_are_the_same_each_time_and_share_no_source(tmp_path: Path) -> None:
    for name in ("number-words", "words-of-numbers", "phone-numbers", "long-names", "capitals"):
        parts = [make(f"made/{name}.{part}.tsv", tmp_path / "one").read_text() for part in ("train", "dev", "test")]
        again = [make(f"made/{name}.{part}.tsv", tmp_path / "two").read_text() for part in ("train", "dev", "test")]
        assert parts == again
        sources = [{line.split("\t")[0] for line in part.splitlines()} for part in parts]
        assert [len(part) for part in sources] == [1000, 200, 500]
        assert not sources[0] & sources[2]


def test_pairs_and_forms_of_one_tag_are_cut_without_held_out_lemmas(tmp_path: Path) -> None:
    tags = ["case=genitive,number=plural", "case=dative,number=plural"]
    lemmas = [f"w{n}" for n in range(9)]
    pairs = "".join(f"{lemma}\t{lemma}{tag[5]}\t{tag}\n" for lemma in lemmas for tag in tags)
    forms = "".join(f"{lemma}{tag[5]}\t{tag}\t{lemma}\t{int(lemma == 'w0')}\n" for lemma in lemmas for tag in tags)
    for name, text in (("inflection/de-N.train.tsv", pairs), ("unpaired/de-N.forms_by_tag.tsv", forms)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    few, more, found = (
        cut(f"cut/de-N.GP.{part}", tmp_path, tmp_path / "cut").read_text().splitlines()
        for part in ("3.train.tsv", "5.train.tsv", "3.forms.txt")
    )
    assert (len(few), len(set(more))) == (3, 5)
    assert few == more[:3]
    assert all(line.split("\t")[1] == line.split("\t")[0] + "g" for line in more)
    assert sorted(found) == [f"{lemma}g" for lemma in lemmas[1:]]
    with pytest.raises(AntiphonError, match=r"not cut here, expected a name such as cut/de-N\.GP\.300\.train\.tsv"):
        cut("cut/de-N.XP.3.train.tsv", tmp_path, tmp_path / "cut")


def write_rows(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))


def test_a_set_without_test_pairs_is_held_out_lemma_by_lemma_and_tags_have_numbers(tmp_path: Path) -> None:
    rows = [f"w{n}\tw{n}{tag}\ttag={tag}" for n in range(5) for tag in "ba"]
    for part in ("train", "dev"):
        write_rows(tmp_path / f"inflection/nl-V.{part}.tsv.gz", rows)
    parts = {
        name: cut(f"cut/nl-V.{name}.tsv", tmp_path, tmp_path / "cut").read_text().splitlines()
        for name in ("train", "t1.train", "t1.dev", "t2.test")
    }
    assert parts["train"] == rows
    assert parts["t1.train"] == [f"w{n}\tw{n}a" for n in range(5)]
    assert parts["t1.dev"] == ["w0\tw0a", "w2\tw2a", "w4\tw4a"]
    assert parts["t2.test"] == ["w1\tw1b", "w3\tw3b"]
    for name in ("cut/nl-V.t3.train.tsv", "cut/nl-V", "cut/mixed.train.tsv"):
        with pytest.raises(AntiphonError, match="not cut here"):
            cut(name, tmp_path, tmp_path / "cut")


def test_parts_of_texts_share_no_pair(tmp_path: Path) -> None:
    for part in ("train", "dev"):
        write_rows(tmp_path / f"zh-en/mixed.{part}.tsv.gz", [f"{part} {n}\tenglish {n}\tnews" for n in range(1500)])
    few, more, others, dev, test = (
        cut(f"cut/mixed.{name}", tmp_path, tmp_path / "cut").read_text().splitlines()
        for name in ("10.train.tsv", "20.train.tsv", "10.targets.txt", "dev.tsv", "test.tsv")
    )
    assert few == more[:10]
    assert len(others) == 1490
    assert not {line.split("\t")[1] for line in few} & set(others)
    assert (len(dev), len(test)) == (1000, 500)
    assert not set(dev) & set(test)
    assert all(line.count("\t") == 1 for line in [*few, *dev])


def test_public_files_are_compared_with_those_that_were_measured(tmp_path: Path) -> None:
    write_rows(tmp_path / "inflection/de-N.dev.tsv.gz", ["other"])
    lines = {line.partition(": ")[0]: line for line in check_sources(tmp_path)}
    assert ": another file (" in lines["inflection/de-N.dev.tsv.gz"]
    assert ": missing (" in lines["zh-en/mixed.train.tsv.gz"]
    assert "News Commentary" in lines["zh-en/mixed.train.tsv.gz"]


def test_sets_share_a_run_of_the_same_files_and_a_language_model_has_no_accuracy(tmp_path: Path) -> None:
    language_model = """
[[row]]
name = "language model"
recipe = "toy"
set = { "train.max_epochs" = 1, "model.kind" = "language_model", "train.dev_metric" = "perplexity" }
hidden = true
"""
    table = TABLE.replace('sets = ["toy"]', 'sets = ["toy", "./toy"]') + language_model
    done = measure(tmp_path, table, "--rows", "language")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs to do" in done.stderr
    assert "1/1 language model / ./toy / seed 1: " in done.stderr


def test_one_run_is_scored_on_several_question_sets(tmp_path: Path) -> None:
    write_questions(tmp_path / "questions.tsv", 20)
    (tmp_path / "qrels").write_text("q0 0 q0-0 1\nq0 0 q0-1 0\nunseen 0 unseen-0 1\n")
    table = """
title = "Questions"
metric = "judged map"
show = "percent"
sets = ["questions"]
train = "{set}.tsv"
dev = "{set}.tsv"

[questions]
all = []
judged = ["--questions", "mixed", "--qrels", "data:qrels"]

[[row]]
name = "at random"
recipe = "answer-selection"
set = { "model.kind" = "overlap", "model.baseline" = "random" }
"""
    done = measure(tmp_path, table, data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 runs to do" in done.stderr
    (record,) = read_records(tmp_path / "records.jsonl").values()
    assert {"all map", "all mrr", "judged map"} <= set(record["metrics"])
    assert "20 questions (all)" in record["metrics"]["all map"]["signature"]
    assert "2 questions (of qrels" in record["metrics"]["judged map"]["signature"]
    assert f"| at random | {100 * record['metrics']['judged map']['value']:.1f} |" in done.stdout
    assert [command.split()[1] for command in record["commands"]] == ["train", "evaluate", "evaluate"]
    assert record["table"] == "table"
    (tmp_path / "qrels").write_text("q1 0 q1-0 1\n")
    assert "1 of 1 runs to do" in measure(tmp_path, table, data=tmp_path).stderr


def test_every_training_question_is_held_out_in_one_fold(tmp_path: Path) -> None:
    header = "question_id\tquestion\tcandidate_id\tsentence\tlabel\n"
    rows = [f"T{n}\twho\tT{n}-{each}\tme\t{each}\n" for n in range(1, 13) for each in (0, 1)]
    (tmp_path / "wikiqa").mkdir()
    for name, lines in (("train", rows), ("dev", rows[:2])):
        (tmp_path / f"wikiqa/{name}.tsv.gz").write_bytes(gzip.compress("".join([header, *lines]).encode()))

    def part(name: str) -> list[str]:
        first, *lines = fold(f"folds/{name}.tsv", tmp_path, tmp_path / "folds").read_text().splitlines(keepends=True)
        assert first == header
        return lines

    held_out = [part(f"{n}.score") for n in range(5)]
    assert sorted(line for lines in held_out for line in lines) == sorted(rows)
    assert held_out[2] == [row for row in rows if row.startswith(("T2\t", "T7\t", "T12\t"))]
    assert all(sorted(part(f"{n}.train") + held_out[n]) == sorted(rows) for n in range(5))
    assert (part("dev.train"), part("dev.score")) == (rows, rows[:2])
    with pytest.raises(AntiphonError, match=r"no such fold, expected a name such as folds/0\.train\.tsv"):
        fold("folds/5.train.tsv", tmp_path, tmp_path / "folds")


def test_numbers_are_spelt() -> None:
    assert spell_number(7_000_777) == "seven million seven hundred seventy seven"
    assert spell_number(40) == "forty"
    assert spell_number(0) == "zero"
