"""The campaign: crashes at every file operation, kills at random times, flipped bits; prints a table of counts.

python -m tests.campaign [--only TEXT] [--kills N] [--bits N] [--seed N]
"""

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.campaign.bit_flips import flip_bits
from tests.campaign.crashes import fill_disk_everywhere, kill_everywhere
from tests.campaign.random_kills import kill_at_random
from tests.campaign.scenarios import SCENARIOS, make_runs_of_every_kind, open_workshop


def main():
    """Runs the whole campaign; the exit status is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows of the table that begin with this")
    parser.add_argument("--kills", type=int, default=100, help="kills at random times")
    parser.add_argument("--bits", type=int, default=200, help="bits flipped in every file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="antiphon-campaign-", dir=fast_folder()))
    try:
        problems = run(open_workshop(root), options)
    finally:
        shutil.rmtree(root)
    print("\n".join(problems))
    sys.exit(bool(problems))


def run(shop, options):
    """Prints the table row by row, and gives all that went wrong."""
    problems = []
    print(f"{'what':<32}{'points':>8}{'survived':>10}{'seconds':>9}", flush=True)
    for title, counted, work in rows(shop, options):
        if title.startswith(options.only):
            problems += _row(title, counted, work)
    return problems


def rows(shop, options):
    """The title of every row, the name of what it counts, and what is to be done for it."""
    for name, scenario in SCENARIOS.items():
        yield f"{name}: kill -9", "injected", partial(kill_everywhere, shop, scenario)
        yield f"{name}: disk full", "injected", partial(fill_disk_everywhere, shop, scenario)
    yield "random kill -9", "kills", partial(kill_at_random, shop, options.kills, options.seed)
    if "bits of ".startswith(options.only[:8]):
        for folder in make_runs_of_every_kind(shop):
            yield f"bits of {folder.name}", "flipped", partial(flip_bits, folder, options.bits, options.seed)


def _row(title, counted, work):
    started = time.monotonic()
    found = work()
    number = getattr(found, counted)
    seconds = time.monotonic() - started
    print(f"{title:<32}{number:>8}{number - len(found.problems):>10}{seconds:>9.0f}", flush=True)
    return [f"{title}: {problem}" for problem in found.problems]


def fast_folder():
    """A folder in memory where there is one: a kill loses nothing that was written, wherever it was written."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
