"""Tables in Markdown, and docs/results.md, which has one for each table of experiments and nothing without a record.

``python -m experiments.page`` writes the page; a test keeps it equal to the records.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from antiphon.terminal import count_of
from experiments.item_scores import p_value, unpack
from experiments.records import RECORDS, Found, all_records, find_records
from experiments.table import FOLDER, Column, Row, Table, load_table

PAGE = Path(__file__).parents[1] / "docs/results.md"
_HEAD = """<!-- not run: the data do not come with the package; written by python -m experiments.page -->

# Results

Every figure on this page has a record in `experiments/records.jsonl`: the commands, the settings as resolved, the
seed, the digests of the data, the commit, the date and the machine. The command above a table measures what is
missing of it; `DIR` is a folder of public data sets, whose layout the table's file in `experiments/tables` names.
Accuracy is exact match after NFC. Values are means over the seeds; times are CPU seconds of one training with one
thread. A figure with `*` is of a recipe that has changed since. Published figures of others are as they print them;
*p* is that of a two-sided paired bootstrap against their published outputs. Beside the thesis's tables stands what the
thesis prints, numbered as in the typeset thesis. Its figures of alignments are under [Pictures](pictures.md), what was
tried and did not stay under [What was tried](experiments.md), times and memory under [Speed and memory](speed.md).
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
            yield from ([format_sets(table, found) + "\n"] if table.by_set else [])
            yield _origin(table, found)
    if missing:
        yield "\n".join(["## Not measured yet\n", *missing, ""])


def _order(path: Path) -> tuple[bool, str]:
    """Tables of the thesis come first."""
    return not path.stem.startswith("thesis"), path.stem


def _origin(table: Table, found: Iterable[Found]) -> str:
    """With what the figures of a table were measured."""
    records, names = [each.record for each in found], defaultdict(list)
    for name in table.metric:
        names[next(r["metrics"][name]["signature"] for r in records if name in r["metrics"])].append(name)
    signatures = ", ".join(
        f"`{signature}`" if len(names) == 1 else f"{' and '.join(of)} `{signature}`" for signature, of in names.items()
    )
    machines, dates = (sorted({record[key] for record in records}) for key in ("machine", "date"))
    days = sorted({date.split()[0] for date in dates})
    runs = count_of(len({record["key"] for record in records}), "run")
    return f"{signatures}; {', '.join(days)}; {'; '.join(machines)}; {runs}.\n"


def format_table(table: Table, found: Iterable[Found]) -> str:
    """The table in Markdown: means over seeds, their average over all sets, and the CPU seconds of a training.

    What the thesis prints stands beside the column, and p of a paired test against each published system at the end. A
    figure with ``*`` is of a recipe that has changed since.
    """
    by_row = measured_rows(table, found)
    columns = table.columns_of(table.row[0])
    head = [
        "system",
        *(head for column in columns for head in _heads(table, column)),
        *_average_head(table),
        *(f"p, {row.name}" for row in table.published_predictions),
        "seeds",
        "CPU s",
        "commit",
    ]
    lines = [_cells(table, table.find(name), by_row) for name in by_row]
    lines += [_published(table, system, figures) for system, figures in table.published.items()]
    return _markdown([head, *lines])


def format_sets(table: Table, found: Iterable[Found]) -> str:
    """The first metric of every set, a row each, with systems across: their means over seeds."""
    found, metric = list(found), table.metric[0]
    names = [row.name for row in table.row if any(each.job.row.name == row.name for each in found)]

    def cell(name: str, of_set: str) -> str:
        same = [each for each in found if (each.job.row.name, each.job.set) == (name, of_set)]
        return f"{_mean([table.shown(each.of(metric)) for each in same]):.1f}{_mark(same)}" if same else ""

    lines = [[of_set, *(cell(name, of_set) for name in names)] for of_set in table.all_sets]
    return _markdown([["set", *names], *(line for line in lines if any(line[1:]))])


def _markdown(lines: list[list[str]]) -> str:
    shown = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([shown[0], "|---" * len(lines[0]) + "|", *shown[1:]])


def measured_rows(table: Table, found: Iterable[Found]) -> dict[str, list[Found]]:
    """What was found of each row that is shown and has a figure."""
    by_row: dict[str, list[Found]] = {row.name: [] for row in table.row if not row.hidden}
    for each in found:
        if not each.job.row.hidden:
            by_row[each.job.row.name].append(each)
    return {
        name: of_row
        for name, of_row in by_row.items()
        if any(_column_mean(table, column, of_row) is not None for column in table.columns_of(table.find(name)))
    }


def _heads(table: Table, column: Column) -> list[str]:
    return [column.name, "thesis"] if table.has_thesis(column.name) else [column.name]


def _average_head(table: Table) -> list[str]:
    return ["average"] if table.has_average else []


def _mark(found: Iterable[Found]) -> str:
    return "" if all(each.is_current for each in found) else "*"


def _cells(table: Table, row: Row, by_row: Mapping[str, list[Found]]) -> list[str]:
    """The cells of a row; a column is empty until all its sets are measured."""
    found = by_row[row.name]
    cells, columns = [row.name], table.columns_of(row)
    means = [_column_mean(table, column, found) for column in columns]
    for column, mean in zip(columns, means, strict=True):
        mark = _mark(each for each in found if each.job.set in column.sets)
        cells.append("" if mean is None else f"{mean:.{table.digits}f}{mark}{_worst(table, column, found)}")
        cells += [f"{row.thesis[column.name]:g}" if column.name in row.thesis else ""] * table.has_thesis(column.name)
    known = [mean for mean in means if mean is not None]
    if table.has_average:
        cells.append(f"**{_mean(known):.2f}**{_mark(found)}" if len(known) == len(means) else "")
    cells += [_p_cell(found, by_row.get(other.name, [])) for other in table.published_predictions]
    seeds = len({each.job.seed for each in found})
    commits = sorted({each.record["commit"][:8] for each in found})
    return [*cells, str(seeds), f"{_mean([each.record['cpu_seconds'] for each in found]):.0f}", ", ".join(commits)]


def _p_cell(found: list[Found], published: list[Found]) -> str:
    """The p of the difference to a published system, by the first seed; empty until the sets of both are measured."""
    ours, theirs = (
        {each.job.set: unpack(each.record["right"]) for each in reversed(of_row)} for of_row in (found, published)
    )
    if found[0].job.row.predictions or not theirs or ours.keys() != theirs.keys():
        return ""
    return f"{p_value([ours[name] for name in theirs], list(theirs.values())):.3f}"


def _column_mean(table: Table, column: Column, found: list[Found]) -> float | None:
    """The mean over the sets of a column of the means over seeds; sets without items of a group are left out."""
    by_set = [[each for each in found if each.job.set == name] for name in column.sets]
    values = [[table.shown(each.of(column.metric)) for each in same if each.has(column.metric)] for same in by_set]
    return _mean([_mean(of_set) for of_set in values if of_set]) if by_set and all(by_set) and any(values) else None


def _worst(table: Table, column: Column, found: list[Found]) -> str:
    """The worst figure of any seed, if the table shows it."""
    if not table.worst_seed:
        return ""
    values = [table.shown(each.of(column.metric)) for each in found if each.job.set in column.sets]
    return f" ({max(values) if table.show == 'error' else min(values):.{table.digits}f})"


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _published(table: Table, system: str, figures: Mapping[str, float]) -> list[str]:
    cells = [system]
    for column in table.columns_of(table.row[0]):
        cells += [f"{figures[column.name]:g}" if column.name in figures else ""]
        cells += [""] * table.has_thesis(column.name)
    cells += [str(figures.get("average", ""))] * table.has_average
    return [*cells, *([""] * len(table.published_predictions)), "", "", ""]


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
