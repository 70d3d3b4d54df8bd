"""Small runs of every kind that the page shows, trained in seconds."""

import random
from itertools import product

from antiphon.api.train_recipe import train
from antiphon.runs.combined_runs import combine_runs
from tests.toy import inflect, words, write_pairs, write_questions, write_vectors

SMALL = {"model": {"hidden_size": 32, "dropout": 0.1}, "search": {"beam": 4}}
TRAINING = {
    "train.learning_rate": 0.01,
    "train.final_learning_rate_ratio": 0.05,
    "train.hallucination": 0.0,
    "train.passes": 1,
    "train.batch_size": 32,
}
NAMES = ("online", "waiting", "noisy", "lm", "genders", "answers", "attention", "scripts")
GENDERS = {"MASC": "o", "FEM": "a"}
SCRIPTS = {"가": "با", "민": "نت", "소": "سو", "달": "دل"}
"""Syllables of Hangul, which are read as two or three letters, and what is written for them from right to left."""


def train_runs(folder):
    """Trains the runs in ``NAMES``, and what they are made of."""
    train_pairs, dev_pairs = write_pairs(folder / "train.tsv", 400, seed=1), write_pairs(folder / "dev.tsv", 20, seed=2)
    (folder / "more.txt").write_text("".join(f"{inflect(word)}\n" for word in words(200, seed=4)))
    pairs = {"data.train": train_pairs, "data.dev": dev_pairs}
    online = {"model.encoder": "unidirectional"}
    _train(folder / "online", pairs | online, epochs=25)
    _train(folder / "waiting", pairs | {"model.encoder": "bidirectional"}, epochs=2)
    _train(folder / "channel", pairs | online | {"data.swap": True}, epochs=2)
    unpaired = {"data.unpaired": [str(folder / "more.txt")], "data.vocab_from": folder / "online"}
    _train(folder / "lm", pairs | unpaired | {"model.kind": "language_model"}, epochs=2)
    weights = {"weights": (1.0, 0.1, 0.1, 0.1)}
    combine_runs(folder / "online", folder / "channel", folder / "lm", folder / "noisy", weights, force=True)
    genders = {
        "data.train": write_genders(folder / "g.train.tsv", 1),
        "data.dev": write_genders(folder / "g.dev.tsv", 2),
    }
    _train(folder / "genders", genders | online, epochs=15)
    _train(folder / "attention", pairs | {"model.kind": "attention"}, epochs=1)
    scripts = {"data.train": write_scripts(folder / "s.train.tsv"), "data.dev": write_scripts(folder / "s.dev.tsv")}
    _train(folder / "scripts", scripts | online, epochs=20)
    train_ranker(folder)


def write_genders(path, seed):
    """Words with a feature that decides their ending."""
    draw = random.Random(seed)
    genders = [draw.choice(list(GENDERS)) for _ in range(150)]
    lines = [
        f"{word}\t{word}{GENDERS[gender]}\tN;{gender}\n" for word, gender in zip(words(150, seed), genders, strict=True)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_scripts(path):
    """All words of up to three syllables, as both sides write them."""
    words = [word for length in (1, 2, 3) for word in product(SCRIPTS, repeat=length)]
    lines = [f"{''.join(word)}\t{''.join(map(SCRIPTS.__getitem__, word))}\n" for word in words]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def train_ranker(folder):
    """A matcher with attention, which the page shows as colours."""
    data = {
        "train": str(write_questions(folder / "q.train.tsv", 40, seed=1)),
        "dev": str(write_questions(folder / "q.dev.tsv", 10, seed=2)),
        "vectors": str(write_vectors(folder / "vectors.txt")),
    }
    model = {"kind": "matcher", "sentence": "lstm_attention", "hidden_size": 8, "layers": 1}
    train({"data": data, "model": model, "train": {"max_epochs": 2}}, folder / "answers", device="cpu", threads=1)


def _train(out, settings, epochs):
    every = {**TRAINING, **settings, "train.max_epochs": epochs}
    train(SMALL, out, settings=every, device="cpu", threads=1)
