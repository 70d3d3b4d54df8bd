"""Run folders whose list of files and digests is made anew, so that what reads the files is reached."""

from pathlib import Path


def reseal(run: Path) -> None:
    """Nothing to do while runs have no digests."""
