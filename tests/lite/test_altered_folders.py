"""Exported folders that were altered, with digests that fit, are refused in a sentence or still answer."""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, helper, numpy_helper

from antiphon import lite
from antiphon.exceptions import AntiphonError, RunError
from antiphon.export.exported_run import export_run
from antiphon.runs.combined_runs import ensemble_runs
from antiphon.storage.files import digest_file, parse_sealed, render_sealed
from tests.lite.drawn_runs import inputs, write_run

ALONE = [
    "unidirectional",
    "geometric",
    "inflection",
    "rules_beside",
    "context",
    "copied_words",
    "transformer",
    "language_model",
    "suffix_rule",
]
COMBINED = {"ensemble": "unidirectional"}
"""Runs made of others, and the run whose inputs they read."""
VALUES = (None, True, False, -1, 0, 1, 3, 2**70, 0.5, -1e300, float("nan"), float("inf"), "", "x", "../x", "a\nb\0")
CONTAINERS = ([], {}, [1], ["x"], [[1.0]], {"x": 1})
ALTERATIONS = 40
"""Of each folder."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An exported folder of every structure."""
    folder = tmp_path_factory.mktemp("exported")
    runs = {name: write_run(folder / "runs" / name, name) for name in [*ALONE, "attention"]}
    ensemble_runs([runs["unidirectional"], runs["attention"]], folder / "runs/ensemble", force=False)
    for name in [*ALONE, *COMBINED]:
        export_run(folder / "runs" / name, folder / name)
    return folder


def seal(folder, settings=None):
    """Writes the settings of a folder again, with the digests of its files."""
    settings = settings or parse_sealed((folder / "lite.json").read_bytes())
    if isinstance(settings.get("files"), dict):
        for name in settings["files"]:
            if (folder / name).is_file():
                settings["files"][name] = asdict(digest_file(folder / name))
    (folder / "lite.json").write_text(render_sealed(settings))


def places(tree, path=()):
    """Every key of nested tables, and some indices of lists."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree[:3])
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def alter_setting(folder, draw, exported):
    """One value of the settings replaced, removed or added."""
    settings = parse_sealed((folder / "lite.json").read_bytes())
    path = draw.choice([path for path in places(settings) if path[0] not in ("files", "sha256")])
    table = settings
    for key in path[:-1]:
        table = table[key]
    how = draw.choice(["replace"] * 8 + ["remove", "add"])
    value = draw.choice(VALUES + CONTAINERS)
    if how == "remove":
        del table[path[-1]]
    elif how == "add" and isinstance(table, dict):
        table["another"] = value
    else:
        table[path[-1]] = value
    seal(folder, settings)
    return f"{how} {path} {value!r}"


def alter_graph(folder, draw, exported):
    """A graph replaced by another one, of this folder or of others."""
    graphs = sorted(folder.glob("*.onnx"))
    if not graphs:
        return alter_setting(folder, draw, exported)
    place, other = draw.choice(graphs), draw.choice(sorted(exported.rglob("*.onnx")))
    shutil.copyfile(other, folder / "new")
    (folder / "new").replace(place)
    seal(folder)
    return f"{place} {other}"


def alter_vocabulary(folder, draw, exported):
    """A vocabulary that lost tokens, has more of them, or is another one."""
    path = draw.choice(sorted(folder.glob("*.vocab")))
    lines = path.read_text().splitlines(keepends=True)
    other = draw.choice(sorted(exported.rglob("*.vocab"))).read_text().splitlines(keepends=True)
    changed = draw.choice([lines[:-1], lines[:4], lines[:2], [*lines, "another\n"], other])
    path.write_text("".join(changed))
    seal(folder)
    return f"{path} {len(lines)} -> {len(changed)}"


def use(folder, name):
    """What a model answers to everything that it can be asked, refusals among it."""
    try:
        model = lite.load(folder)
    except AntiphonError as error:
        return [str(error)]
    own = COMBINED.get(name, name)
    answers = []
    for compute in (
        lambda: model.predict(inputs(own)[:4], nbest=2, align=True),
        lambda: model.predict(inputs(own)[:1], beam=2, prefix=["B"]),
        lambda: model.score([(inputs(own)[1], "A B unseen")]),
        lambda: [model.stream(policy="greedy", features=inputs(own)[1][1] or ()).read("a")],
        lambda: [model.stream(features=()).read("abc")],
    ):
        try:
            answers.append(compute())
        except AntiphonError as error:
            answers.append(str(error))
    return answers


@pytest.mark.parametrize("name", [*ALONE, *COMBINED])
def test_an_altered_folder_answers_or_is_refused_in_a_sentence(exported, tmp_path, name):
    draw = random.Random(name)
    refused = 0
    for index in range(ALTERATIONS):
        folder = shutil.copytree(exported / name, tmp_path / str(index))
        place = draw.choice(sorted(path.parent for path in folder.rglob("lite.json")))
        alteration = draw.choice([alter_setting, alter_setting, alter_graph, alter_vocabulary])(place, draw, exported)
        try:
            answers = use(folder, name)
        except Exception as error:
            pytest.fail(f"{alteration}: {type(error).__name__}: {error}")
        assert not any("\n" in each for each in answers if isinstance(each, str)), alteration
        refused += len(answers) == 1
        shutil.rmtree(folder)
    assert refused > ALTERATIONS / 4


def test_a_folder_sealed_again_answers_as_before(exported, tmp_path):
    for name in (*ALONE, *COMBINED):
        folder = shutil.copytree(exported / name, tmp_path / name)
        seal(folder)
        answers = use(exported / name, name)
        assert use(folder, name) == answers
        assert isinstance(answers[0], str) == (name == "language_model")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("search", "beam"), None, "search.beam is null, not a whole number from 1 to 1000"),
        (("search", "beam"), True, "search.beam is true, not a whole number from 1 to 1000"),
        (("search", "threshold"), float("nan"), "search.threshold is NaN, not a number from 0 to 1e+06"),
        (("text",), {}, "text.normalisation is missing"),
        (("text", "nothing"), 1, "text.nothing is not a setting"),
        (
            ("network", "structure"),
            "loop",
            'network.structure is "loop", not one of rules, steps',
        ),
        (("network", "copies_unknown"), 1, "network.copies_unknown is 1, not true or false"),
    ],
)
def test_the_setting_that_is_wrong_is_named(exported, tmp_path, path, value, message):
    folder = shutil.copytree(exported / "unidirectional", tmp_path / "lite")
    settings = table = parse_sealed((folder / "lite.json").read_bytes())
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    seal(folder, settings)
    with pytest.raises(RunError) as caught:
        lite.load(folder)
    assert f"lite.json: damaged ({message}" in str(caught.value)
    done = subprocess.run([sys.executable, "-m", "antiphon.lite", folder], input=b"fade\n", capture_output=True)
    assert done.returncode == 2
    assert done.stderr.decode() == f"antiphon.lite: {caught.value}\n"


def test_swapped_graphs_and_cut_vocabularies_are_refused_before_anything_is_computed(exported, tmp_path):
    folder = shutil.copytree(exported / "unidirectional", tmp_path / "lite")
    shutil.copyfile(folder / "start.onnx", folder / "step.onnx")
    seal(folder)
    with pytest.raises(RunError, match=r"step\.onnx: its inputs are source, .*, expected tokens, .*; export the run"):
        lite.load(folder)
    graphs = ("start", "step", "rows")
    for name in graphs:
        shutil.copyfile(exported / f"inflection/{name}.onnx", folder / f"{name}.onnx")
    seal(folder)
    with pytest.raises(RunError, match=r"step\.onnx: log_next is float of .* 12, expected float of .* 22"):
        lite.load(folder)
    for name in graphs:
        shutil.copyfile(exported / f"unidirectional/{name}.onnx", folder / f"{name}.onnx")
    shutil.copyfile(folder / "read.onnx", folder / "write.onnx")
    seal(folder)
    with pytest.raises(RunError, match=r"write\.onnx: its inputs are .*, expected .*; export the run again"):
        lite.load(folder).stream()
    for name in ("source", "target"):
        folder = shutil.copytree(exported / "unidirectional", tmp_path / name)
        lines = (folder / f"{name}.vocab").read_text().splitlines(keepends=True)
        (folder / f"{name}.vocab").write_text("".join(lines[:-1]))
        seal(folder)
        with pytest.raises(RunError, match=rf"{name}\.vocab: {len(lines) - 1} tokens, expected {len(lines)}"):
            lite.load(folder)


def test_a_graph_that_fails_while_it_runs_is_refused_by_name(exported, tmp_path):
    folder = shutil.copytree(exported / "unidirectional", tmp_path / "lite")
    with (folder / "source.vocab").open("a") as file:
        file.write("z\n")
    settings = json.loads((folder / "lite.json").read_text())
    settings["vocab_sizes"]["source"] += 1
    seal(folder, settings)
    with pytest.raises(RunError, match=r"start\.onnx: onnxruntime cannot run it"):
        lite.load(folder).predict(["fade", "zebra"])
    done = subprocess.run([sys.executable, "-m", "antiphon.lite", folder], input=b"zebra\n", capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


@pytest.mark.parametrize("place", ["weights.bin", "../weights.bin", "step.onnx"])
def test_weights_outside_of_a_graph_are_never_read(exported, tmp_path, monkeypatch, place):
    folder = shutil.copytree(exported / "unidirectional", tmp_path / "lite")
    model = onnx.load(folder / "step.onnx")
    weights = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    if place != "step.onnx":
        (folder / place).write_bytes(weights.raw_data)
    external_data_helper.set_external_data(weights, place, offset=0, length=len(weights.raw_data))
    weights.ClearField("raw_data")
    (folder / "step.onnx").write_bytes(model.SerializeToString())
    seal(folder)
    monkeypatch.chdir(folder)
    with pytest.raises(RunError, match=r"step\.onnx: onnxruntime cannot read it"):
        lite.load(folder)


def first_column(old, new):
    """Nodes that leave one column of an array, which its declared shape does not tell."""
    numbers = [numpy_helper.from_array(np.array([index]), name) for index, name in enumerate(("zero", "one"))]
    constants = [helper.make_node("Constant", [], [each.name], value=each) for each in numbers]
    return [*constants, helper.make_node("Slice", [old, "zero", "one", "one"], [new])]


def not_a_number(old, new):
    """Nodes that make NaN of every number."""
    nothing = helper.make_node("Sub", [old, old], ["nothing"])
    return [nothing, helper.make_node("Div", ["nothing", "nothing"], [new])]


def replace_output(path, name, nodes):
    """Lets a graph give another array than before by the same name, and declare nothing of it."""
    model = onnx.load(path)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{each}_before" if each == name else each for each in names]
    model.graph.node.extend(nodes(f"{name}_before", name))
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("output", "nodes", "message"),
    [
        ("log_next", first_column, "log_next is of .*, expected a size of 22 in axis 2"),
        ("log_next", not_a_number, "log_next holds NaN or numbers above 0, expected log probabilities"),
        ("state_decoder_network_hidden_after", first_column, "state_decoder_.* is of .*, expected a size"),
        ("log_arrive", first_column, "log_arrive is of .*, expected a size of 5 in axis 2"),
    ],
)
def test_a_graph_that_gives_something_else_than_it_declares_is_refused(exported, tmp_path, output, nodes, message):
    folder = shutil.copytree(exported / "unidirectional", tmp_path / "lite")
    replace_output(folder / "step.onnx", output, nodes)
    seal(folder)
    with pytest.raises(RunError, match=rf"step\.onnx: {message}"):
        lite.load(folder).predict(["fade"], align=True)
