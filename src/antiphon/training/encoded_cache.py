"""The cache of encoded corpora: they are reused as long as nothing has changed that they were made from.

Beside the corpora, ``contents.json`` has a hash of the settings that decided how text was encoded, the size and
modification time of every file that was read, by a hash of its path, and the SHA-256 of every file that was written. It
is written last: without it, corpora are unfinished.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from antiphon import __version__
from antiphon.exceptions import RecipeError, is_disk_full
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_limits, may_copy_words, reads_source
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.atomic import locked, new_scratch_folder, remove_tree, sweep, sync_path, write_atomically
from antiphon.storage.staging import digest_file, parse_sealed, render_sealed
from antiphon.terminal import Say, silent
from antiphon.torch_free.files import read_text

_IGNORED = {"test", "cache", "vectors", "more_words"}
"""Data settings that have no effect on encoded pairs."""


@dataclass(frozen=True)
class CacheKey:
    """The settings and files that encoded corpora depend on; a file is its size and modification time."""

    settings: dict[str, Any]
    files: dict[str, list[int]]

    @classmethod
    def of(cls, recipe: Recipe) -> "CacheKey":
        """The key of a recipe and of its files as they are now."""
        settings = {
            "antiphon": __version__,
            "reads_source": reads_source(recipe),
            "limits": asdict(build_limits(recipe)),
            **({"may_copy_words": True} if may_copy_words(recipe) else {}),
            **recipe.data.model_dump(mode="json", exclude=_IGNORED),
        }
        return cls(settings, {str(path): _stamp(path) for path in _files(recipe)})

    @property
    def name(self) -> str:
        """A hash of settings and paths; it stays the same when the contents of the files change."""
        return _hash([self.settings, sorted(self.files)])

    def stored(self) -> dict[str, Any]:
        """The key as it is written into a folder, without paths: the folder may be copied elsewhere."""
        return {
            "settings": _hash(self.settings),
            "files": {_hash(path): stamp for path, stamp in self.files.items()},
        }


def save_contents(corpus: Path, key: CacheKey, pairs: dict[str, str], vocabularies: Sequence[Path]) -> None:
    """Marks the corpora of a folder as complete; ``pairs`` describes how many pairs of each were kept and dropped."""
    written = [*(corpus / f"{name}.arrow" for name in pairs), *vocabularies]
    digests = {path.name: asdict(digest_file(path)) for path in written}
    write_atomically(_contents(corpus), render_sealed({**key.stored(), "pairs": pairs, "digests": digests}))


def load_pairs(corpus: Path) -> dict[str, str]:
    """How many pairs of each corpus were kept and dropped, as ``save_contents`` wrote it."""
    pairs: dict[str, str] = json.loads(read_text(_contents(corpus)))["pairs"]
    return pairs


def vocabulary_files(run: RunFolder) -> list[Path]:
    """The files that decide the ids of tokens."""
    sides = ("source", "target", "features")
    paths = [path for side in sides for path in (run.file(f"{side}.vocab"), run.sentencepiece_path(side))]
    return [path for path in paths if path.exists()]


def is_current(run: RunFolder, key: CacheKey, say: Say = silent) -> bool:
    """Whether a folder has corpora that can be used for a key; ``say`` gets a line if it has others."""
    if not _contents(run.corpus).exists():
        return False
    reason = stale_reason(run, key)
    if reason is not None:
        say(f"{reason}: the data are encoded again")
    return reason is None


def stale_reason(run: RunFolder, key: CacheKey) -> str | None:
    """Why the corpora of a folder cannot be used for a key; None if they can."""
    corpus = run.corpus
    try:
        contents = parse_sealed(read_text(_contents(corpus)).encode())
        settings, files, digests = contents["settings"], contents["files"], contents["digests"]
    except (OSError, ValueError, KeyError, RecursionError):
        return f"{_contents(corpus)} is damaged"
    if settings != key.stored()["settings"]:
        return f"{corpus} has other settings"
    changed = [path for path, stamp in key.files.items() if files.get(_hash(path)) != stamp]
    written = [*sorted(corpus.glob("*.arrow")), *vocabulary_files(run)]
    missing = digests.keys() - {path.name for path in written}
    damaged = [path for path in written if asdict(digest_file(path)) != digests.get(path.name)]
    return next((f"{path} has changed" for path in [*changed, *sorted(missing), *damaged]), None)


@contextmanager
def staged_entry(cache: Path, key: CacheKey) -> Iterator[RunFolder]:
    """A new folder in the cache that becomes the entry of a key at the end, or is removed if encoding fails.

    If another process was faster, its entry stays.
    """
    entry = RunFolder(cache / key.name)
    with ExitStack() as held:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache, wait=True):
                sweep(cache)
                stage = new_scratch_folder(cache)
        except OSError as error:
            if is_disk_full(error):
                raise
            raise RecipeError(f"data.cache = {cache}: {error.strerror}, expected a folder to write into") from None
        held.callback(remove_tree, stage)
        yield RunFolder(stage)
        with locked(cache, wait=True):
            if not is_current(entry, key):
                remove_tree(entry.path)
                stage.rename(entry.path)
                sync_path(cache)


def _hash(known: Any) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]


def _contents(corpus: Path) -> Path:
    return corpus / "contents.json"


def _files(recipe: Recipe) -> Iterator[Path]:
    """Every file that encoding reads."""
    data = recipe.data
    for files in (data.train, data.dev):
        yield from files if isinstance(files, tuple) else [files] if files is not None else []
    yield from () if reads_source(recipe) else data.unpaired
    if data.vocab_from is not None:
        yield from _vocabularies_of(data.vocab_from)
    yield from (path for path in (data.source_sentencepiece, data.target_sentencepiece) if path is not None)


def _vocabularies_of(run: Path) -> list[Path]:
    """The files that vocabularies are taken from: those of a run folder, or a packed run itself."""
    return [run] if run.is_file() else sorted(path for path in run.glob("*") if path.suffix in (".vocab", ".spm"))


def _stamp(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]
