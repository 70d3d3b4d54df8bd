"""Measures a table: ``python -m experiments TABLE --data DIR [--jobs 2]``.

Trains what is missing (a stopped training is resumed), scores it, appends a record of each run to
``experiments/records.jsonl``, and prints the table. What has a record is not measured again.
"""

import argparse
import sys
from pathlib import Path

from antiphon.exceptions import AntiphonError
from experiments.page import format_sets, format_table
from experiments.records import (
    RECORDS,
    Found,
    Record,
    all_records,
    append_record,
    read_records,
    record_for,
)
from experiments.runner import Runner
from experiments.table import Job, load_table


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m experiments", description=__doc__)
    parser.add_argument("table", help="name of a table in experiments/tables, or a TOML file")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="folder of the trained runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs that are trained at once, with one thread each")
    parser.add_argument("--rows", default="", help="only rows whose name contains this text, and their parts")
    parser.add_argument("--sets", default="", help="only sets whose name contains this text")
    parser.add_argument("--records", type=Path, default=RECORDS, help="file of the records")
    parser.add_argument("--show", action="store_true", help="only print what there are records of")
    given = parser.parse_args()
    try:
        measure(given)
    except AntiphonError as error:
        sys.exit(f"experiments: {error}")


def measure(given: argparse.Namespace) -> None:
    """Runs what is missing of a table, and prints it."""
    table = load_table(given.table)
    given.runs.mkdir(parents=True, exist_ok=True)
    runner = Runner(given.data.resolve(), given.runs.resolve())
    keys = [(job, job.key(runner.digests(job))) for job in table.jobs()]
    records = read_records(given.records)
    # Sets may share a run, such as the language model of all sizes: jobs with one key are one run.
    rows = {row.name for row in table.row if given.rows in row.name}
    rows |= {part for name in rows for part in (table.find(name).combine or {}).values()}
    wanted = [(job, key) for job, key in keys if job.row.name in rows and given.sets in job.set]
    missing = {key: job for job, key in wanted if key not in records}
    if not given.show:
        print(f"{len(missing)} of {len({key for _, key in keys})} runs to do", file=sys.stderr)
        for done, (job, record) in enumerate(runner.run_all(list(missing.values()), given.jobs), 1):
            append_record({"table": Path(given.table).name.removesuffix(".toml"), **record}, given.records)
            records[record["key"]] = record
            name = f"{job.row.name} / {job.set} / seed {job.seed}"
            print(f"{done}/{len(missing)} {name}: {_shown(record, table.metric[0])}", file=sys.stderr)
        append_shared(Path(given.table).name.removesuffix(".toml"), wanted, given.records)
    print(f"{table.title}\n")
    found = [Found(job, records[key]) for job, key in keys if key in records]
    print(format_table(table, found))
    if table.by_set:
        print(f"\n{format_sets(table, found)}")


def append_shared(name: str, wanted: list[tuple[Job, str]], path: Path) -> None:
    """Records the runs that were measured for another set or table, with files of the same contents."""
    by_key, known = read_records(path), {_measured(record) for record in all_records(path)}
    for job, key in wanted:
        if key in by_key and _measured(record := record_for(job, name, by_key[key])) not in known:
            append_record(record, path)


def _measured(record: Record) -> tuple[str, ...]:
    """The run of a record, and its files as the table names them."""
    return record["key"], record["set"], *(file["name"] for file in record["files"].values())


def _shown(record: Record, metric: str) -> str:
    """The score of a run, which a language model does not have, and its time."""
    score = record["metrics"].get(metric)
    value = "" if score is None else f"{score['value']:.2f}, "
    return f"{value}{record['cpu_seconds']:.0f} s"


if __name__ == "__main__":
    main()
