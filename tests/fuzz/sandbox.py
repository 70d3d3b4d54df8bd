"""Small data files of every format and a small run of every kind, made once."""

import gzip
from pathlib import Path

import numpy as np

from tests.fuzz.judge import Case, run
from tests.sealing import seal_again
from tests.toy import inflect, words, write_pairs, write_questions, write_vectors

RECIPE = """
[data]
train = "train.tsv"
dev = "dev.tsv"
[model]
hidden_size = 8
dropout = 0.0
[train]
max_epochs = 2
passes = 1
learning_rate = 0.01
[search]
beam = 2
"""
MATCHER = """
[data]
train = "questions.tsv"
dev = "questions.tsv"
vectors = "vectors.txt"
[model]
kind = "matcher"
sentence = "lstm"
hidden_size = 4
[train]
max_epochs = 1
passes = 1
dev_metric = "map"
"""
RUNS = {
    "direct": ("recipe.toml", []),
    "online": ("recipe.toml", ["model.encoder=unidirectional"]),
    "tagged": ("recipe.toml", ["data.train=tagged.tsv", "data.dev=tagged.tsv", "model.encoder=unidirectional"]),
    "channel": ("recipe.toml", ["model.encoder=unidirectional", "data.swap=true"]),
    "lm": ("recipe.toml", ["model.kind=language_model", "data.unpaired=unpaired.txt", "data.vocab_from=direct"]),
    "attention": ("recipe.toml", ["model.kind=attention"]),
    "transformer": ("recipe.toml", ["model.kind=transformer"]),
    "encoder_decoder": ("recipe.toml", ["model.kind=encoder_decoder", "data.target_tokens=words"]),
    "rules": ("recipe.toml", ["model.kind=suffix_rule", "train.dev_metric=accuracy"]),
    "pieces": ("recipe.toml", ["data.source_tokens=sentencepiece", "data.sentencepiece_size=30"]),
    "stopped": ("recipe.toml", []),
    "matcher": ("matcher.toml", []),
    "counted": ("matcher.toml", ["model.overlap=true", "model.sentence=lstm_attention"]),
    "overlap": ("matcher.toml", ["model.kind=overlap"]),
}
"""Recipe and settings of every run."""
WRITERS = ("direct", "pieces", "online", "tagged", "attention", "transformer", "encoder_decoder", "rules", "noisy")
RANKERS = ("matcher", "counted", "overlap")


def build(folder: Path) -> None:
    """Fills an empty folder, from which commands are meant to be given."""
    write_data(folder)
    for name, (recipe, settings) in RUNS.items():
        arguments = [part for setting in settings for part in ("--set", setting)]
        _must(["train", recipe, *arguments, "--out", name])
    (folder / "stopped" / "metrics.json").unlink()
    seal_again(folder / "stopped")
    _must(["combine", "--direct", "online", "--channel", "channel", "--lm", "lm", "--out", "noisy"])


def write_data(folder: Path) -> None:
    """Every kind of file that is read."""
    write_pairs(folder / "train.tsv", 30, seed=1)
    write_pairs(folder / "dev.tsv", 4, seed=2)
    (folder / "train.tsv.gz").write_bytes(gzip.compress((folder / "train.tsv").read_bytes()))
    tagged = "".join(f"{word}\t{inflect(word)}\tN;{case}\n" for word in words(20) for case in ("DAT", "PL"))
    (folder / "tagged.tsv").write_text(tagged)
    (folder / "source.txt").write_text("".join(f"{word}\n" for word in words(5)))
    (folder / "target.txt").write_text("".join(f"{inflect(word)}\n" for word in words(5)))
    (folder / "unpaired.txt").write_text("".join(f"{inflect(word)}\n" for word in words(30, seed=4)))
    (folder / "table.csv").write_text("".join(f"{word};{' '.join(inflect(word))}\n" for word in words(80)))
    (folder / "lexicon.txt").write_text("".join(f"{word} {' '.join(inflect(word))}\n" for word in words(20)))
    write_questions(folder / "questions.tsv", 4)
    (folder / "trec.txt").write_text(QA_PAIRS)
    (folder / "qrels.txt").write_text("q0 0 q0-0 1\nq0 0 q0-1 0\nq1 0 q1-0 0\n")
    write_vectors(folder / "vectors.txt", width=4)
    write_binary_vectors(folder)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "matcher.toml").write_text(MATCHER)


QA_PAIRS = """<QApairs id='1'>
<question>
which\tcolour\t?
</question>
<positive>
the\tred\thouse
</positive>
<negative>
the\told\tdog
</negative>
</QApairs>
"""


def write_binary_vectors(folder: Path) -> None:
    """The vectors of the text file in both other formats."""
    rows = [line.split() for line in (folder / "vectors.txt").read_text().splitlines()]
    names, numbers = [row[0] for row in rows], np.array([row[1:] for row in rows], np.float32)
    np.savez(folder / "vectors.npz", words=np.array(names), vectors=numbers)
    packed = b"".join(f"{name} ".encode() + row.tobytes() + b"\n" for name, row in zip(names, numbers, strict=True))
    (folder / "vectors.bin").write_bytes(f"{len(names)} {numbers.shape[1]}\n".encode() + packed)


def _must(arguments: list[str]) -> None:
    status, _, err, trace = run(Case("sandbox", arguments))
    assert status == 0, f"{arguments}: {err}{trace}"
