"""Pages of the documentation as programs: their commands are run, and what they show is compared with what comes out.

A block ``sh`` holds commands, a block ``console`` commands after ``$`` with their output, a block ``python`` code whose
comments show values. ``<!-- not run: WHY -->`` before a block, or on top of a page for all of it, keeps it from being
run; ``<!-- small in tests -->`` on top of a page makes its trainings small, so that only tables keep their shape.

``python -m tests.pages PAGE...`` runs pages in full, in one folder, and writes real output into their console blocks.
"""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = (
    "model.hidden_size=8",
    "model.layers=1",
    "train.max_epochs=1",
    "train.passes=1",
    "train.batch_size=64",
    "search.beam=2",
)
TOY = "antiphon train toy --out runs/toy"
"""The command whose run the fixture ``toy_run`` is."""

_FENCE = re.compile(r"^(?:<!-- not run: (?P<why>.+?) -->\n+)?```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"-?\d[\d.,:]*(e-\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``why`` says why it is not run."""

    language: str
    body: str
    why: str | None


@dataclass(frozen=True)
class Page:
    """A page with its blocks."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def small(self) -> bool:
        return "<!-- small in tests -->" in self.text

    @property
    def blocks(self) -> list[Block]:
        return [Block(found["language"], found["body"], found["why"]) for found in _FENCE.finditer(self.text)]

    @property
    def run_blocks(self) -> list[Block]:
        """The blocks that tests run."""
        whole = re.match(r"<!-- not run: .+? -->", self.text)
        return [
            each for each in self.blocks if each.language in ("sh", "console", "python") and not each.why and not whole
        ]


@dataclass(frozen=True)
class Output:
    """What a command wrote: standard output, or standard error if that is all."""

    status: int
    out: str
    err: str

    @property
    def shown(self) -> str:
        return self.out or self.err


Antiphon = Callable[..., Output]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Every command of a block with the output that is shown."""
    body = block.body.replace("\\\n", "\\\0")
    if block.language == "sh":
        yield from ((line.replace("\\\0", "\n"), "") for line in body.splitlines() if line.strip() and line[0] != "#")
        return
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        line, _, shown = part.partition("\n")
        yield line.replace("\\\0", "\n"), shown


def run_command(line: str, folder: Path, antiphon: Antiphon, settings: tuple[str, ...] = ()) -> Output:
    """Runs a pipe, antiphon through ``antiphon`` and all else through bash; trainings get further settings."""
    output = Output(0, "", "")
    for part in line.split(" | "):
        words = shlex.split(part, comments=True)
        output = (_run_antiphon if words[0] == "antiphon" else _run_bash)(
            part, words, output.out, folder, antiphon, settings
        )
        assert output.status == 0, (part, output.err)
    return output


def _run_bash(part: str, words: list[str], stdin: str, folder: Path, *_: object) -> Output:
    done = subprocess.run(["bash", "-c", part], input=stdin, capture_output=True, text=True, check=False, cwd=folder)
    return Output(done.returncode, done.stdout, done.stderr)


def _run_antiphon(
    part: str, words: list[str], stdin: str, folder: Path, antiphon: Antiphon, settings: tuple[str, ...]
) -> Output:
    arguments, target = (words[1:-2], words[-1]) if ">" in words else (words[1:], None)
    more = settings if arguments[0] in ("train", "grid") else ()
    output = antiphon(*arguments, *(word for each in more for word in ("--set", each)), stdin=stdin.encode())
    if target:
        (folder / target).write_text(output.out, encoding="utf-8")
        return Output(output.status, "", output.err)
    return Output(output.status, output.out, output.err)


def run_page(page: Page, folder: Path, antiphon: Antiphon) -> int:
    """Runs all of a page in a folder; how many commands and values were compared with what is shown."""
    names: dict[str, object] = {}
    compared = 0
    for block in page.run_blocks:
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                compared += run_python(block.body, names)
            continue
        for line, shown in commands(block):
            if line == TOY:
                assert (folder / "runs/toy/manifest.json").exists()
                continue
            output = run_command(line, folder, antiphon, SMALL if page.small else ())
            if shown:
                compared += 1
                assert agrees(shown, output.shown, page.small), (page.path.name, line, shown, output.shown)
    return compared


def agrees(shown: str, found: str, small: bool = False) -> bool:
    """Whether what is shown looks like what came out: numbers may differ, and a quarter of the lines.

    After a small training only the rows of tables are compared, and half of them.
    """
    wanted, have = _masked(shown, small), set(_masked(found, small))
    return sum(line in have for line in wanted) >= len(wanted) * (0.5 if small else 0.75)


def _masked(text: str, tables_alone: bool) -> list[str]:
    """The lines of a text with their numbers masked."""
    lines = [re.sub(r"[\s─━]+", " ", _NUMBER.sub("#", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line not in ("", "...") and (not tables_alone or line[0] in "│┃")]


def run_python(block: str, names: dict[str, object]) -> int:
    """Runs a block; how many of its values were compared with the comments beside them."""
    checked = 0
    for statement in ast.parse(block).body:
        comment = block.splitlines()[(statement.end_lineno or 1) - 1].partition("  # ")[2]
        code, wanted = ast.get_source_segment(block, statement) or "", _literal(comment)
        if isinstance(statement, ast.Expr) and wanted is not None:
            assert eval(code, names) == wanted, code
            checked += 1
        else:
            exec(code, names)
    return checked


def _literal(comment: str) -> object:
    """The Python value that a comment shows, alone or before a colon; None if it shows none."""
    for text in (comment, comment.partition(": ")[0]):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.literal_eval(text)
    return None


def prepare(folder: Path) -> Path:
    """The folder, with ``docs`` and ``src`` as in a checkout."""
    for name in ("docs", "src"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def rewrite(page: Page, folder: Path) -> None:
    """Runs a page in full and puts real output into its console blocks."""

    def antiphon(*arguments: str, stdin: bytes = b"") -> Output:
        command = [sys.executable, "-m", "antiphon", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=folder)
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode())

    text = page.text
    for block in page.run_blocks:
        body = ""
        for line, _ in commands(block) if block.language != "python" else ():
            print(f"$ {line}", flush=True)
            if line == TOY and (folder / "runs/toy").exists():
                continue
            typed = line.replace("\n", "\\\n")
            body += f"$ {typed}\n{_shortened(run_command(line, folder, antiphon).shown)}"
        if block.language == "console":
            text = text.replace(f"```console\n{block.body}```", f"```console\n{body}```")
    page.path.write_text(text, encoding="utf-8")


def _shortened(output: str) -> str:
    """The output without most of the epochs and without the long line that says how to go on."""
    lines = [line.rstrip() for line in output.splitlines() if not line.startswith("still improving")]
    epochs = [index for index, line in enumerate(lines) if line.startswith("epoch ")]
    if len(epochs) > 4:
        lines[epochs[2] : epochs[-1]] = ["..."]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for name in prepare(Path(temporary)) and sys.argv[1:]:
            rewrite(Page(Path(name)), Path(temporary))
