"""``antiphon predict`` and ``antiphon join``: the best outputs of every input, in one piece or in parts."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    MAX_HYPOTHESES,
    MAX_PARALLEL,
    Beam,
    Device,
    Format,
    Run,
    SearchSettings,
    Threads,
    refuse_options,
    refuse_run_file,
)
from antiphon.cli.prediction_job import Notes, OutputFormat, PredictionJob, Progress, count_lines, predict_shard
from antiphon.exceptions import InputError

Inputs = Annotated[
    Path, typer.Argument(metavar="[FILE]", help="One input per line; - is standard input.", show_default=False)
]
NBest = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Outputs per input; default: 1, with --cover 100."),
]
Cover = Annotated[
    float | None,
    typer.Option(
        metavar="P", help="The fewest outputs whose probabilities add up to this, such as 0.9; at most --nbest."
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Draw this many outputs per input at random instead."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Random seed of --sample.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Answer selection with attention: show the weight of every word.")
]
FormatOption = Annotated[Format, typer.Option(help="One output per line, or one JSON object per line.")]
LexiconFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Pairs as for training; their inputs get the outputs listed there.")
]
AllowUnknown = Annotated[
    bool,
    typer.Option("--allow-unknown-features", help="Read features that training never saw as unknown, not as an error."),
]
Processes = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=MAX_PARALLEL,
        help="Processes that share the work, each with one of the GPUs and one thread, or --threads.",
    ),
]
ShardOption = Annotated[
    str,
    typer.Option(
        metavar="I/N", help="Predict one of N shards, counted from 1; needs --out. Default: 1/1, all of the file."
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Write part files into this folder, for antiphon join.")
]
PartLines = Annotated[int | None, typer.Option(metavar="N", min=1, help="Lines of input of each part; default: 4096.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of part files.")]
JoinedFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write; default: standard output.")]
ReplaceFile = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one.")]


def predict(
    run: Run,
    file: Inputs = Path("-"),
    beam: Beam = None,
    settings: SearchSettings = None,
    nbest: NBest = None,
    cover: Cover = None,
    sample: Sample = None,
    seed: Seed = 1,
    explain: Explain = False,
    format: FormatOption = Format.text,
    lexicon: LexiconFile = None,
    allow_unknown_features: AllowUnknown = False,
    processes: Processes = 1,
    shard: ShardOption = "",
    out: Out = None,
    part_lines: PartLines = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write the best output for every line of input.

    Outputs come in the order of the inputs. Each line is a source, or for a run
    trained with features source<TAB>features. Files of pairs work too: their targets
    are skipped. An empty line gets an empty output. Symbols that training never saw
    are listed on standard error at the end.

    With --nbest, --cover or --sample, every output has its own line: the line number
    of its input, its probability and its text, separated by tabs.

    An input listed in --lexicon gets the outputs that are listed for it, in their
    order and without probabilities; in JSON lines, "from" is "lexicon" for them.

    With --out, outputs are written as part files into a folder, which antiphon join
    puts together. Existing parts are skipped, so a command that was killed loses at
    most the part being written. With --shard, several processes or machines share
    the parts: shard 2/8 is the second of eight.

    --set changes how outputs are searched; the run stays as it is.

    An answer selection run reads a file of questions and candidates and writes a
    TREC run, or one JSON object per question.

    Examples:
      antiphon predict runs/g2p words.txt > phonemes.txt
      echo knight | antiphon predict runs/g2p --nbest 3 --format jsonl
      antiphon predict runs/g2p words.txt --set search.length_bias=0.5
      antiphon predict runs/answers questions.tsv > answers.run
      antiphon predict runs/g2p words.txt --shard 2/8 --out parts
    """
    from antiphon.api import PredictOptions
    from antiphon.recipe.kinds import KINDS
    from antiphon.recipe.recipe_file import change_search
    from antiphon.runs.run_folder import RunFolder

    folder = RunFolder.open(run)  # kept, so that a packed run is unpacked once
    recipe = folder.recipe()
    kind = recipe.model.kind
    is_json, several = format is Format.jsonl, {"--nbest": nbest, "--cover": cover, "--sample": sample}
    in_parts: dict[str, object] = {"--shard": shard, "--out": out, "--part-lines": part_lines}
    if KINDS[kind].ranks:
        others = {
            "--beam": beam,
            "--set": settings,
            "--lexicon": lexicon,
            "--allow-unknown-features": allow_unknown_features,
        }
        refuse_options(kind, {**several, **others, "--processes": processes > 1, **in_parts})
        answer_selection.predict(run, file, as_json=is_json, explain=explain, device=device, threads=threads)
        return
    refuse_options(kind, {"--explain": explain})
    change_search(recipe, settings or ())  # wrong ones are refused before anything is written
    options = PredictOptions(
        beam=beam,
        nbest=nbest,
        cover=cover,
        sample=sample,
        seed=seed,
        align=is_json,
        allow_unknown_features=allow_unknown_features,
    )
    job = PredictionJob(run, lexicon, options, processes, device, threads, tuple(settings or ()))
    output_format = OutputFormat(as_json=is_json, as_list=any(value is not None for value in several.values()))
    if any(in_parts.values()):
        predict_shard(job, output_format, file, shard, out, part_lines)
    else:
        predict_file(job, output_format, file)


def predict_file(job: PredictionJob, output_format: OutputFormat, file: Path) -> None:
    """Prints the predictions for a file, then notes on unknown symbols and on the inputs found in the lexicon."""
    from antiphon.torch_free.readers import numbered_lines

    notes = Notes(job.lexicon, job.options.cover)
    with closing(job.predictions(*numbered_lines(file))) as predictions:
        for line, prediction in enumerate(Progress(count_lines(file)).follow(notes.follow(predictions)), 1):
            output_format.write(line, prediction)
    notes.print_summary()


def join(folder: Folder, out: JoinedFile = None, force: ReplaceFile = False) -> None:
    """Put part files together, in the order of the inputs.

    The folder is one that antiphon predict --out has filled, in one go or by several
    shards. A folder in which parts are missing is refused, with their names: start
    every shard again, and only these are predicted.

    Examples:
      antiphon join parts > phonemes.txt
      antiphon join parts --out phonemes.txt
    """
    from antiphon.data.part_files import PartFolder
    from antiphon.storage.atomic import atomic_replacement

    parts = PartFolder.open(folder)
    parts.refuse_missing()
    if out is None:
        sys.stdout.writelines(parts.chunks())
        return
    check_output(out, folder, force=force)
    with atomic_replacement(out) as new, new.open("w", encoding="utf-8", newline="") as file:
        file.writelines(parts.chunks())


def check_output(out: Path, folder: Path, *, force: bool) -> None:
    """Refuses a file among the parts, an existing file without ``force``, and what is not a regular file."""
    if folder.resolve() in out.resolve().parents:
        raise InputError(f"{out}: in the folder of the parts, expected a file outside of it")
    if out.is_dir() or not out.parent.is_dir():
        raise InputError(f"{out}: a folder, or in one that does not exist, expected the name of a new file")
    refuse_run_file(out)
    if (out.exists() or out.is_symlink()) and not force:
        raise InputError(f"{out}: exists already, expected a new file; --force replaces it")
