"""Ray Data and Spark, each in an environment of its own, answer what ``predict`` answers."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import antiphon as package
from tests.toy import words

ROOT = Path(__file__).parent.parent.parent
WORDS = [*words(60, seed=3), "", *words(60, seed=4)]

RAY = """
import json, os, sys, tempfile
import numpy as np
import ray
from antiphon.integrations.batch import Predictor

class Noted(Predictor):
    def __call__(self, batch):
        return super().__call__(batch) | {"process": np.full(len(batch["id"]), os.getpid())}

run, words = sys.argv[1], json.loads(sys.argv[2])
logs = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=logs.name)
ray.data.DataContext.get_current().wait_for_min_actors_s = 300  # both work, however quick the first is
items = [{"id": index, "word": word} for index, word in enumerate(words)]
rows = ray.data.from_items(items).repartition(8).materialize()
options = {"source": "word", "nbest": 2}
by_tasks = rows.map_batches(Predictor(run, **options), batch_size=8).take_all()
actors = {"fn_constructor_kwargs": {"run": run, **options}, "concurrency": 2}
by_actors = rows.map_batches(Noted, batch_size=8, **actors).take_all()
processes = {int(row.pop("process")) for row in by_actors}
plain = [[{name: list(value) if name.startswith("nbest") else value for name, value in row.items()} for row in found]
         for found in (by_tasks, by_actors)]
print(json.dumps({"answers": plain, "processes": len(processes)}, default=float))
ray.shutdown()
"""

SPARK = """
import json, os, sys
from pyspark.sql import SparkSession
from antiphon.integrations.batch import Predictor

run, words = sys.argv[1], json.loads(sys.argv[2])
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.execution.arrow.maxRecordsPerBatch", "16").getOrCreate())
rows = spark.createDataFrame(list(enumerate(words)), "id long, word string").repartition(4)
schema = "id long, word string, prediction string, probability double, nbest array<string>, " \\
         "nbest_probability array<double>"
found = rows.mapInPandas(Predictor(run, source="word", nbest=2), schema).collect()
none = rows.filter("id < 0").mapInPandas(Predictor(run, source="word", nbest=2), schema).collect()
print(json.dumps({"answers": [[row.asDict() for row in found]], "empty": len(none)}))
"""


def call(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder, package):
    """The Python of a new environment that has the package, and sees this tree and all that is installed here."""
    call(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "project.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    call(python, "-m", "pip", "install", "--quiet", package)
    return python


def assert_same_answers(rows, run):
    """Rows come in any order; probabilities differ by what batches of another shape round."""
    expected = package.load(run).predict(WORDS, nbest=2)
    assert sorted(row["id"] for row in rows) == list(range(len(WORDS)))
    for row in rows:
        wanted = expected[row["id"]]
        assert row["prediction"] == wanted.text
        assert row["nbest"] == [each.text for each in wanted.nbest]
        assert row["nbest_probability"] == pytest.approx([each.probability for each in wanted.nbest], rel=1e-4)


@pytest.mark.slow
def test_ray_data_answers_what_predict_answers(tmp_path, toy_run):
    python = environment(tmp_path / "env", "ray[data]")
    found = json.loads(call(python, "-c", RAY, toy_run, json.dumps(WORDS)).splitlines()[-1])
    assert len(found["answers"]) == 2
    for rows in found["answers"]:
        assert_same_answers(rows, toy_run)
    assert found["processes"] == 2


@pytest.mark.slow
def test_spark_answers_what_predict_answers(tmp_path, toy_run):
    assert shutil.which("java"), "Spark needs Java: apt-get install default-jre-headless"
    python = environment(tmp_path / "env", "pyspark")
    found = json.loads(call(python, "-c", SPARK, toy_run, json.dumps(WORDS)).splitlines()[-1])
    (rows,) = found["answers"]
    assert_same_answers(rows, toy_run)
    assert found["empty"] == 0
