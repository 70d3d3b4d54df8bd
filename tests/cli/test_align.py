"""Links between words: evaluated on gold links, both directions combined; and metrics of compression."""

import json
import random
from itertools import pairwise

import pytest

import antiphon as package
from tests.lite.drawn_runs import write_run
from tests.shared_folders import filled_once

SMALL = {"model.hidden_size": 8, "train.max_epochs": 3, "train.passes": 1, "search.beam": 1, "model.dropout": 0.0}
WORDS = {"data.source_tokens": "words", "data.target_tokens": "words"}
KEPT, DROPPED = ("dogs", "cats", "run", "sleep", "eat"), ("very", "so", "quite")
GOLD = "dogs so run\tdogs run\t1-1 3-2\nquite cats\tcats\t1p1 2-1\n"
NAMES = ["alignment_error_rate", "alignment_precision", "alignment_recall"]


def write_compressions(path, number):
    """Sentences, and the same without some of their words."""
    draw = random.Random(number)
    sentences = [[*draw.choices(KEPT + DROPPED, k=draw.randint(2, 6)), "."] for _ in range(number)]
    lines = (f"{' '.join(words)}\t{' '.join(word for word in words if word not in DROPPED)}\n" for words in sentences)
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run over words, one of the other direction, one of attention and one over subwords, with gold links."""
    return filled_once(tmp_path_factory, "align", train_aligners)


def train_aligners(folder):
    data = {
        "data.train": write_compressions(folder / "train.tsv", 80),
        "data.dev": write_compressions(folder / "dev.tsv", 8),
    }
    pieces = {
        "data.source_tokens": "sentencepiece",
        "data.target_tokens": "sentencepiece",
        "data.sentencepiece_size": 24,
    }
    for name, settings in {
        "forward": WORDS,
        "backward": WORDS | {"data.swap": True},
        "attention": WORDS | {"model.kind": "attention"},
        "pieces": pieces,
    }.items():
        package.train({"train": {"dev_metric": "perplexity"}}, folder / name, settings=SMALL | data | settings)
    (folder / "gold.tsv").write_text(GOLD)
    (folder / "pharaoh.txt").write_text("0-0 2-1\n0p0 1-0\n")
    (folder / "naacl.txt").write_text("1 1 1 S\n1 3 2 S\n2 1 1 P\n2 2 1 S\n")


def metrics_of(result):
    assert result.status == 0, result.err
    return {name: score["value"] for name, score in json.loads(result.out)["metrics"].items()}


def links_of(line):
    return {tuple(map(int, link.split("-"))) for link in line.split()}


def by_hand(lines):
    """The three metrics of links in the Pharaoh format for the gold links above."""
    found = {(n, *link) for n, line in enumerate(lines) for link in links_of(line)}
    sure = {(0, 0, 0), (0, 2, 1), (1, 1, 0)}
    possible = sure | {(1, 0, 0)}
    values = (
        1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure)),
        len(found & possible) / max(1, len(found)),
        len(found & sure) / len(sure),
    )
    return pytest.approx({name: 100 * value for name, value in zip(NAMES, values, strict=True)})


@pytest.mark.parametrize("options", [["--threshold", "0.1"], ["--threshold", "0.6"], ["--reverse", "backward"]])
def test_what_is_evaluated_is_what_is_written(antiphon, folder, monkeypatch, options):
    monkeypatch.chdir(folder)
    lines = antiphon("align", "forward", "gold.tsv", *options).out.splitlines()
    found = metrics_of(antiphon("align", "forward", "--evaluate", "gold.tsv", "--format", "jsonl", *options))
    assert found == by_hand(lines)


@pytest.mark.parametrize("run", ["forward", "attention", "pieces", "backward"])
def test_every_format_of_gold_links_gives_the_same_figures(antiphon, folder, monkeypatch, run):
    monkeypatch.chdir(folder)
    as_json = ["--format", "jsonl"]
    expected = metrics_of(antiphon("align", run, "--evaluate", "gold.tsv", *as_json))
    assert list(expected) == NAMES
    for name in ("gold.tsv", "pharaoh.txt", "naacl.txt"):
        assert metrics_of(antiphon("align", run, "gold.tsv", "--evaluate", name, *as_json)) == expected


def test_the_best_path_has_no_links_to_end_symbols(folder):
    model = package.load(folder / "forward")
    pairs = [("dogs so run", "dogs run"), ("cats", "cats cats cats"), ("", "")]
    for alignment, links in zip(model.align(pairs), model.word_links(pairs), strict=True):
        last = len(alignment.source_symbols) - 1
        assert list(links.links) == sorted((row, j) for j, row in enumerate(alignment.rows[:-1]) if row < last)


def test_a_low_threshold_has_all_links_of_a_higher_one(folder):
    model = package.load(folder / "forward")
    pairs = [("dogs so run", "dogs run")]
    several = [set(next(model.word_links(pairs, threshold=threshold)).links) for threshold in (0.05, 0.3, 0.7, 1.0)]
    assert all(fewer <= more for more, fewer in pairwise(several))
    assert several[-1] == set()
    assert len(several[0]) > 0


def test_links_of_subwords_become_links_of_words(folder):
    model = package.load(folder / "pieces")
    tokens = model.codec.source.tokens("dogs so run")
    assert len(tokens) > 3
    found = next(model.word_links([("dogs so run", "dogs run")]))
    assert (found.source, found.target) == (("dogs", "so", "run"), ("dogs", "run"))
    assert {i for i, _ in found.links} <= {0, 1, 2}
    assert {j for _, j in found.links} <= {0, 1}


def test_directions_are_combined(antiphon, folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = {
        how: antiphon("align", "forward", "gold.tsv", "--reverse", "backward", "--combine", how).out.splitlines()
        for how in ("intersection", "grow-diag", "union")
    }
    forward = antiphon("align", "forward", "gold.tsv", "--format", "jsonl").out.splitlines()
    for number, alignment in enumerate(map(json.loads, forward)):
        both, grown, either = (links_of(found[number]) for found in lines.values())
        last = len(alignment["source"]) - 1
        assert both <= grown <= either
        assert {(row, j) for j, row in enumerate(alignment["rows"][:-1]) if row < last} <= either
    model, reverse = package.load("forward"), package.load("backward")
    pairs = [tuple(line.split("\t")[:2]) for line in GOLD.splitlines()]
    swapped = reverse.word_links(pairs_of_the_other_direction(pairs), reverse=model, combine="union")
    assert [{(j, i) for i, j in each.links} for each in swapped] == [links_of(line) for line in lines["union"]]


def pairs_of_the_other_direction(pairs):
    return [(target, source) for source, target in pairs]


def test_files_with_the_target_first_are_read_with_swap(antiphon, folder, tmp_path):
    (tmp_path / "swapped.tsv").write_text("dogs run\tdogs so run\t1-1 2-3\ncats\tquite cats\t1p1 1-2\n")
    evaluate = ["--format", "jsonl", "--evaluate"]
    expected = metrics_of(antiphon("align", folder / "forward", *evaluate, folder / "gold.tsv"))
    assert metrics_of(antiphon("align", folder / "forward", *evaluate, tmp_path / "swapped.tsv", "--swap")) == expected


def test_attention_is_marked_and_not_called_an_alignment(antiphon, folder):
    result = antiphon("align", folder / "attention", "--evaluate", folder / "gold.tsv", "--format", "jsonl")
    signatures = {score["signature"] for score in json.loads(result.out)["metrics"].values()}
    assert signatures == {"sure and possible links|largest attention weight, no alignment|percent"}
    written = antiphon("align", folder / "attention", folder / "gold.tsv", "--threshold", "0.2", "--format", "jsonl")
    assert json.loads(written.out.splitlines()[0])["method"] == "no alignment, attention weight > 0.2"
    assert "these links come from attention weights, which are not an alignment" in written.err


def test_characters_count_as_words_where_they_are_tokens(antiphon, toy_run, tmp_path):
    (tmp_path / "gold.tsv").write_text("badu\tbaaduun\t1-1 2-2 2-3 3-4 4-5 4-6 4p7\n")
    table = antiphon("align", toy_run, "--evaluate", tmp_path / "gold.tsv").out
    assert "alignment_error_rate" in table
    assert "sure and possible links|best path|percent" in table
    found = package.load(toy_run).evaluate_alignments([("badu", "baaduun")], ["0-0 1-1 1-2 2-3 3-4 3-5 3p6"])
    assert found.metrics["alignment_recall"].value > 80.0


def test_pairs_without_gold_links_are_counted(antiphon, folder, tmp_path):
    (tmp_path / "naacl.txt").write_text("1 1 1 S\n")
    result = antiphon("align", folder / "forward", folder / "gold.tsv", "--evaluate", tmp_path / "naacl.txt")
    assert "antiphon: 1 pair without gold links" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "FILE: missing, expected a TSV of pairs or two parallel files"),
        (["--evaluate", "pharaoh.txt"], "pharaoh.txt: links in the format pharaoh, without text, expected the pairs"),
        (["--evaluate", "missing.tsv"], "missing.tsv: no such file or directory"),
        (["dev.tsv", "--evaluate", "pharaoh.txt"], "pharaoh.txt: links of 2 pairs, expected 8 as there are pairs"),
        (
            ["--evaluate", "outside.tsv"],
            "outside.tsv:1: a link of source word 4 and target word 1 in a pair of 3 and 2",
        ),
        (["--evaluate", "unsure.tsv"], "unsure.tsv: no sure links, expected at least one"),
        (["--evaluate", "unlinked.tsv"], "unlinked.tsv: no sure links, expected at least one"),
        (["--evaluate", "gold.tsv", "--gold-format", "naacl"], "gold.tsv: links in the format naacl, without text"),
        (["gold.tsv", "--gold-format", "tsv"], "--gold-format: no gold links, expected it together with --evaluate"),
        (["gold.tsv", "--combine", "union"], "--combine: only one direction, expected it together with --reverse RUN"),
        (["gold.tsv", "--reverse", "forward"], "reverse: a run that reads pairs in the same direction, expected one"),
        (["gold.tsv", "--reverse", "nowhere"], "nowhere"),
        (["gold.tsv", "--threshold", "0"], "threshold = 0.0: expected a probability above 0, at most 1"),
        (["gold.tsv", "--threshold", "0.5", "--format", "png"], "links between words are not drawn"),
        (["gold.tsv", "--threshold", "0.5", "--plot", "a.png"], "links between words are not drawn"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_a_sentence(antiphon, folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "outside.tsv").write_text("dogs so run\tdogs run\t1-1 4-1\n")
    (folder / "unsure.tsv").write_text("dogs so run\tdogs run\t1p1\n")
    (folder / "unlinked.tsv").write_text("dogs so run\tdogs run\t\n")
    result = antiphon("align", "forward", *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""


def test_gold_links_without_features_are_refused_by_a_run_that_reads_them(antiphon, tmp_path):
    run = write_run(tmp_path / "run", "inflection")
    (tmp_path / "gold.tsv").write_text("fade\tfadeh\t1-1\n")
    (tmp_path / "pairs.tsv").write_text("fade\tfadeh\tN;PL\n")
    refused = antiphon("align", run, "--evaluate", tmp_path / "gold.tsv")
    assert refused.status == 2
    expected = "expected FILE with pairs and their features"
    assert f"gold.tsv: no features, but the run was trained with them, {expected}" in refused.err
    found = antiphon("align", run, tmp_path / "pairs.tsv", "--evaluate", tmp_path / "gold.tsv")
    assert found.status == 0
    assert "1 pair " in found.out


def test_runs_that_count_words_differently_are_refused(antiphon, folder, toy_run):
    result = antiphon("align", toy_run, folder / "gold.tsv", "--reverse", folder / "backward")
    assert result.status == 2
    assert "pair 1: the two runs count words differently" in result.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"combine": "mean"}, "combine: unknown 'mean', expected intersection, union, grow-diag"),
        ({"threshold": "high"}, "threshold = 'high': expected a probability above 0, at most 1"),
        ({"reverse": "runs/backward"}, "reverse = 'runs/backward': expected a model as antiphon.load returns it"),
    ],
)
def test_options_of_links_that_cannot_be_are_refused(folder, options, message):
    model = package.load(folder / "forward")
    with pytest.raises(package.InputError, match=message):
        model.word_links([("dogs", "dogs")], **options)
    with pytest.raises(package.InputError, match="gold: links of 2 pairs for 1 pairs"):
        model.evaluate_alignments([("dogs", "dogs")], ["0-0", "0-0"])
    with pytest.raises(package.InputError, match="gold 1: None, expected text such as '0-0 1p2', or GoldLinks"):
        model.evaluate_alignments([("dogs", "dogs")], [None])


def test_words_that_a_run_splits_are_refused(folder, tmp_path):
    split = {"data.split_punctuation": True, "data.train": folder / "train.tsv", "data.dev": folder / "dev.tsv"}
    recipe = {"train": {"dev_metric": "perplexity"}}
    model = package.train(recipe, tmp_path / "split", settings=SMALL | WORDS | split | {"train.max_epochs": 1})
    with pytest.raises(package.InputError, match=r"pair 1, 'cats run\.': 2 words that the run reads as 3, expected"):
        list(model.word_links([("cats run.", "cats")]))


def test_compression_is_scored_where_references_are_made_by_deletion(antiphon, folder, tmp_path):
    scores = metrics_of(antiphon("evaluate", folder / "forward", folder / "dev.tsv", "--json"))
    sources = [line.split("\t")[0].split() for line in (folder / "dev.tsv").read_text().splitlines()]
    written = package.load(folder / "forward").predict([" ".join(words) for words in sources])
    rates = [len(each.tokens) / len(words) for each, words in zip(written, sources, strict=True)]
    assert scores["compression_rate"] == pytest.approx(100 * sum(rates) / len(rates))
    assert 0 <= scores["retained_f1"] <= scores["rouge1"] + 1e-9
    assert scores.keys() >= {"retained_f1_micro", "compression_rate_chars", "reference_compression_rate"}
    (tmp_path / "translations.tsv").write_text("dogs run\tchiens courent\ncats eat\tchats mangent\n")
    other = metrics_of(antiphon("evaluate", folder / "forward", tmp_path / "translations.tsv", "--json"))
    assert not {"retained_f1", "compression_rate"} & other.keys()
