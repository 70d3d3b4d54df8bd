"""A campaign: cases until time or number is up, then a table of outcomes; exit status 1 if any case ended badly."""

import argparse
import faulthandler
import os
import resource
import shlex
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")
ADDRESS_SPACE = 8 * 2**30
"""Bytes this process may reserve: what asks for more fails here, and not on the whole machine."""


def main() -> int:
    """The exit status of a campaign."""
    options = parse()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    with tempfile.TemporaryDirectory(prefix="antiphon-fuzz-") as folder:
        template = Path(folder) / "template"
        template.mkdir()
        prepare(template)
        outcomes, bad = campaign(options, template, Path(folder) / "scratch")
        os.chdir("/")
    command = shlex.join(["python", "-m", "tests.fuzz", *sys.argv[1:]])
    print(f"`{command}`, {time.strftime('%-d %B %Y')}: {sum(outcomes.values()):,} cases, {bad} ended badly\n")
    print(table_of(outcomes))
    return 1 if bad else 0


def parse() -> argparse.Namespace:
    """The options of a campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--cases", type=int, default=sys.maxsize)
    parser.add_argument("--area", default=None)
    parser.add_argument("--case", type=int, default=None, help="run this case alone, and show what it said")
    return parser.parse_args()


def prepare(template: Path) -> None:
    """Makes the sandbox, and keeps cases from waiting, drawing, or starting other processes."""
    import antiphon.cli.fill
    import antiphon.settings_search.search
    import antiphon.torch_free.readers
    import antiphon.training.fit
    from antiphon.exceptions import RunError
    from tests.fuzz import sandbox
    from tests.fuzz.judge import heed_timers

    def no_grid(*_: object) -> None:
        raise RunError("grid: not trained while fuzzing")

    def no_model(*_: object) -> None:
        raise RunError("fill: not trained while fuzzing")

    heed_timers()
    os.fsync = lambda _: None
    antiphon.training.fit.plot_training = lambda *arguments: arguments[-1].write_bytes(b"")
    os.chdir(template)
    sandbox.build(template)
    antiphon.torch_free.readers.WRITER_SECONDS = 0.05
    antiphon.settings_search.search.SettingsSearch.joined = no_grid
    antiphon.cli.fill.trained = no_model


def campaign(options: argparse.Namespace, template: Path, folder: Path) -> tuple[Counter[tuple[str, str]], int]:
    """How many cases of every area ended how, and how many badly, each of which is told at once."""
    from tests.fuzz.cases import Scratch, draw_case
    from tests.fuzz.judge import judge

    outcomes: Counter[tuple[str, str]] = Counter()
    bad, deadline = 0, time.monotonic() + options.seconds
    numbers = range(options.cases) if options.case is None else [options.case]
    for number in numbers:
        if time.monotonic() > deadline:
            break
        scratch = Scratch(template, folder, Random(f"{options.seed}-{number}"))
        case = draw_case(scratch, options.area)
        Path(folder.parent, "current").write_text(f"{number} {case}", encoding="utf-8", errors="backslashreplace")
        verdict = judge(case, [template, folder])
        outcomes[case.area, "badly" if verdict.faults else str(verdict.status)] += 1
        slow = f", {verdict.seconds:.0f} s" if verdict.seconds > 10 else ""
        if verdict.faults or slow or options.case is not None:
            bad += bool(verdict.faults)
            told = f"--seed {options.seed} --case {number}: {case}\n  {'; '.join(verdict.faults)}{slow}\n"
            print(ascii_only(told + indent(verdict.said)), flush=True)
    return outcomes, bad


def table_of(outcomes: "Counter[tuple[str, str]]") -> str:
    """Areas down, exit statuses across, as the table of docs/reliability.md."""
    from tests.fuzz.cases import AREAS

    statuses = sorted({status for _, status in outcomes} | {"0", "2", "badly"})
    lines = ["| | " + " | ".join(statuses) + " |", "|---" * (len(statuses) + 1) + "|"]
    for area in (each for each in AREAS if any((each, status) in outcomes for status in statuses)):
        lines.append(f"| {area} | " + " | ".join(f"{outcomes[area, status]:,}" for status in statuses) + " |")
    return "\n".join(lines)


def indent(text: str) -> str:
    """The last lines of a message, set off."""
    return "".join(f"    {line}\n" for line in text.splitlines()[-25:])


def ascii_only(text: str) -> str:
    """Text that changes no terminal."""
    return text.encode("ascii", "backslashreplace").decode().replace("\x1b", "\\x1b")


if __name__ == "__main__":
    sys.exit(main())
