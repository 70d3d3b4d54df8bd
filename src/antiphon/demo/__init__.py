"""The demo, and the real data that comes with the package.

The pairs are an extract of the CMU Pronouncing Dictionary (Carnegie Mellon University), the words a part of SCOWL
(Kevin Atkinson and others); the licences of both are beside this file.

``lessons`` trains on them and shows what was learnt; ``benchmarks/make_demo_data.py`` recreates them.
"""

from pathlib import Path

from antiphon.torch_free.readers import Pair, read_pairs

FOLDER = Path(__file__).parent


def pairs_of(part: str) -> list[Pair]:
    """Words and their phonemes: ``train``, ``dev`` or ``test``."""
    return list(read_pairs(FOLDER / f"cmudict.{part}.tsv.gz"))
