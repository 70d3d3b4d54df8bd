"""``antiphon``, and ``python -m antiphon``."""

import os
import resource
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec

from antiphon.exceptions import InstallError, check_installed, end_silently_on_ctrl_c, lacks_memory

_SPARE_BYTES = 2**26
"""Memory that a process needs beyond its libraries."""


class MemoryCheck:
    """Finds no module, but refuses libraries for which there is too little memory: their C++ code would abort."""

    def __init__(self, *libraries: str) -> None:
        self._left = set(libraries)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Loads a library in a child process first."""
        if name in self._left:
            self._left.remove(name)  # in the child too
            if not loads_in_child(name):
                raise ImportError(f"{name}: cannot allocate memory")
        return None


def loads_in_child(module: str) -> bool:
    """Whether a copy of this process can import a module and still allocate memory; it may abort, silently."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with suppress(BaseException):
            spare = bytearray(_SPARE_BYTES)
            import_module(module)
            os._exit(len(spare) != _SPARE_BYTES)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    """Runs a verb; without PyTorch or memory to import commands, says so and exits with status 2."""
    end_silently_on_ctrl_c()
    if sys.argv[1:2] == ["pronounce"]:
        from antiphon.pronunciation.command import main as pronounce

        sys.exit(pronounce(sys.argv[2:]))
    try:
        check_installed("torch", "torch", "the command antiphon")
    except InstallError as error:
        print(
            f"antiphon: {error}; antiphon pronounce works without it, and exported models need only antiphon.lite",
            file=sys.stderr,
        )
        sys.exit(2)
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        sys.meta_path.insert(0, MemoryCheck("torch"))
    try:
        from antiphon.cli import main as run
    except ImportError as error:
        if not lacks_memory(error):
            raise
        print("antiphon: out of memory, expected more, or a higher ulimit -v", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
