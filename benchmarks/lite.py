"""Exported models against PyTorch: start-up, memory, installed size, speed on one core, and what 8 bits cost.

The demo's model of pronunciation, trained here unless ANTIPHON_RUN names a run of it, is exported with 32 and with 8
bits. Every figure is taken in a process of its own with one thread, the three sides in turn, so that whatever else runs
on the machine slows down all of them alike; of several times the median counts. CPU seconds are those of the process,
start and end included. The size is that of the installed packages of the extra, files that pip compiles left out.

ANTIPHON_RUN=runs/demo python -m benchmarks lite
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from antiphon.api.train_recipe import train
from antiphon.demo import FOLDER, pairs_of
from antiphon.export.exported_run import export_run

ROOT = Path(__file__).parent.parent
STARTS, PASSES = int(os.environ.get("ANTIPHON_STARTS", 7)), 3
FIRST_ANSWER = """
import sys
{load}
model.predict(["knight"])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
SPEED = """
import json, sys, time
from antiphon.demo import pairs_of
{load}
words = [pair.source for pair in pairs_of("test")]
model.predict(words[:50])
wall, cpu = time.perf_counter(), time.process_time()
found = model.predict(words)
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([len(words), wall, cpu, [[each.text, each.log_probability] for each in found]]))
"""
LOAD = {
    "torch": "import antiphon\nmodel = antiphon.load(sys.argv[1], device='cpu', threads=1)",
    "lite": "import antiphon.lite\nmodel = antiphon.lite.load(sys.argv[1])",
}


def measure():
    with tempfile.TemporaryDirectory() as folder:
        sides = prepare(Path(folder))
        starts = interleaved(sides, STARTS, lambda name, path: start_up(program(FIRST_ANSWER, name), path))
        passes = interleaved(sides, PASSES, lambda name, path: speed(program(SPEED, name), path))
        return [row(name, path, starts[name], passes[name], passes["torch"]) for name, path in sides.items()]


def prepare(folder):
    """The run and both exported folders."""
    run = Path(os.environ["ANTIPHON_RUN"]) if "ANTIPHON_RUN" in os.environ else folder / "run"
    if not run.exists():
        train(FOLDER / "pronunciation.toml", out=run, progress=False)
    export_run(run, folder / "lite")
    export_run(run, folder / "int8", int8=True)
    return {"torch": run, "lite": folder / "lite", "lite, 8 bits": folder / "int8"}


def program(text, name):
    return text.format(load=LOAD["torch" if name == "torch" else "lite"])


def interleaved(sides, times, function):
    """The values of a function for each side, which take turns."""
    found = {name: [] for name in sides}
    for _ in range(times):
        for name, path in sides.items():
            found[name].append(function(name, path))
    return found


def start_up(code, path):
    """Seconds, CPU seconds and megabytes at most, from the start of a process to the end after its first answer."""
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], env=environment(), stdout=subprocess.PIPE)
    kilobytes = int(child.stdout.read())  # its own: what wait4 gives counts that of its parent too
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, kilobytes / 1024


def speed(code, path):
    """Words, seconds, CPU seconds, and what was predicted."""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}


def row(name, path, starts, passes, reference):
    wall, cpu, memory = (statistics.median(values) for values in zip(*starts, strict=True))
    words = passes[0][0]
    predicted, wanted = passes[0][3], reference[0][3]
    known = pairs_of("test")
    return {
        "side": name,
        "seconds to the first answer": wall,
        "CPU seconds to the first answer": cpu,
        "MB of memory": memory,
        "MB installed": installed_size("torch" if name == "torch" else "lite"),
        "MB of the model": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6,
        "words per second": words / statistics.median(seconds for _, seconds, _, _ in passes),
        "words per CPU second": words / statistics.median(seconds for _, _, seconds, _ in passes),
        "word accuracy": 100
        * sum(text == pair.target for (text, _), pair in zip(predicted, known, strict=True))
        / words,
        "outputs that differ": sum(one[0] != other[0] for one, other in zip(predicted, wanted, strict=True)),
        "largest difference of log p": max(
            (abs(one[1] - other[1]) for one, other in zip(predicted, wanted, strict=True) if one[0] == other[0])
        ),
    }


def installed_size(extra):
    """Megabytes of all packages that an extra of antiphon brings, antiphon left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names, wanted = set(), [*project["dependencies"], *project["optional-dependencies"][extra]]
    while wanted:
        requirement = Requirement(wanted.pop())
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        wanted += distribution(name).requires or []
    files = (file for name in names for file in distribution(name).files or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in (file.locate() for file in files) if path.is_file()) / 1e6
