"""Every arrow of the flow is one folder, and imports point one way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

SOURCE = Path(antiphon.__file__).parent
LAYERS = [
    {"exceptions"},
    {"terminal"},
    {"console", "device"},
    {"storage"},
    {"torch_free"},
    {"data", "lattice", "own_data"},
    {"nn", "recipe"},
    {"metrics", "models"},
    {"decode"},
    {"runs"},
    {"report"},
    {"training"},
    {"ranking"},
    {"api"},
    {"lite"},
    {"pronunciation"},
    {"demo", "export", "integrations", "serve", "settings_search", "tune"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def layer_of(parts):
    return Path(parts[0]).stem


def imported_layers(path):
    """The parts of antiphon that a file needs; what is for type checkers alone is left out.

    Of the registry of kinds, which names what lies above it in functions, only what it needs when it is imported.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_type_checkers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in tree.body if path == SOURCE / "recipe/kinds.py" else ast.walk(tree):
        if id(node) in for_type_checkers:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("antiphon."):
            yield layer_of(node.module.split(".")[1:])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    own = layer_of(path.relative_to(SOURCE).parts)
    for other in imported_layers(path):
        assert other == own or RANK[other] < RANK[own], f"{own} imports {other}"


def test_every_folder_has_its_layer():
    assert {layer_of(path.relative_to(SOURCE).parts) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", sorted((SOURCE / "torch_free").glob("*.py")), ids=lambda path: path.name)
def test_what_is_free_of_torch_never_imports_it(path):
    assert not re.search(r"^\s*(import|from) torch\b", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_exported_models_are_loaded_without_torch():
    program = "import sys, antiphon.lite; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_public_names_are_there():
    assert set(antiphon.__all__) == {
        "Alignment",
        "AntiphonError",
        "Callback",
        "Candidate",
        "ErrorReport",
        "Evaluation",
        "GoldLinks",
        "InputError",
        "Lexicon",
        "Model",
        "Prediction",
        "Ranked",
        "RankingModel",
        "RecipeError",
        "RunError",
        "Suspect",
        "WordLinks",
        "__version__",
        "lattice",
        "load",
        "pronounce",
        "train",
        "transducer_loss",
    }
    assert all(hasattr(antiphon, name) for name in antiphon.__all__)
    assert set(antiphon.__all__) <= set(dir(antiphon))


def test_help_answers_without_loading_torch():
    program = """
import sys
from antiphon.cli import main
sys.argv = ["antiphon", "--version"]
try:
    main()
finally:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("antiphon ")
