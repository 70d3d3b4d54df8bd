"""Prediction in part files: any number of shards share the parts of a file.

The file is cut into parts of a fixed number of lines, and shard i of n predicts every nth of them, beginning with the
ith. Parts do not depend on the number of shards, which may differ each time a job is started again. Batches are formed
within windows that parts are made of, so a part is the same to the last digit whichever process computes it.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.prediction_job import Notes, OutputFormat, PredictionJob, Progress
from antiphon.exceptions import InputError
from antiphon.terminal import count_of, one_line, print_note

if TYPE_CHECKING:
    from antiphon.data.part_files import CutFile, PartFolder

PART_LINES = 4096
"""Lines of a part by default: a multiple of the window, small enough to be lost, and few files for many lines."""


@dataclass(frozen=True)
class Shard:
    """Shard ``index`` of ``count``, counted from 1."""

    index: int
    count: int

    def parts(self, all_parts: int) -> range:
        """The parts that this shard predicts."""
        return range(self.index - 1, all_parts, self.count)


def parse_shard(text: str) -> Shard:
    """The shard that ``i/n`` names; without a text, all of the file."""
    from antiphon.torch_free.files import is_count

    index, _, count = (text or "1/1").partition("/")
    if not (is_count(index) and is_count(count) and int(count)):
        raise InputError(f"--shard {one_line(text)}: expected I/N such as 2/8, the second of eight shards")
    if not 1 <= int(index) <= int(count):
        raise InputError(
            f"--shard {text}: expected 1/{count} to {count}/{count}, shards are counted from 1; in a job array of "
            f"Slurm, --array=1-{count}"
        )
    return Shard(int(index), int(count))


def predict_shard(
    job: PredictionJob, output_format: OutputFormat, file: Path, shard: str, out: Path | None, part_lines: int | None
) -> None:
    """Writes the parts of a shard that are not in the folder yet."""
    from antiphon.data.part_files import cut_file

    mine = parse_shard(shard)
    if out is None:
        option = "--shard" if part_lines is None else "--part-lines"
        raise InputError(f"{option}: no --out, expected a folder for the parts")
    _check(file, part_lines)
    cut = cut_file(file, part_lines or PART_LINES)
    folder = _start(job, output_format, cut, out)
    missing = {*folder.missing()}
    parts = mine.parts(folder.count)
    _write(job, output_format, cut, folder, [part for part in parts if part in missing])
    _report_progress(folder, len(parts), len(missing.intersection(parts)))


def _check(file: Path, part_lines: int | None) -> None:
    """Refuses an input that can be read only once, and parts whose batches would depend on the shard."""
    from antiphon.torch_free.files import is_pipe
    from antiphon.torch_free.prediction import LINES_AT_ONCE

    if file == Path("-") or is_pipe(file):
        raise InputError(f"{file}: standard input or a pipe, expected a file, which every shard can read")
    if part_lines is not None and part_lines > LINES_AT_ONCE and part_lines % LINES_AT_ONCE:
        raise InputError(f"--part-lines {part_lines}: expected at most {LINES_AT_ONCE}, or a multiple of it")


def _start(job: PredictionJob, output_format: OutputFormat, cut: "CutFile", out: Path) -> "PartFolder":
    """The folder of the parts; one with parts of another run, another file or other settings is refused."""
    from antiphon.data.part_files import PartFolder
    from antiphon.runs.copies import run_digest
    from antiphon.runs.run_folder import RunFolder
    from antiphon.storage.verified_files import digest_file

    options = {
        f"setting {name}": value for name, value in asdict(job.options).items() if name not in ("align", "prefix")
    }
    made_of = {
        "run": run_digest(RunFolder.open(job.run)),
        "input file": cut.sha256,
        "lexicon": None if job.lexicon is None else digest_file(job.lexicon).sha256,
        "setting format": "jsonl" if output_format.as_json else "text",
        "setting part-lines": cut.lines_per_part,
        **options,
        **({"--set": ", ".join(sorted(job.settings))} if job.settings else {}),
        "list of outputs": output_format.as_list,
    }
    suffix = "jsonl" if output_format.as_json else "txt"
    folder = PartFolder(
        out, len(cut.starts), cut.lines, cut.lines_per_part, suffix, output_format.one_line_each, made_of
    )
    folder.start()
    return folder


def _write(
    job: PredictionJob, output_format: OutputFormat, cut: "CutFile", folder: "PartFolder", parts: Sequence[int]
) -> None:
    """Predicts the lines of some parts and writes each part, with notes on standard error."""
    from antiphon.torch_free.prediction import LINES_AT_ONCE

    if not parts:
        return
    notes = Notes(job)
    progress = Progress(sum(len(cut.line_numbers(part)) for part in parts))
    window = min(cut.lines_per_part, LINES_AT_ONCE)
    with closing(job.predictions(cut.read(parts), str(cut.path), window)) as predictions:
        followed = iter(progress.follow(notes.follow(predictions)))
        for part in parts:
            with folder.writing(part) as file:
                for line, prediction in zip(cut.line_numbers(part), followed, strict=False):
                    output_format.write(line, prediction, file)
    notes.print_summary()


def _report_progress(folder: "PartFolder", parts: int, written: int) -> None:
    left = len(folder.missing())
    done = f"{folder.path}: {count_of(written, 'part')} written, {parts - written:,} there before"
    print_note(
        f"{done}; {left:,} of {folder.count:,} missing" if left else f"{done}; all there: antiphon join {folder.path}"
    )
