"""The wheel holds all that a newcomer needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The files of the wheel, built as pip builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    program = f"import hatchling.build; print(hatchling.build.build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_recipes_toy_data_types_and_demo_data(names):
    package = ROOT / "src/antiphon"
    wanted = [
        package / "py.typed",
        *package.glob("recipe/shipped/*.toml"),
        *package.glob("recipe/shipped/toy/*.tsv"),
        *package.glob("demo/*.gz"),
        *package.glob("demo/*.toml"),
        *package.glob("demo/*.LICENSE"),
        *package.glob("demo/*.txt"),
        *package.glob("serve/page/*"),
        *package.glob("lite/shipped/*/*"),
        *package.glob("runs/shipped/*/*"),
        *(path for path in package.glob("pronunciation/*") if path.is_file()),
        *package.rglob("*.py"),
    ]
    assert {str(path.relative_to(ROOT / "src")) for path in wanted} <= names


def test_the_wheel_holds_nothing_that_is_not_the_package(names):
    assert all(name.startswith(("antiphon/", "antiphon-")) for name in names)
