"""Asks a service whether it is ready, for a container's health check: ``python -m antiphon.serve.health_check [URL]``.

This needs no token.
"""

import sys
from urllib.error import URLError
from urllib.request import urlopen

DEFAULT = "http://127.0.0.1:8000"
_SECONDS = 4


def check(url: str) -> str:
    """Why the service is not ready; empty if it is."""
    try:
        with urlopen(f"{url.rstrip('/')}/ready", timeout=_SECONDS):
            return ""
    except (URLError, OSError) as error:
        return str(error)


def main() -> int:
    """The exit status: 0 if the service is ready."""
    problem = check(sys.argv[1] if len(sys.argv) > 1 else DEFAULT)
    if problem:
        print(f"not ready: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
