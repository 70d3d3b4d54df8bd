"""Errors that a user can fix.

    AntiphonError
    ├── InputError      a file or line is not what it should be
    ├── RecipeError     a recipe has unknown keys or impossible values
    ├── RunError        a run folder is missing, damaged, of the wrong kind, or in the way
    └── InstallError    a package is not installed

Each message is one sentence: where, what was found, what was expected. The command line prints it and exits with status
2.
"""

import errno
from importlib.util import find_spec


class AntiphonError(Exception):
    """Base class of errors that a user can fix."""


class InputError(AntiphonError):
    """A file or line is not what it should be."""


class RecipeError(AntiphonError):
    """A recipe has unknown keys or impossible values."""


class RunError(AntiphonError):
    """A run folder is missing, damaged, of the wrong kind, or in the way."""


class InstallError(AntiphonError):
    """A package is not installed."""


def check_installed(package: str, extra: str, purpose: str) -> None:
    """Raises ``InstallError`` if a package is missing, with the extra that installs it; the package is not imported."""
    if find_spec(package) is None:
        raise InstallError(f"{purpose} needs {package}, expected it installed: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs an extra; the package is not on PyPI yet."""
    return f"pip install -e '.[{extra}]' in a checkout of Antiphon"


def lacks_memory(error: ImportError) -> bool:
    """Whether a library could not be mapped into memory."""
    return any(text in str(error).lower() for text in ("failed to map segment", "cannot allocate memory"))


def is_disk_full(error: OSError) -> bool:
    """Whether the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
