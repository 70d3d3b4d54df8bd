"""One digest of everything that the outputs of a run depend on."""

import hashlib
import json

from antiphon.recipe.recipe_file import as_table
from antiphon.recipe.recipe_paths import without_paths
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.layout import PREDICTION_FILES
from antiphon.storage.regular_files import digest_file

_DIGESTED = tuple(name for name in PREDICTION_FILES if name not in ("recipe.toml", "metrics.json"))
"""Files whose bytes decide outputs; of the recipe, paths do not."""


def run_digest(run: RunFolder) -> str:
    """SHA-256 of all that outputs depend on: the same for a run, its copies, and the packed run."""
    found = {name: run.file(name) for name in _DIGESTED if run.file(name).exists()}
    about = {
        "recipe": as_table(without_paths(run.recipe())),
        "files": {name: digest_file(path).sha256 for name, path in found.items()},
        "parts": {name: run_digest(part) for name, part in run.parts().items()},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
