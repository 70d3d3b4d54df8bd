"""Asks a service whether it is ready, for a container's health check: ``python -m antiphon.serve.health_check [URL]``.

The token is read as ``antiphon serve`` reads it: from ANTIPHON_TOKEN, or from the file that ANTIPHON_TOKEN_FILE names.
"""

import os
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

DEFAULT = "http://127.0.0.1:8000"
_SECONDS = 4


def read_token() -> str:
    """The token of the service, or nothing."""
    file = os.environ.get("ANTIPHON_TOKEN_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get("ANTIPHON_TOKEN", "")


def check(url: str, token: str) -> str:
    """Why the service is not ready; empty if it is."""
    headers = {"Authorization": f"Bearer {token}".encode().decode("latin-1")} if token else {}
    try:
        with urlopen(Request(f"{url.rstrip('/')}/ready", headers=headers), timeout=_SECONDS):
            return ""
    except (URLError, OSError) as error:
        return str(error)


def main() -> int:
    """The exit status: 0 if the service is ready."""
    problem = check(sys.argv[1] if len(sys.argv) > 1 else DEFAULT, read_token())
    if problem:
        print(f"not ready: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
