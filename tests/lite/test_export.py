"""Exported folders: what is written, what is refused, and that nothing of the user's is lost."""

import json
import shutil
from dataclasses import asdict

import pytest

from antiphon import lite
from antiphon.exceptions import InputError, RunError
from antiphon.export import exported_run
from antiphon.export.exported_run import export_run
from antiphon.lite.folder import FORMAT
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.files import digest_file, parse_sealed, render_sealed
from tests.lite.drawn_runs import TEXTS, inputs, write_run
from tests.sealing import seal_again


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, and its exported folder."""
    folder = tmp_path_factory.mktemp("made")
    run = write_run(folder / "run", "unidirectional")
    export_run(run, folder / "lite")
    return run, folder / "lite"


@pytest.fixture
def exported(made, tmp_path):
    """A copy of an exported folder, to be damaged."""
    return shutil.copytree(made[1], tmp_path / "lite")


def files_under(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(folder, **settings):
    """Changes the settings of an exported folder, and seals them again."""
    table = parse_sealed((folder / "lite.json").read_bytes())
    (folder / "lite.json").write_text(render_sealed(table | settings))


def test_the_command_writes_a_folder_that_can_move(antiphon, made, tmp_path):
    done = antiphon("export", made[0], "--out", tmp_path / "new/lite")
    assert done.status == 0, done.err
    assert done.out.startswith(f"{tmp_path}/new/lite: {made[0]} for antiphon.lite, 0.1")
    before = lite.load(tmp_path / "new/lite").predict(TEXTS)
    moved = shutil.move(tmp_path / "new/lite", tmp_path / "moved")
    assert lite.load(moved).predict(TEXTS) == before
    assert str(tmp_path) not in (tmp_path / "moved/lite.json").read_text()


def test_whatever_is_there_already_is_never_replaced(antiphon, made, exported, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    run = shutil.copytree(made[0], tmp_path / "run")
    before = files_under(tmp_path)
    for out in (tmp_path / "mine", tmp_path / "file", tmp_path / "link", exported, run):
        done = antiphon("export", made[0], "--out", out)
        assert done.status == 2
        assert f"{out}: exists already, expected the name of a new folder; remove it, or choose another" in done.err
    assert files_under(tmp_path) == before
    assert (tmp_path / "link").is_symlink()


def test_an_empty_folder_may_be_there_already(antiphon, made, tmp_path):
    (tmp_path / "lite").mkdir()
    assert antiphon("export", made[0], "--out", tmp_path / "lite").status == 0
    assert files_under(tmp_path / "lite") == files_under(made[1])


def test_a_run_is_not_exported_into_itself(antiphon, made):
    for out in (made[0], made[0] / "lite"):
        done = antiphon("export", made[0], "--out", out)
        assert done.status == 2
        assert "in the run itself, expected another --out" in done.err


def test_nothing_is_left_behind_if_writing_fails(made, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exported_run, "write_settings", fail)
    for out in (tmp_path / "lite", tmp_path / "new/lite"):
        with pytest.raises(OSError, match="No space left"):
            export_run(made[0], out)
    assert not [*tmp_path.iterdir()]


def test_a_folder_appears_as_a_whole(made, tmp_path, monkeypatch):
    def interrupt(*_):
        assert not (tmp_path / "lite").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(exported_run, "synced_files", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export_run(made[0], tmp_path / "lite")
    assert not [*tmp_path.iterdir()]
    export_run(made[0], tmp_path / "lite")
    assert files_under(tmp_path) == {f"lite/{name}": content for name, content in files_under(made[1]).items()}


def test_of_two_exports_at_once_the_second_is_refused_by_name(made, tmp_path, monkeypatch):
    locked = exported_run.locked

    def locked_after_another(*arguments, **options):
        monkeypatch.setattr(exported_run, "locked", locked)
        export_run(made[0], tmp_path / "lite")
        return locked(*arguments, **options)

    monkeypatch.setattr(exported_run, "locked", locked_after_another)
    with pytest.raises(RunError, match="lite: exists already, expected the name of a new folder"):
        export_run(made[0], tmp_path / "lite")
    assert files_under(tmp_path) == {f"lite/{name}": content for name, content in files_under(made[1]).items()}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": {"kind": "overlap"}, "data": {}},
            "a run of kind overlap cannot be exported, expected one that writes",
        ),
        ({"search": {"over": "paths"}}, 'search.over = "paths", expected a search over outputs'),
    ],
)
def test_kinds_and_searches_that_cannot_be_exported_are_refused(antiphon, made, tmp_path, settings, message):
    run = shutil.copytree(made[0], tmp_path / "run")
    recipe = RunFolder(run).recipe().model_dump() | settings
    RunFolder(run).save_recipe(Recipe.model_validate(recipe))
    seal_again(run)
    done = antiphon("export", run, "--out", tmp_path / "lite")
    assert done.status == 2
    assert message in done.err
    assert not (tmp_path / "lite").exists()


def test_an_exported_folder_of_a_newer_format_is_refused(exported):
    change(exported, format=FORMAT + 1)
    with pytest.raises(RunError, match=rf"an exported run of format {FORMAT + 1}, expected at most {FORMAT}; .* newer"):
        lite.load(exported)


@pytest.mark.parametrize("name", ["step.onnx", "source.vocab", "lite.json"])
def test_a_damaged_file_is_refused_by_name(exported, name):
    content = bytearray((exported / name).read_bytes())
    content[len(content) // 2] ^= 1
    (exported / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name}: damaged"):
        lite.load(exported)


def test_a_missing_file_a_link_and_a_name_outside_are_refused(exported, tmp_path):
    (exported / "step.onnx").rename(tmp_path / "step.onnx")
    with pytest.raises(RunError, match=r"step\.onnx: missing, expected it as in"):
        lite.load(exported)
    (exported / "step.onnx").symlink_to(tmp_path / "step.onnx")
    with pytest.raises(RunError, match=r"step\.onnx: a symbolic link"):
        lite.load(exported)
    change(exported, files={"../step.onnx": {"bytes": 1, "sha256": ""}})
    with pytest.raises(RunError, match=r"damaged \(it names '\.\./step\.onnx'\)"):
        lite.load(exported)


def test_graphs_that_onnxruntime_cannot_read_are_refused(exported):
    (exported / "step.onnx").write_bytes(b"no graph")
    files = json.loads((exported / "lite.json").read_text())["files"]
    change(exported, files=files | {"step.onnx": asdict(digest_file(exported / "step.onnx"))})
    with pytest.raises(RunError, match="onnxruntime cannot read it"):
        lite.load(exported)


def test_a_run_folder_is_no_exported_folder(made, tmp_path):
    with pytest.raises(RunError, match="a run folder, expected an exported one: antiphon export"):
        lite.load(made[0])
    with pytest.raises(RunError, match=r"no lite\.json in it, expected a folder that antiphon export wrote"):
        lite.load(tmp_path)
    with pytest.raises(InputError, match="folder = 3: expected a path"):
        lite.load(3)


def test_weights_of_8_bits_are_smaller_and_nearly_as_exact(made, tmp_path):
    export_run(made[0], tmp_path / "int8", int8=True)
    sizes = [(folder / "step.onnx").stat().st_size for folder in (tmp_path / "int8", made[1])]
    assert sizes[0] != sizes[1]
    exact, rounded = (lite.load(folder).predict(TEXTS[:4]) for folder in (made[1], tmp_path / "int8"))
    for one, other in zip(exact, rounded, strict=True):
        assert one.log_probability != other.log_probability
        assert one.log_probability == pytest.approx(other.log_probability, abs=1.0)


def test_what_a_lite_model_cannot_do_is_refused_in_a_sentence(made, tmp_path):
    model = lite.load(made[1])
    with pytest.raises(RunError, match="cannot draw samples without PyTorch, expected nbest or cover"):
        model.predict(["fade"], sample=2)
    with pytest.raises(InputError, match="predict: a single input 'fade', expected a list"):
        model.predict("fade")
    with pytest.raises(InputError, match=r"prefix: token Q was never seen in training"):
        model.predict(["fade"], prefix=["Q"])
    export_run(write_run(tmp_path / "run", "inflection"), tmp_path / "lite")
    model = lite.load(tmp_path / "lite")
    with pytest.raises(InputError, match="feature X was never seen in training"):
        model.predict([("fade", "X")])
    assert len(model.predict([("fade", "X")], allow_unknown_features=True)) == 1
    with pytest.raises(InputError, match="no features, but the run was trained with them"):
        model.predict(["fade"])
    assert [each.source for each in model.predict(inputs("inflection"))] == [text for text, _ in inputs("inflection")]


def test_a_language_model_scores_but_does_not_predict(tmp_path):
    export_run(write_run(tmp_path / "run", "language_model"), tmp_path / "lite")
    model = lite.load(tmp_path / "lite")
    with pytest.raises(RunError, match="a run of kind language_model cannot predict"):
        model.predict(["fade"])
    assert model.score([("", "A B")])[0] < 0
