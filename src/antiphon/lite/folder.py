"""Folders that ``antiphon export`` writes: their format, and how they are read without executing anything.

lite.json            format version, kind, settings, and size and SHA-256 of every other file; sealed by its own digest
source.vocab         one token per line; also target.vocab, and features.vocab if there are features
source.spm           SentencePiece model, if one is used; also target.spm
rules.tsv            suffix rules, if the run has any
*.onnx               the graphs of the network
member-1/ direct/    exported folders that an ensemble or a noisy channel is made of; also channel/ and lm/

While a folder is replaced, ``removed`` in lite.json lists the files that are still to be deleted, and new files wait
inside the folder until they are moved into place (``storage/staging.py``).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from antiphon.exceptions import RunError
from antiphon.lite.settings_schema import check_settings
from antiphon.storage.manifest import MANIFEST, MEMBERS, PARTS
from antiphon.storage.staging import (
    check_format,
    digest_file,
    digest_listed,
    is_being_moved,
    open_regular,
    parse_entries,
    parse_sealed,
    render_sealed,
    staged_folder,
)
from antiphon.torch_free.codec import (
    NO_FEATURES,
    Normalisation,
    PairCodec,
    TextCodec,
    open_tokeniser,
)
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.vocab import Vocab

Read = TypeVar("Read")
FORMAT = 1
"""The format that is written; the newest that can be read."""
SETTINGS = "lite.json"
_MAX_BYTES = 2**26
"""Far larger than the settings of any run."""
_FILES = (
    *(f"{side}.{kind}" for side in ("source", "target") for kind in ("vocab", "spm")),
    "features.vocab",
    "rules.tsv",
    *(f"{graph}.onnx" for graph in ("start", "step", "rows", "open", "read", "write", "cell")),
)
"""Files that an exported run can list."""
EXPORTED_FILES = frozenset(
    f"{part}{name}"
    for part in ("", *(f"{part}/" for part in PARTS), *(f"direct/{member}/" for member in MEMBERS))
    for name in (SETTINGS, *_FILES)
)
"""Every file that an exported run and its parts can have."""
_MAX_READS = 1000
"""A folder that is replaced while it is read is read again, this often at most."""
_PAUSE = 0.01
"""Seconds between reads, in which a writer may move files into place."""


class ExportedFolder:
    """The settings and files of an exported run.

    Files in ``staged``, the staging folder of a replacement that was interrupted, are read there.
    """

    def __init__(self, path: Path, staged: Path | None = None) -> None:
        self.path, self._staged = path, staged
        self.settings = read_settings(self.file(SETTINGS).parent)
        if "removed" in self.settings:
            self._staged = staged_folder(path)
        self._verify()

    def file(self, name: str) -> Path:
        """Where a file is: in its place, or still in the staging folder."""
        waiting = None if self._staged is None else self._staged / name
        return waiting if waiting is not None and waiting.exists() else self.path / name

    def _verify(self) -> None:
        """Refuses a folder in which a file is missing, damaged or a link."""
        for name, expected in parse_entries(self.settings["files"]).items():
            file = self.path / name
            try:
                found = digest_listed(self.path, self._staged, name)
            except FileNotFoundError:
                raise RunError(
                    f"{file}: missing, expected it as in {self.path / SETTINGS}; export the run again"
                ) from None
            if found != expected:
                raise RunError(f"{file}: damaged, or changed by hand, expected the file that antiphon wrote")

    @property
    def kind(self) -> str:
        """The kind of model."""
        return str(self.settings["kind"])

    @property
    def structure(self) -> str:
        """What the network is made of: rules, graphs, or other networks."""
        return str(self.network["structure"])

    @property
    def network(self) -> Mapping[str, Any]:
        """What the settings say about the network."""
        network: Mapping[str, Any] = self.settings["network"]
        return network

    def part(self, name: str) -> "ExportedFolder":
        """A folder that an ensemble or a noisy channel is made of."""
        if name not in PARTS:
            raise RunError(f"{self.path / SETTINGS}: damaged (it names {name!r}), expected what antiphon export wrote")
        return ExportedFolder(self.path / name, None if self._staged is None else self._staged / name)

    def has(self, name: str) -> bool:
        """Whether the folder holds a file."""
        return name in self.settings["files"]

    @cached_property
    def codec(self) -> PairCodec:
        """Text to ids and back."""
        text = self.settings["text"]
        steps = Normalisation(**text["normalisation"])
        source, target = (
            TextCodec(steps, open_tokeniser(text[f"{side}_tokens"], self.file(f"{side}.spm")), self._vocab(side))
            for side in ("source", "target")
        )
        return PairCodec(source, target, self._vocab("features"), text["copies_words"])

    def _vocab(self, name: str) -> Vocab:
        """A vocabulary; one of another size than the network was exported with is refused."""
        path, size = self.file(f"{name}.vocab"), self.settings["vocab_sizes"][name]
        vocab = Vocab.load(path) if self.has(f"{name}.vocab") else NO_FEATURES
        if len(vocab) != size:
            raise RunError(f"{path}: {len(vocab)} tokens, expected {size}, as in {self.path / SETTINGS}")
        return vocab

    def beam_settings(self, *, beam: int | None, nbest: int) -> BeamSettings:
        """The settings of the search; ``beam`` overrides the setting of the run."""
        overrides = {"nbest": nbest} | ({"beam": beam} if beam else {})
        return BeamSettings(**dict(self.settings["search"]) | overrides)


def read_at_rest(folder: Path, read: Callable[[ExportedFolder], Read]) -> Read:
    """The result of ``read`` on an exported folder; if the folder is replaced meanwhile, it is read again."""
    for _ in range(_MAX_READS):
        before = read_settings(folder)
        if "removed" in before and is_being_moved(folder):
            time.sleep(_PAUSE)
            continue
        try:
            found = read(ExportedFolder(folder))
        except (RunError, OSError):
            if read_settings(folder) == before:
                raise
            continue
        if read_settings(folder) == before:
            return found
    raise RunError(f"{folder}: changes faster than it can be read, expected an exported run that is at rest")


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a folder; damaged ones, and those of a newer format, are refused."""
    path = folder / SETTINGS
    if not path.is_file():
        if (folder / MANIFEST).is_file():
            raise RunError(f"{folder}: a run folder, expected an exported one: antiphon export {folder} --out FOLDER")
        raise RunError(f"{folder}: no {SETTINGS} in it, expected a folder that antiphon export wrote")
    with open_regular(path) as file:
        content = file.read(_MAX_BYTES)
    try:
        settings = parse_sealed(content)
        check_format(settings["format"], FORMAT, f"{folder}: an exported run")
        _check_names(settings)
        own = ("format", "sha256", "staged", "removed")
        check_settings({name: value for name, value in settings.items() if name not in own})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path}: damaged ({error}), expected what antiphon export wrote; export the run again"
        ) from None
    return settings


def _check_names(settings: Mapping[str, Any]) -> None:
    """Refuses names that no file of an exported run has, so that nothing else is ever read or deleted."""
    unknown = [name for name in parse_entries(settings["files"]) if name not in _FILES]
    unknown += [name for name in settings.get("removed", ()) if name not in EXPORTED_FILES]
    if unknown:
        raise ValueError(f"it names {unknown[0]!r}")


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a folder whose other files are complete, with their digests."""
    files = {path.name: asdict(digest_file(path)) for path in sorted(folder.iterdir()) if path.is_file()}
    text = render_sealed({"format": FORMAT, **settings, "files": files})
    (folder / SETTINGS).write_text(text, encoding="utf-8", newline="\n")
