"""Errors that a user can fix.

    AntiphonError
    ├── InputError      a file or line is not what it should be
    ├── RecipeError     a recipe has unknown keys or impossible values
    └── RunError        a run folder is missing, damaged, of the wrong kind, or in the way

Each message is one sentence: where, what was found, what was expected. The command line prints it and exits with status
2.
"""

import errno


class AntiphonError(Exception):
    """Base class of errors that a user can fix."""


class InputError(AntiphonError):
    """A file or line is not what it should be."""


class RecipeError(AntiphonError):
    """A recipe has unknown keys or impossible values."""


class RunError(AntiphonError):
    """A run folder is missing, damaged, of the wrong kind, or in the way."""


def is_disk_full(error: OSError) -> bool:
    """Whether the disk is full."""
    return error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
