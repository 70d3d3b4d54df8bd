"""Bits flipped in every file of a run, one at a time: each has to be noticed when the run is opened."""

import random

from antiphon.exceptions import AntiphonError
from antiphon.runs.run_folder import RunFolder
from tests.campaign import Findings


def flip_bits(run, per_file, seed=0):
    """Flips bits of every file of a run, the first and the last among them, and looks whether the file is named."""
    draw, found = random.Random(seed), Findings()
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        content = path.read_bytes()
        bits = {0, 8 * len(content) - 1, *(draw.randrange(8 * len(content)) for _ in range(per_file - 2))}
        for bit in sorted(bits) if content else ():
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            found.injected += 1
            if path.name not in _complaint(run):
                found.problems.append(f"{path.relative_to(run)}: bit {bit}: {_complaint(run) or 'unnoticed'}")
        path.write_bytes(content)
    return found


def _complaint(run):
    """What is said of a run when training would go on with it; nothing if all is well."""
    try:
        RunFolder.open(run, checkpoint=True)
        return ""
    except AntiphonError as error:
        return str(error)
