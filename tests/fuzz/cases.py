"""Commands drawn from a seed: arguments, settings, recipes, data, vectors, run folders, streams."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from antiphon.exceptions import RunError
from antiphon.recipe.schema import Recipe, unused_settings
from tests.fuzz.judge import Case
from tests.fuzz.mutations import LINES, NUMBERS, TEXTS, damaged_npz, mutate, toml_value
from tests.fuzz.sandbox import RANKERS, RUNS, WRITERS
from tests.sealing import seal_again

KEYS = [f"{section}.{key}" for section, field in Recipe.model_fields.items() for key in field.annotation.model_fields]
QUICK = ["--set", "train.max_epochs=1", "--set", "train.passes=1"]
OPTIONS = {
    "train": ("--set", "--out", "--device", "--threads", "--resume", "--force", "--dry-run"),
    "predict": (
        *("--beam", "--nbest", "--format", "--device", "--threads", "--explain"),
        *("--lexicon", "--allow-unknown-features", "--shard", "--part-lines", "--set"),
    ),
    "stream": (
        *("--policy", "--emit-bias", "--beam", "--margin", "--features", "--format", "--device", "--threads"),
        "--set",
    ),
    "evaluate": (
        *("--json", "--reference", "--beam", "--online", "--policy", "--emit-bias", "--margin"),
        *("--questions", "--qrels", "--by", "--device", "--threads", "--set"),
    ),
    "errors": ("--by", "--against", "--suspicious", "--most", "--format", "--out", "--beam", "--device", "--threads"),
    "compare": (
        *("--format", "--reference", "--beam", "--questions", "--qrels", "--device", "--threads"),
        *("--sheet", "--tally", "--seed"),
    ),
    "align": (
        *("--format", "--out", "--limit", "--device", "--threads", "--evaluate", "--gold-format", "--threshold"),
        *("--reverse", "--combine", "--swap"),
    ),
    "combine": (
        "--direct",
        "--channel",
        "--lm",
        "--weights",
        "--beam",
        "--out",
        "--force",
    ),
    "tune": ("--metric", "--rounds", "--nbest", "--device", "--threads"),
    "grid": (
        "--grid",
        "--set",
        "--out",
        "--sampler",
        "--trials",
        "--prune",
        "--seed",
        "--device",
        "--storage",
    ),
    "info": ("--json",),
    "export": ("--out", "--int8"),
    "recipes": ("--copy",),
}
FLAGS = (
    "--resume",
    "--force",
    "--int8",
    "--dry-run",
    "--explain",
    "--json",
    "--online",
    "--suspicious",
    "--swap",
    "--allow-unknown-features",
)
DATA = ("train.tsv", "tagged.tsv", "source.txt", "target.txt", "unpaired.txt", "dev.tsv", "train.tsv.gz")
QUESTIONS = ("questions.tsv", "trec.txt", "qrels.txt")


class Scratch:
    """The folder in which one case runs: data files, runs as they are asked for, and oddities."""

    def __init__(self, template: Path, folder: Path, draw: Random) -> None:
        self.template, self.folder, self.draw = template, folder, draw
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for path in template.iterdir():
            if path.is_file():
                os.link(path, folder / path.name)
        (folder / "empty").mkdir()
        (folder / "dangling").symlink_to("nowhere")
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        os.chdir(folder)

    def run(self, name: str) -> str:
        """A copy of a run."""
        if not (self.folder / name).exists():
            shutil.copytree(self.template / name, self.folder / name)
        return name

    def write(self, name: str, content: bytes) -> str:
        """A file with other content."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return name

    def damaged(self, name: str) -> str:
        """A data file with changes."""
        return self.write(name, mutate((self.template / name).read_bytes(), self.draw))


COMMANDS = (
    "train recipe.toml --out out",
    "train matcher.toml",
    "train recipe.toml --out direct --resume",
    "train toy --dry-run",
    "predict direct source.txt",
    "predict tagged tagged.tsv --format jsonl",
    "predict noisy --beam 2",
    "predict noisy source.txt --set search.weights=[1,0,1,0]",
    "predict matcher questions.tsv",
    "predict counted trec.txt --explain",
    "stream online",
    "stream tagged --features N;DAT --format jsonl",
    "stream noisy --margin 1",
    "stream online --set search.commit_margin=2",
    "evaluate direct dev.tsv",
    "evaluate online dev.tsv --online --json",
    "evaluate attention source.txt target.txt --reference target.txt",
    "evaluate matcher questions.tsv --qrels qrels.txt",
    "evaluate lm unpaired.txt",
    "compare direct online dev.tsv",
    "compare matcher overlap questions.tsv --format json",
    "compare direct rules attention dev.tsv --format json",
    "compare direct rules dev.tsv --sheet sheet.tsv --questions 5",
    "compare --tally dev.tsv",
    "errors direct dev.tsv --most 3",
    "errors tagged tagged.tsv --by feature --format tsv",
    "errors rules dev.tsv --against direct --format tsv --out report",
    "errors matcher questions.tsv --against overlap",
    "errors attention train.tsv --suspicious --format jsonl",
    "predict direct source.txt --lexicon train.tsv",
    "align direct dev.tsv",
    "align attention dev.tsv --format jsonl",
    "align online dev.tsv --format png --limit 1",
    "combine --direct online --channel channel --lm lm --out out",
    "combine --direct direct --lm lm --out out --weights 1,0,1,0",
    "tune noisy dev.tsv --rounds 1 --nbest 2",
    "grid recipe.toml --grid train.seed=1,2",
    "info direct",
    "info noisy --json",
    "export direct --out out",
    "recipes",
    "recipes toy",
    "recipes toy --copy out",
)
"""One of everything that works."""


def arguments_case(scratch: Scratch) -> Case:
    """A command that works, with one or two changes."""
    draw = scratch.draw
    arguments = draw.choice(COMMANDS).split(" ")
    verb = arguments[0]
    for _ in range(draw.choice((1, 1, 2))):
        _change(arguments, scratch, verb)
    for name in (*RUNS, "noisy", "cache"):
        if any(name == argument.split("/")[0] for argument in arguments):
            scratch.run(name)
    arguments += QUICK if arguments[:1] == ["train"] else []
    return Case(
        "arguments", arguments, stdin=b"\n".join(draw.choices(LINES, k=2)), may_change=_written(scratch, arguments)
    )


def _change(arguments: list[str], scratch: Scratch, verb: str) -> None:
    """Adds an option, or replaces, removes or repeats an argument."""
    draw = scratch.draw
    place = draw.randrange(1, len(arguments)) if len(arguments) > 1 else 0
    kind = draw.randrange(8)
    if kind < 4:
        arguments += _option(scratch, draw.choice(OPTIONS[verb]))
    elif kind < 6:
        arguments[place] = draw.choice((*TEXTS, *WRITERS, *RANKERS, *DATA, *QUESTIONS))
    elif kind == 6 and len(arguments) > 1:
        del arguments[place]
    else:
        arguments.insert(place, arguments[place])


def _option(scratch: Scratch, name: str) -> list[str]:
    draw = scratch.draw
    if name in FLAGS:
        return [name]
    if name in ("--set", "--grid"):
        return [name, f"{draw.choice(KEYS)}={draw.choice((*NUMBERS, *TEXTS))}"]
    if name in ("--direct", "--channel", "--lm"):
        return [name, draw.choice(("direct", "channel", "lm", "online", "tagged", draw.choice(TEXTS)))]
    if name == "--weights":
        return [name, ",".join(draw.choice(NUMBERS) for _ in range(draw.choice((1, 2, 4))))]
    named = {
        "--policy": ("greedy", "beam"),
        "--format": ("text", "jsonl", "json", "markdown", "png", "pharaoh", "table"),
        "--device": ("cpu", "auto", "cuda", "meta"),
        "--questions": ("all", "mixed", "answerable"),
        "--qrels": ("qrels.txt",),
        "--reference": ("target.txt",),
        "--out": ("out", "out/deep/er", "[fr]", "[/b]"),
        "--metric": ("accuracy", "bleu", "map"),
        "--features": ("N;DAT", "X;Y", "\x1f"),
        "--by": ("feature", "features", "length", "unseen"),
        "--against": WRITERS,
        "--lexicon": DATA,
        "--evaluate": DATA,
        "--gold-format": ("tsv", "pharaoh", "naacl"),
        "--reverse": WRITERS,
        "--combine": ("intersection", "union", "grow-diag"),
    }
    return [name, draw.choice((*named.get(name, ()), *named.get(name, ()), draw.choice(NUMBERS), draw.choice(TEXTS)))]


def _written(scratch: Scratch, arguments: list[str]) -> list[Path]:
    """The runs that a command may change."""
    if arguments[0] in ("tune", "evaluate"):
        return [scratch.folder / name for name in arguments[1:2]]
    return [scratch.folder / name for name in arguments if "--force" in arguments or "--resume" in arguments]


def settings_case(scratch: Scratch) -> Case:
    """A setting or two that a kind of model has, with odd values; or one of the search of a trained run."""
    draw = scratch.draw
    if draw.random() < 0.2:
        return _search_case(scratch)
    kind = draw.choice(_KINDS)
    recipe = "matcher.toml" if kind in _KINDS[-2:] else "recipe.toml"
    keys = [key for key in KEYS if not unused_settings(kind, _nested(key))]
    values = [
        draw.choice((draw.choice(NUMBERS), draw.choice(_PLAIN), draw.choice(TEXTS), toml_value(draw))) for _ in "ab"
    ]
    settings = [f"{draw.choice(keys)}={value}" for value in values[: draw.choice((1, 1, 2))]]
    settings += [f"model.kind={kind}"] if kind not in ("transducer", "matcher") else []
    settings += ["train.dev_metric=accuracy"] if kind == "suffix_rule" else []
    for name in ("direct", "lm"):
        scratch.run(name)
    return _training(scratch, "settings", recipe, settings)


def _search_case(scratch: Scratch) -> Case:
    draw = scratch.draw
    key = draw.choice([key for key in KEYS if key.startswith("search.")])
    value = draw.choice((draw.choice(NUMBERS), draw.choice(_PLAIN), draw.choice(TEXTS), toml_value(draw)))
    command = draw.choice((["predict", "source.txt"], ["evaluate", "dev.tsv"], ["stream"]))
    run = scratch.run(draw.choice(WRITERS))
    arguments = [command[0], run, *command[1:], "--set", f"{key}={value}"]
    return Case("settings", arguments, stdin=b"\n".join(draw.choices(LINES, k=2)))


_PLAIN = (
    "1",
    "2",
    "3",
    "0.1",
    "0.9",
    "true",
    "false",
    "words",
    "chars",
    "sentencepiece",
    "geometric",
    "forced",
    "adagrad",
)


def _nested(key: str) -> dict[str, dict[str, int]]:
    section, _, name = key.partition(".")
    return {section: {name: 1}}


_KINDS = (
    "transducer",
    "encoder_decoder",
    "attention",
    "transformer",
    "language_model",
    "suffix_rule",
    "noisy_channel",
    "overlap",
    "matcher",
)


def _training(scratch: Scratch, area: str, recipe: str, settings: list[str]) -> Case:
    arguments = ["train", recipe, "--out", "out"]
    for setting in settings:
        arguments += ["--set", setting]
    arguments += QUICK
    if scratch.draw.random() < 0.3:
        arguments.append("--dry-run")
    return Case(area, arguments, may_change=[scratch.folder / name for name in ("out", "cache", "x")])


def recipe_case(scratch: Scratch) -> Case:
    """A recipe with changed bytes, lines or values."""
    draw = scratch.draw
    recipe = draw.choice(("recipe.toml", "matcher.toml"))
    if draw.random() < 0.5:
        scratch.damaged(recipe)
    else:
        section, _, key = draw.choice(KEYS).partition(".")
        key = draw.choice((key, key, key, '"\\u001b[2J"', '"[bold]"', '"a\\nb"', "x" * 500))
        text = (scratch.template / recipe).read_text()
        line = f"{key} = {toml_value(draw)}\n"
        changed = (
            text.replace(f"[{section}]\n", f"[{section}]\n{line}")
            if f"[{section}]" in text
            else f"{text}[{section}]\n{line}"
        )
        scratch.write(recipe, changed.encode("utf-8", "surrogateescape"))
    return _training(scratch, "recipes", recipe, [])


def data_case(scratch: Scratch) -> Case:
    """Damaged pairs or questions, in training and in everything that reads them."""
    draw = scratch.draw
    if draw.random() < 0.3:
        return draw.choice((_questions_case, _table_case, _lexicon_case))(scratch)
    name = scratch.damaged(draw.choice(DATA))
    kind = draw.randrange(8)
    if kind == 0:
        kinds = draw.choice(([], ["model.kind=suffix_rule", "train.dev_metric=accuracy"], ["model.kind=attention"]))
        tokens = draw.choice(([], ["data.source_tokens=words"], ["data.target_tokens=words", "data.nfc=true"]))
        return _training(scratch, "data", "recipe.toml", [f"data.train={name}", *kinds, *tokens])
    if kind == 1:
        settings = ["model.kind=language_model", f"data.unpaired={name}"]
        return _training(scratch, "data", "recipe.toml", settings)
    if kind == 2:
        return _training(
            scratch, "data", "recipe.toml", ['data.train=["source.txt", "target.txt"]', f"data.dev={name}"]
        )
    run = scratch.run(draw.choice((*WRITERS, "lm")))
    verbs = (
        ["predict", run, name],
        ["evaluate", run, name],
        ["errors", run, name],
        ["predict", run, "source.txt", "--lexicon", name],
        ["align", run, name],
        ["align", run, "source.txt", "target.txt"],
    )
    extra = draw.choice(
        (
            [],
            ["--format", "jsonl"],
            ["--online"],
            ["--reference", "target.txt"],
            ["--json"],
            ["--nbest", "3"],
            ["--suspicious"],
        )
    )
    return Case("data", [*draw.choice(verbs), *extra], may_change=[scratch.folder / "alignments"])


def _questions_case(scratch: Scratch) -> Case:
    draw = scratch.draw
    name = scratch.damaged(draw.choice(QUESTIONS))
    run = scratch.run(draw.choice(RANKERS))
    file = name if name != "qrels.txt" else "questions.tsv"
    more = ["--qrels", name] if name == "qrels.txt" else []
    kind = draw.randrange(4)
    if kind == 0:
        return _training(
            scratch, "data", "matcher.toml", [f"data.train={file}", f"model.kind={draw.choice(_KINDS[-2:])}"]
        )
    if kind == 1:
        return Case("data", ["predict", run, file, *draw.choice(([], ["--format", "jsonl"], ["--explain"]))])
    if kind == 2:
        return Case("data", ["predict", run], stdin=(scratch.folder / file).read_bytes())
    return Case("data", ["evaluate", run, file, "--questions", draw.choice(("all", "mixed", "answerable")), *more])


def _table_case(scratch: Scratch) -> Case:
    """A file of pairs to learn as it is."""
    name = scratch.damaged(scratch.draw.choice(("table.csv", "tagged.tsv")))
    case = _training(scratch, "data", name, ["model.hidden_size=4"])
    return Case("data", case.arguments, may_change=[*case.may_change, scratch.folder / "out-pairs"])


def _lexicon_case(scratch: Scratch) -> Case:
    """A lexicon to fill, and words."""
    names = ["lexicon.txt", "source.txt"]
    scratch.damaged(scratch.draw.choice(names))
    form = scratch.draw.choice(
        ([], ["--to", "mfa"], ["--format", "cmudict"], ["--format", "wikipron", "--to", "kaldi"])
    )
    return Case("data", ["fill", *names, "--out", "out", *form], may_change=[scratch.folder / "out"])


def parts_case(scratch: Scratch) -> Case:
    """Damage in what a training takes from elsewhere: another run."""
    draw = scratch.draw
    run = scratch.run(draw.choice(("direct", "pieces", "lm", "tagged")))
    _damage(draw.choice(sorted((scratch.folder / run).glob("*.[vt]*"))), draw)
    with suppress(OSError, RunError):
        seal_again(scratch.folder / run)
    return _training(scratch, "parts", "recipe.toml", [f"data.vocab_from={run}"])


def vectors_case(scratch: Scratch) -> Case:
    """Damaged word vectors in each of their formats."""
    draw = scratch.draw
    name = draw.choice(("vectors.txt", "vectors.bin", "vectors.npz", "vectors.npz"))
    if name == "vectors.npz" and draw.random() < 0.8:
        scratch.write(name, damaged_npz(draw))
    else:
        scratch.damaged(name)
    return _training(scratch, "vectors", "matcher.toml", [f"data.vectors={name}", "model.sentence=bag_of_words"])


def run_case(scratch: Scratch) -> Case:
    """A run with a damaged, missing or strange file, and a verb that reads it."""
    draw = scratch.draw
    run = scratch.run(draw.choice((*RUNS, "noisy", "stopped", "stopped")))
    folder = scratch.folder / run
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice(files)
    _damage(path, draw)
    if draw.random() < 0.8:
        with suppress(OSError, RunError):
            seal_again(folder)
    file = "questions.tsv" if run in RANKERS else "tagged.tsv" if run == "tagged" else "dev.tsv"
    verbs = [["info", run], ["predict", run, file], ["evaluate", run, file], ["align", run, file], ["stream", run]]
    verbs += [["combine", "--direct", run, "--out", "out"], ["compare", run, run, file], _resumed(run)]
    verbs += [["errors", run, file], ["errors", run, file, "--against", run]]
    if run == "noisy":
        verbs += [["tune", run, file, "--rounds", "1", "--nbest", "2"]]
    changed = [scratch.folder / "out", folder]
    return Case("runs", draw.choice(verbs), stdin=b"badu\n", may_change=changed)


def _resumed(run: str) -> list[str]:
    recipe, settings = RUNS.get(run, RUNS["direct"])
    settings = [*settings, "train.max_epochs=3"] if run == "stopped" else settings
    return ["train", recipe, *(part for setting in settings for part in ("--set", setting)), "--out", run, "--resume"]


def _damage(path: Path, draw: Random) -> None:
    kind = draw.randrange(12)
    content = path.read_bytes()
    if kind < 9:
        path.write_bytes(_with_values(content, path, draw) if kind < 3 else mutate(content, draw))
        return
    path.unlink()
    if kind == 9:
        path.mkdir()
    elif kind == 10:
        path.symlink_to(draw.choice(("/dev/zero", "nowhere", path.name, "../train.tsv")))


def _with_values(content: bytes, path: Path, draw: Random) -> bytes:
    """A file of settings or numbers with another value in one place."""
    lines = content.split(b"\n")
    places = [place for place, line in enumerate(lines) if b"=" in line or b":" in line]
    if path.suffix not in (".toml", ".json") or not places:
        return mutate(content, draw)
    place = draw.choice(places)
    mark = b"=" if path.suffix == ".toml" else b":"
    key, _, old = lines[place].partition(mark)
    comma = b"," if old.rstrip().endswith(b",") and path.suffix == ".json" else b""
    value = toml_value(draw) if path.suffix == ".toml" else draw.choice((*NUMBERS, '"\\u001b[2J"', '"[/b]"', "[[]]"))
    lines[place] = key + mark + b" " + value.encode("utf-8", "surrogateescape") + comma
    return b"\n".join(lines)


def input_case(scratch: Scratch) -> Case:
    """Odd lines on standard input, to be answered or streamed."""
    draw = scratch.draw
    lines = draw.choices([*LINES, *(b"badu", b"kato", b"i", b"bad\xc3\xbc")], k=draw.randrange(4))
    stdin = b"\n".join(lines) + draw.choice((b"", b"\n", b"\r\n"))
    if draw.random() < 0.5:
        run = scratch.run(draw.choice(WRITERS))
        options = draw.choice(([], ["--beam", "1"], ["--nbest", "3", "--format", "jsonl"]))
        wanted = stdin.count(b"\n") + (not stdin.endswith(b"\n") and bool(stdin))
        return Case("input", ["predict", run, *options], stdin=stdin, lines=wanted)
    run = scratch.run(draw.choice(("online", "tagged", "noisy")))
    options = draw.choice(([], ["--policy", "greedy"], ["--emit-bias", "-1000"], ["--margin", "0"], ["--beam", "3"]))
    options += draw.choice(([], [], ["--format", "jsonl"], ["--features", "N;DAT"]))
    return Case("input", ["stream", run, *options], stdin=stdin)


AREAS: dict[str, tuple[Callable[[Scratch], Case], int]] = {
    "arguments": (arguments_case, 6),
    "settings": (settings_case, 4),
    "recipes": (recipe_case, 4),
    "data": (data_case, 5),
    "vectors": (vectors_case, 2),
    "parts": (parts_case, 3),
    "runs": (run_case, 6),
    "input": (input_case, 3),
}
"""How a case of each area is drawn, and how many of all cases it gets."""


def draw_case(scratch: Scratch, only: str | None = None) -> Case:
    """A case of any area, or of one."""
    area = only or scratch.draw.choices(list(AREAS), [weight for _, weight in AREAS.values()])[0]
    return AREAS[area][0](scratch)
