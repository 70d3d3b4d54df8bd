"""Small runs of every sort, and one server for all of them."""

import pytest

import antiphon as package
from antiphon.runs.combined_runs import combine_runs
from tests.serve.processes import start
from tests.toy import inflect, words, write_pairs, write_questions, write_vectors

SMALL = {
    "model.hidden_size": 16,
    "model.embedding_size": 8,
    "train.max_epochs": 2,
    "train.dev_metric": "perplexity",
    "train.batch_size": 16,
    "train.learning_rate": 0.02,
    "search.beam": 3,
}
NAMES = ("online", "offline", "features", "lm", "noisy", "answers")


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with runs: trained for seconds, they write something, seldom what is right."""
    folder = tmp_path_factory.mktemp("served")
    pairs = {
        "data.train": str(write_pairs(folder / "pairs.tsv", 80)),
        "data.dev": str(write_pairs(folder / "dev.tsv", 20, seed=1)),
    }
    tagged = folder / "tagged.tsv"
    forms = zip(words(60), ("V;SG", "V;PL") * 30, strict=True)
    tagged.write_text("".join(f"{word}\t{inflect(word)}\t{tags}\n" for word, tags in forms))

    def learn(name, **settings):
        given = pairs | SMALL | {key.replace("__", "."): value for key, value in settings.items()}
        package.train("toy", folder / name, settings=given, device="cpu")

    learn("online", model__encoder="unidirectional")
    learn("offline")
    learn("back", data__swap=True, model__encoder="unidirectional")
    learn("features", model__encoder="unidirectional", data__train=str(tagged), data__dev=str(tagged))
    language_model = pairs | {key: value for key, value in SMALL.items() if not key.startswith("search")}
    recipe = {"model": {"kind": "language_model", "hidden_size": 16}, "data": {}, "train": {}}
    package.train(recipe, folder / "lm", settings=language_model, device="cpu")
    combine_runs(
        folder / "online", folder / "back", folder / "lm", folder / "noisy", {"weights": (1, 0.5, 0.5, 0.1)}, force=True
    )
    learn_to_rank(folder)
    return folder


def learn_to_rank(folder):
    write_questions(folder / "questions.tsv", 40)
    write_vectors(folder / "vectors.txt")
    data = {name: str(folder / "questions.tsv") for name in ("train", "dev")} | {"vectors": str(folder / "vectors.txt")}
    model = {"kind": "matcher", "sentence": "lstm_attention", "hidden_size": 8, "layers": 1}
    package.train({"data": data, "model": model, "train": {"max_epochs": 2, "dev_metric": "map"}}, folder / "answers")


@pytest.fixture(scope="session")
def server(runs):
    """All runs, served by the real command."""
    running = start(["-m", "antiphon", "serve", *(runs / name for name in NAMES), "--port", 0, "--device", "cpu"])
    yield running
    assert running.stop() == 0
    assert not [line for line in running.errors if "Traceback" in line], running.errors


@pytest.fixture(scope="session")
def models(runs):
    """The same runs in this process."""
    return {name: package.load(runs / name, device="cpu") for name in NAMES}
