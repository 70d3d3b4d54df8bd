"""``antiphon``, and ``python -m antiphon``."""

import sys

from antiphon.child_processes import end_silently_on_ctrl_c, follow_parent
from antiphon.exceptions import InstallError, check_installed, lacks_memory


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
    try:
        from antiphon.cli import main as run
    except ImportError as error:
        if not lacks_memory(error):
            raise
        print("antiphon: out of memory, expected more, or a higher ulimit -v", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    follow_parent()  # before anything large is imported: a parent may die meanwhile
    main()
