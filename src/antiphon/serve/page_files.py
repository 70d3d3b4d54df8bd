"""The files of the page, read once: no request reaches the disk."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True)
class PageFile:
    """One file of the page; ``etag`` changes with its content."""

    body: bytes
    media_type: str
    etag: str


def read_page(folder: Path = FOLDER) -> dict[str, PageFile]:
    """The files of the page by their names below the folder; files of other types are not served."""
    return {
        path.relative_to(folder).as_posix(): _read(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in _TYPES
    }


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    return PageFile(body, _TYPES[path.suffix], f'"{sha256(body).hexdigest()[:32]}"')
