"""Real data that comes with the package, and what the demo learns from it and shows.

The pairs are an extract of the CMU Pronouncing Dictionary (Carnegie Mellon University), the words a part of SCOWL
(Kevin Atkinson and others); the licences of both stand beside this file.
"""

from pathlib import Path

from antiphon.data.readers import Pair, read_pairs

FOLDER = Path(__file__).parent


def pairs_of(part: str) -> list[Pair]:
    """Words and their phonemes: ``train``, ``dev`` or ``test``."""
    return list(read_pairs(FOLDER / f"cmudict.{part}.tsv.gz"))
