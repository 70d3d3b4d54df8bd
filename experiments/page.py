"""Writes docs/results.md, which has a table for each table of experiments, and nothing without a record.

``python -m experiments.page`` writes the page; a test keeps it equal to the records.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.records import RECORDS, Found, all_records, find_records, format_table, measured_rows
from experiments.table import FOLDER, Table, load_table

PAGE = Path(__file__).parents[1] / "docs/results.md"
_HEAD = """<!-- not run: the data do not come with the package; written by python -m experiments.page -->

# Results

Every figure on this page has a record in `experiments/records.jsonl`: the commands, the settings as resolved, the
seed, the digests of the data, the commit, the date and the machine. The command above a table measures what is
missing of it; `DIR` is a folder of public data sets, whose layout the table's file in `experiments/tables` names.
Accuracy is exact match after NFC. Values are means over the seeds; times are CPU seconds of one training with one
thread. A figure with `*` is of a recipe that has changed since. Published figures of others are as they print them.
Beside the thesis's tables stands what the thesis prints. Its numbering is that of the typeset thesis. What was tried
on the way, and did not stay, is under [What was tried](experiments.md); times and memory are under
[Speed and memory](speed.md).
"""


def write_page(records: Path = RECORDS) -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *_sections(all_records(records))])


def _sections(records: list[dict[str, object]]) -> Iterator[str]:
    tables = {path.stem: load_table(str(path)) for path in sorted(FOLDER.glob("*.toml"), key=_order)}
    all_found = {name: list(find_records(table, name, records)) for name, table in tables.items()}
    measured = [name for name, table in tables.items() if measured_rows(table, all_found[name])]
    missing = [f"* `{name}`: {table.title}" for name, table in tables.items() if name not in measured]
    for name, table in tables.items():
        if name in measured:
            found = all_found[name]
            yield f"## {table.title}\n"
            yield from ([table.text.strip() + "\n"] if table.text else [])
            yield f"`python -m experiments {name} --data DIR`\n"
            yield format_table(table, found) + "\n"
            yield _origin(table, found)
    if missing:
        yield "\n".join(["## Not measured yet\n", *missing, ""])


def _order(path: Path) -> tuple[bool, str]:
    """Tables of the thesis come first."""
    return not path.stem.startswith("thesis"), path.stem


def _origin(table: Table, found: Iterable[Found]) -> str:
    """With what the figures of a table were measured."""
    records = [each.record for each in found]
    metrics = [(name, records[0]["metrics"][name]["signature"]) for name in table.metric]
    signatures = ", ".join(f"{name} `{signature}`" for name, signature in metrics)
    machines, dates = (sorted({record[key] for record in records}) for key in ("machine", "date"))
    days = sorted({date.split()[0] for date in dates})
    return (
        f"{signatures}; {', '.join(days)}; {'; '.join(machines)}; {len({record['key'] for record in records})} runs.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
