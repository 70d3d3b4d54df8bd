"""SimulEval, in an environment of its own, drives runs and measures what we measure."""

import csv
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
AGENT = "antiphon.integrations.simuleval.AntiphonAgent"
DELAYS = ("AL", "LAAL", "AP", "DAL")
RECIPE = """
[data]
train = "train.tsv"
dev = "dev.tsv"

[model]
encoder = "unidirectional"
hidden_size = 48
dropout = 0.1

[train]
learning_rate = 0.01
max_epochs = 16
passes = 1

[search]
beam = 4
"""


def pair(draw):
    """A made-up sentence: adjectives (u to z) come after their noun in the target, and some words are left out."""
    source, target = [], []
    for _ in range(draw.randint(1, 5)):
        noun, adjective = draw.choice("abcdefgh"), draw.choice("uxyz") * draw.randint(0, 1)
        source += [*adjective, noun]
        target += [noun.upper(), *adjective.upper()]
        if draw.random() < 0.3:
            source.append("so")
            target += ["AND", "THEN"] if draw.random() < 0.7 else []
    return " ".join(source), " ".join(target)


def write_files(folder):
    draw = random.Random(1)
    for name, number in (("train", 800), ("dev", 60), ("test", 40)):
        pairs = [pair(draw) for _ in range(number)]
        pairs[9:9] = [("", "")]
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts))
    (folder / "recipe.toml").write_text(RECIPE)


def call(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def train(folder, tokens):
    """A run over the made-up language, by words or by characters."""
    settings = [f"--set=data.{side}_tokens={tokens}" for side in ("source", "target")]
    call(sys.executable, "-m", "antiphon", "train", folder / "recipe.toml", *settings, "--out", folder / tokens)
    return folder / tokens


def simulate(folder, run, *options):
    """The scores that SimulEval reports, and its log of every sentence."""
    files = ("--source", folder / "test.source", "--target", folder / "test.target", "--output", folder / "scores")
    metrics = ("--latency-metrics", *DELAYS, "--sacrebleu-tokenizer", "none")
    # Isolated, so that the agent is the installed one whatever PYTHONPATH says.
    program = (folder / "env/bin/python", "-I", folder / "env/bin/simuleval", "--agent-class", AGENT)
    call(*program, "--run", run, *options, *files, *metrics)
    with (folder / "scores/scores.tsv").open() as table:
        (scores,) = csv.DictReader(table, delimiter="\t")
    log = [json.loads(line) for line in (folder / "scores/instances.log").read_text().splitlines()]
    return {name: float(value) for name, value in scores.items()}, log


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of the made-up language, and an environment with SimulEval and this tree."""
    folder = tmp_path_factory.mktemp("simuleval")
    write_files(folder)
    call(sys.executable, "-m", "venv", folder / "env")
    packages = ("--constraint", "constraints.txt", ".[torch]", "simuleval==1.1.4")
    call(folder / "env/bin/python", "-m", "pip", "install", "--quiet", *packages)
    return folder


@pytest.mark.slow
def test_simuleval_measures_what_we_measure(folder, antiphon):
    """One test, because tests that run side by side would each build the environment."""
    run = train(folder, "words")
    for options in ((), ("--policy", "greedy", "--emit-bias", "-1"), ("--beam", "2", "--margin", "1")):
        theirs, _ = simulate(folder, run, *options)
        found = antiphon("evaluate", run, folder / "test.tsv", "--online", "--json", *options)
        ours = {name.replace("bleu", "BLEU"): each["value"] for name, each in json.loads(found.out)["metrics"].items()}
        # Neither perfect nor as late as can be: there is something to agree on. SimulEval rounds to three decimals.
        assert 30 < ours["BLEU"] < 99
        assert 0.5 < ours["AL"] < 5.5
        assert theirs == pytest.approx({name: ours[name] for name in ("BLEU", *DELAYS)}, abs=6e-4)

    # Of a run by characters SimulEval gets whole words; or, if it counts characters, each one as soon as it is decided.
    run = train(folder, "chars")
    sources = [line for line in (folder / "test.source").read_text().splitlines() if line]
    streamed = antiphon("stream", run, stdin="\n".join(sources).encode()).out.splitlines()
    for unit, expected in (("word", streamed), ("char", [line.replace(" ", "") for line in streamed])):
        _, log = simulate(folder, run, "--eval-latency-unit", unit)
        assert [sentence["prediction"] for sentence in log if sentence["source"]] == expected
