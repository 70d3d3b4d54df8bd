"""The campaign: crashes at every file operation, kills at random times, flipped bits; ends with tables of counts.

python -m tests.campaign [--only TEXT] [--kills N] [--bits N] [--every N] [--seed N]
"""

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.campaign import Findings
from tests.campaign.bit_flips import flip_bits
from tests.campaign.crashes import fill_disk_everywhere, kill_everywhere
from tests.campaign.random_kills import kill_at_random
from tests.campaign.scenarios import SCENARIOS, make_runs_of_every_kind, open_workshop

KILL, DISK_FULL = "kill -9 before an operation", "disk full from an operation on"
RANDOM_KILL, BITS = "kill -9 of `train` at random times, resumed to bit-identical weights", "bits flipped in every file"


def main():
    """Runs the whole campaign; the exit status is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="commands and runs whose name begins with this")
    parser.add_argument("--kills", type=int, default=100, help="kills at random times")
    parser.add_argument("--bits", type=int, default=200, help="bits flipped in every file")
    parser.add_argument("--every", type=int, default=1, help="crash at every Nth operation only")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root, started = Path(tempfile.mkdtemp(prefix="antiphon-campaign-", dir=fast_folder())), time.monotonic()
    try:
        found = run(open_workshop(root), options)
    finally:
        shutil.rmtree(root)
    command, minutes = shlex.join(["python", "-m", "tests.campaign", *sys.argv[1:]]), (time.monotonic() - started) / 60
    print(f"\n`{command}`, {time.strftime('%-d %B %Y')}, {minutes:.0f} min:\n")
    print(tables(found))
    sys.exit(any(each.problems for each in found.values()))


def run(shop, options):
    """What was found by name and fault; each is printed as it is found."""
    found = {}
    for name, fault, inject in faults(shop, options):
        if name.startswith(options.only):
            started = time.monotonic()
            each = found[name, fault] = inject()
            seconds = time.monotonic() - started
            print(f"{name}, {fault}: {each.survived} of {each.injected}, {seconds:.0f} s", flush=True)
            print("".join(f"  {problem}\n" for problem in each.problems), end="", flush=True)
    return found


def faults(shop, options):
    """The name of every command or run, the fault, and what injects it."""
    for name, scenario in SCENARIOS.items():
        yield name, KILL, partial(kill_everywhere, shop, scenario, options.every)
        yield name, DISK_FULL, partial(fill_disk_everywhere, shop, scenario, options.every)
    yield "random kills", RANDOM_KILL, partial(kill_at_random, shop, options.kills, options.seed)
    if "bits of ".startswith(options.only[:8]):
        for folder in make_runs_of_every_kind(shop):
            yield f"bits of {folder.name}", BITS, partial(flip_bits, folder, options.bits, options.seed)


def tables(found):
    """The counts as tables of docs/reliability.md."""
    names = [name for name in SCENARIOS if (name, KILL) in found]
    lines = [f"| command | {KILL}: injected / survived | {DISK_FULL}: injected / survived |", "|---|---:|---:|"]
    for title, part in [*((f"`{name}`", [name]) for name in names), ("all", names)]:
        both = (sum((found[name, fault] for name in part), Findings()) for fault in (KILL, DISK_FULL))
        lines.append(f"| {title} | " + " | ".join(f"{each.injected:,} / {each.survived:,}" for each in both) + " |")
    lines = [*lines, ""] if names else []
    others = {fault: [each for (_, kind), each in found.items() if kind == fault] for fault in (RANDOM_KILL, BITS)}
    if any(others.values()):
        lines += ["| other | injected | survived or noticed |", "|---|---:|---:|"]
    for fault, parts in others.items():
        total = sum(parts, Findings())
        of_runs = f" of {len(parts)} runs (every kind, and one in training)" * (fault == BITS)
        lines += [f"| {fault}{of_runs} | {total.injected:,} | {total.survived:,} |"] * bool(parts)
    return "\n".join(lines)


def fast_folder():
    """A folder in memory where there is one: a kill loses nothing that was written, wherever it was written."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
