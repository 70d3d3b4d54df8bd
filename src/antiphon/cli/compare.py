"""``antiphon compare``: evaluates runs side by side on the same file, or lets human judges compare two of them."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    Beam,
    Device,
    Qrels,
    Questions,
    References,
    TestSet,
    Threads,
    check_new,
    load_predicting_run,
    read_test_set,
    refuse_options,
)
from antiphon.exceptions import InputError, RunError
from antiphon.storage.files import write_atomically
from antiphon.terminal import count_of, one_line, print_note
from antiphon.torch_free.readers import Source, is_pipe

if TYPE_CHECKING:
    from antiphon.api.model import Model
    from antiphon.metrics.output_metrics import Outputs
    from antiphon.report.comparison import ComparedSystems, System


Format = Literal["table", "json"]
"""How the comparison is written."""
QuestionsOption = Annotated[
    str | None,
    typer.Option(
        "--questions",
        metavar="SET|N",
        help="Answer selection: which questions to rank, all, answerable or mixed. With --sheet: how many to ask (50).",
    ),
]
Sheet = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a rating sheet with outputs of two runs that differ to this new file."),
]
TallyOption = Annotated[bool, typer.Option("--tally", help="Read rating sheets back, one of each judge.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**63 - 1, help="Random seed of a rating sheet.")]
_QUESTIONS_OF_SHEET = 50


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN... FILE", help="Runs, then a file of pairs; or rating sheets.")
    ],
    format: Annotated[Format, typer.Option(help="For a terminal or a program.")] = "table",
    reference: References = None,
    beam: Beam = None,
    questions: QuestionsOption = None,
    qrels: Qrels = None,
    sheet: Sheet = None,
    tally: TallyOption = False,
    seed: Seed = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Evaluate runs side by side on the same pairs.

    Every metric comes with its signature, a 95 % confidence interval and the
    p-value of a paired bootstrap against the first run. The table also shows
    parameters, training time and outputs per second; "-" means unknown.

    With --sheet, human judges compare two runs. The sheet has outputs that differ, side
    by side in random order, without the names of their runs. A judge writes into the
    column better: A, B, good (both are) or bad (both are). --tally counts the choices of
    sheets that came back, the agreement of the judges, and a two-sided sign test.

    Examples:
      antiphon compare runs/one runs/other test.tsv
      antiphon compare runs/one runs/other test.tsv --format json
      antiphon compare runs/one runs/other test.tsv --sheet sheet.tsv
      antiphon compare --tally anna.tsv ben.tsv
    """
    if tally:
        others = {
            "--reference": reference,
            "--beam": beam,
            "--questions": questions,
            "--qrels": qrels,
            "--sheet": sheet,
        }
        refuse_beside("--tally", others)
        print_tally(paths, format)
        return
    *runs, file = paths
    if len(runs) < 2:
        raise InputError("compare: fewer than two runs, expected RUN RUN... FILE")
    if file == Path("-") or is_pipe(file):
        raise InputError(f"{file}: a pipe or a device, expected a regular file, since every run reads it")
    if sheet is not None:
        others = {"--reference": reference, "--qrels": qrels, "--format": format != "table"}
        refuse_beside("--sheet", others)
        write_sheet(runs, file, sheet, parse_number(questions), seed, beam, device, threads)
        return
    print_comparison(compare_runs(runs, file, reference, beam, parse_set(questions), qrels, device, threads), format)


def refuse_beside(option: str, others: Mapping[str, object]) -> None:
    """Refuses other options that an option does not work with."""
    for other, value in others.items():
        if value:
            raise InputError(f"{other}: does not work with {option}, expected a command without it")


def parse_set(given: str | None) -> Questions:
    """The set of questions that an option names; all if it is not given."""
    if given is not None and given not in get_args(Questions):
        names = ", ".join(get_args(Questions))
        raise InputError(f"--questions {one_line(given)}: no set of questions, expected {names}")
    return cast(Questions, given or "all")


def parse_number(given: str | None) -> int:
    """The number of questions of a sheet."""
    if given is None:
        return _QUESTIONS_OF_SHEET
    if not given.isdecimal() or len(given) > 9 or not int(given):
        raise InputError(f"--questions {one_line(given)}: not a number of questions, expected 1 or more with --sheet")
    return int(given)


def compare_runs(
    runs: list[Path],
    file: Path,
    reference: list[Path] | None,
    beam: int | None,
    which: Questions,
    qrels: Path | None,
    device: str,
    threads: int | None,
) -> "ComparedSystems":
    """Runs of one kind compared on the same file, by their outputs or by their rankings."""
    from antiphon.recipe.kinds import KINDS
    from antiphon.runs.run_folder import RunFolder

    kind = KINDS[RunFolder.open(runs[0]).recipe().model.kind]
    if kind.ranks:
        refuse_options(kind.name, {"--reference": reference, "--beam": beam})
        return answer_selection.compare_rankings(runs, file, which, qrels, device, threads)
    refuse_options(kind.name, {"--questions": which != "all", "--qrels": qrels})
    return compare_outputs(runs, file, reference or [], beam, device, threads)


def print_comparison(compared: "ComparedSystems", format: Format) -> None:
    """Prints all systems with all metrics."""
    from antiphon.console import PlainConsole
    from antiphon.report.comparison import as_json, as_table, notes

    if format == "json":
        print(json.dumps(as_json(compared), ensure_ascii=False))
    else:
        console = PlainConsole()
        console.print(as_table(compared))
        console.print("\n".join(notes(compared)), soft_wrap=True)


def write_sheet(
    runs: list[Path],
    file: Path,
    sheet: Path,
    questions: int,
    seed: int,
    beam: int | None,
    device: str,
    threads: int | None,
) -> None:
    """Writes a rating sheet on the outputs of two runs, in a new file."""
    from antiphon.report.rating_sheet import RatedPair, RatingSheet

    check_new(sheet)
    if len(runs) != 2:
        raise InputError(f"--sheet: {len(runs)} runs, expected two")
    models = [load_predicting_run(run, device, threads) for run in runs]
    first, second = (read_test_set(model.recipe, [file]).pairs for model in models)
    if first != second:
        raise _differently_read(runs[1], runs[0], file)
    sources = [Source(pair.source, pair.features) for pair in first]
    outputs = [model.predict(sources, beam=beam, align=False, allow_unknown_features=True) for model in models]
    texts = zip(sources, *outputs, strict=True)
    pairs = [RatedPair(source.text, one.text, other.text) for source, one, other in texts if one.text != other.text]
    if not pairs:
        raise InputError(f"{file}: both runs have the same outputs, expected some that differ")
    drawn = RatingSheet.draw((str(runs[0]), str(runs[1])), pairs, questions, seed)
    write_atomically(sheet, drawn.text())
    differ = f"{len(pairs):,} of {count_of(len(first), 'output')} differ"
    print_note(f"{sheet}: {count_of(len(drawn.pairs), 'question')}, {differ}; judges fill the column better")


def print_tally(sheets: list[Path], format: Format) -> None:
    """Prints what judges chose in their rating sheets."""
    from antiphon.console import PlainConsole
    from antiphon.report.rating_sheet import JudgedSheet, Tally
    from antiphon.report.tables import Section, print_sections

    for path, times in Counter(sheet.resolve() for sheet in sheets).items():
        if times > 1:
            raise InputError(f"{path}: given {times} times, expected each sheet once")
    tally = Tally.of(list(map(JudgedSheet.read, sheets)))
    header, *rows = tally.rows()
    section, title = Section("preferences", header, rows), f"{count_of(len(tally.questions), 'question')} judged"
    if format == "json":
        print(json.dumps(tally.to_dict(), ensure_ascii=False))
    else:
        console = PlainConsole()
        console.print("\n".join([title, *tally.notes()]), soft_wrap=True)
        print_sections(console, [section])


def _differently_read(run: Path, first: Path, file: Path) -> RunError:
    return RunError(
        f"{run}: reads {file} differently from {first} (columns, features or direction), expected runs that read it "
        "the same way"
    )


def compare_outputs(
    runs: list[Path], file: Path, references: list[Path], beam: int | None, device: str, threads: int | None
) -> "ComparedSystems":
    """Compares the outputs of runs on the same pairs."""
    from antiphon.report.comparison import compare
    from antiphon.runs.build import task_metrics

    first = load_predicting_run(runs[0], device, threads)
    test = read_test_set(first.recipe, [file], references)
    results = [predict_all(runs[0], first, test, beam, first)]
    for run in runs[1:]:
        other = load_predicting_run(run, device, threads)
        if read_test_set(other.recipe, [file], references).pairs != test.pairs:
            raise _differently_read(run, runs[0], file)
        check_same_tokens((run, other), (runs[0], first), test)
        results.append(predict_all(run, other, test, beam, first))
    systems, outputs = zip(*results, strict=True)
    return compare(systems, outputs, task_metrics(first.recipe.data))


def check_same_tokens(other: "tuple[Path, Model]", first: "tuple[Path, Model]", test: TestSet) -> None:
    """Refuses to compare two runs, each with its model, whose metrics count different tokens; notes their vocabularies.

    Vocabularies may differ: metrics are of text. Only perplexity depends on which tokens are known.
    """
    (run, theirs), (first_run, ours) = ((run, model.codec.target) for run, model in (other, first))
    for pair in test.pairs:
        if theirs.tokens(pair.target) != ours.tokens(pair.target):
            raise RunError(
                f"{run}: reads the target {one_line(pair.target)} as other tokens than {first_run}, expected runs with "
                "the same target tokens and normalisation"
            )
    if theirs.vocab != ours.vocab:
        print_note(f"{run}: its target vocabulary differs from that of {first_run}, so its perplexity is left out")


def predict_all(run: Path, model: "Model", test: TestSet, beam: int | None, first: "Model") -> "tuple[System, Outputs]":
    """The outputs of a run, with their speed, and the perplexity of the references if it has the vocabulary of another.

    Perplexities with other vocabularies cannot be compared.
    """
    from antiphon.metrics.output_metrics import perplexity
    from antiphon.report.comparison import System
    from antiphon.runs.run_folder import RunFolder

    given = [(Source(pair.source, pair.features), pair.target) for pair in test.pairs]
    can_score = model.can_score and model.codec.target.vocab == first.codec.target.vocab
    started = time.perf_counter()
    outputs = model.outputs(given, beam=beam, more_references=test.more_references)
    per_second = len(given) / (time.perf_counter() - started)
    value = perplexity(sum(model.score(given)), model.target_tokens(given)).value if can_score else None
    return System(str(run), model.kind, RunFolder.open(run).metrics(), per_second, value), outputs
