"""``antiphon fill`` completes a lexicon in its own symbols and format."""

import itertools
import os
from threading import Thread

import pytest

from antiphon.exceptions import InputError
from antiphon.pronunciation.filling import LexiconLookup, fill, training_pairs
from antiphon.pronunciation.lexicon_files import FORMATS, Entry, PronunciationLexicon
from antiphon.torch_free.results import Candidate, Prediction

SOUNDS = {"A": "ah", "B": "b", "I": "ih", "K": "k", "S": "s", "U": "uw"}


def lines(form="{word} {phonemes}"):
    """A lexicon of 216 made-up words in capitals, one sound for a letter."""
    words = map("".join, itertools.product("BKS", "AIU", "BKS", "AIU", "BKS"))
    return [form.format(word=word, phonemes=" ".join(SOUNDS[letter] for letter in word)) for word in words]


def lexicon_of(*entries, name="kaldi-p"):
    return PronunciationLexicon(FORMATS[name], [Entry(word, tuple(said.split()), (p,)) for word, said, p in entries])


def prediction(*outputs, unknown=()):
    found = [Candidate(" ".join(tokens), tuple(tokens.split()), log_probability=-n - 1.0) for n, tokens in outputs]
    return Prediction("x", (), tuple(found), unknown)


def test_known_words_keep_their_entries_in_any_case():
    lookup = LexiconLookup(lexicon_of(("KNIGHT", "n ay t", 1.0), ("<SIL>", "SIL", 1.0)))
    assert [entry.phonemes for entry in lookup.find("knight")] == [("n", "ay", "t")]
    mixed = LexiconLookup(lexicon_of(("Polish", "p ow", 1.0), ("polish", "p aa", 1.0)))
    assert [entry.phonemes for entry in mixed.find("Polish")] == [("p", "ow")]
    assert mixed.find("POLISH") == ()


def test_no_symbol_but_those_of_the_lexicon_is_written_and_the_best_reading_has_probability_one():
    lexicon = lexicon_of(("knight", "n ay t", 1.0), ("tin", "t ih n", 0.5))
    found = list(fill(["nit", "tin"], lexicon, {"nit": prediction((0, "n q t"), (1, "n ih t"), (2, "n ay t"))}))
    assert [entry.phonemes for entry in found[0].entries] == [("n", "ih", "t"), ("n", "ay", "t")]
    assert found[0].entries[0].numbers == (1.0,)
    assert found[0].entries[1].numbers[0] == pytest.approx(0.3679, abs=1e-4)
    assert found[0].origin == "model"
    assert found[1].entries == (Entry("tin", ("t", "ih", "n"), (0.5,)),)


def test_readings_too_improbable_for_a_number_are_written():
    lexicon = lexicon_of(("knight", "n ay t", 1.0))
    (found,) = fill(["nit"], lexicon, {"nit": prediction((1000, "n t"))})
    assert found.entries == (Entry("nit", ("n", "t"), (1.0,)),)


def test_a_word_with_a_letter_that_the_lexicon_lacks_gets_no_reading():
    lexicon = lexicon_of(("knight", "n ay t", 1.0))
    (found,) = fill(["ж"], lexicon, {"ж": prediction((0, "n"), unknown=("ж",))})
    assert (found.origin, found.entries) == ("unknown", ())


def test_all_readings_of_a_word_are_on_one_side_of_the_cut():
    entries = [(f"w{n}", said, 1.0) for n in range(400) for said in ("a b", "b a")]
    train, dev = training_pairs(lexicon_of(*entries, ("<unk>", "SPN", 1.0)))
    assert not {word for word, _ in train} & {word for word, _ in dev}
    assert len(train) + len(dev) == 800


def test_a_lexicon_that_is_too_small_is_refused():
    with pytest.raises(InputError, match="1 words in the lexicon: too few to learn from, expected 100 or more"):
        training_pairs(lexicon_of(("knight", "n ay t", 1.0)))


def test_the_command_learns_from_a_lexicon_and_writes_its_format(antiphon, tmp_path):
    listed = lines()
    (tmp_path / "lexicon.txt").write_text("\n".join(["<SIL> SIL", *listed[::2], *listed[1::4]]) + "\n")
    held_out = [line.partition(" ")[0].lower() for line in listed[3::4]]
    (tmp_path / "words.txt").write_text("\n".join(["baBaB", *held_out, "жук", "<SIL>"]) + "\n", encoding="utf-8")
    files = tmp_path / "lexicon.txt", tmp_path / "words.txt"
    options = ["--out", tmp_path / "new.txt", "--report", tmp_path / "report.tsv", "--run", tmp_path / "run"]
    done = antiphon("fill", *files, *options, "--minutes", "0.2", "--threads", "1")
    assert done.status == 0, done.err
    assert "training on 1" in done.err
    assert "no reading for 1 word such as 'жук'" in done.err
    new = (tmp_path / "new.txt").read_text(encoding="utf-8").splitlines()
    assert new[0] == "baBaB b ah b ah b"
    assert new[-1] == "<SIL> SIL"
    assert {symbol for line in new for symbol in line.split()[1:]} <= {*SOUNDS.values(), "SIL"}
    wanted = {word.lower(): said for word, _, said in (line.partition(" ") for line in listed)}
    right = sum(wanted[word.lower()] == said for word, _, said in (line.partition(" ") for line in new[:-1]))
    assert right > 0.8 * len(held_out)
    report = [line.split("\t") for line in (tmp_path / "report.tsv").read_text(encoding="utf-8").splitlines()]
    assert [row[1] for row in report] == ["lexicon", *["model"] * len(held_out), "lexicon"]
    again = antiphon("fill", *files, "--out", tmp_path / "p.txt", "--run", tmp_path / "run", "--to", "kaldi-p")
    assert again.status == 0, again.err
    assert "training" not in again.err
    assert (tmp_path / "p.txt").read_text(encoding="utf-8").splitlines()[1].split()[1] == "1"
    refused = antiphon("fill", *files, "--out", tmp_path / "new.txt")
    assert (refused.status, refused.err.count("\n")) == (2, 1)


def test_words_with_spaces_are_written_only_between_tabs(tmp_path, antiphon):
    (tmp_path / "lexicon").write_text("new york\tn j u\nyork\tj o k\n")
    (tmp_path / "words").write_text("new york\nyork\n")
    fill_lexicon = "fill", tmp_path / "lexicon", tmp_path / "words", "--out"
    assert antiphon(*fill_lexicon, tmp_path / "tabs").status == 0
    assert (tmp_path / "tabs").read_text() == "new york\tn j u\nyork\tj o k\n"
    done = antiphon(*fill_lexicon, tmp_path / "spaces", "--to", "kaldi")
    assert (tmp_path / "spaces").read_text() == "york j o k\n"
    assert "1 word with spaces such as 'new york', which kaldi cannot hold" in done.err


def test_a_lexicon_is_read_once(tmp_path, antiphon):
    (tmp_path / "words").write_text("york\n")
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=("york\tj o k\n",), daemon=True)
    writer.start()
    done = antiphon("fill", tmp_path / "pipe", tmp_path / "words", "--out", tmp_path / "new")
    assert (done.status, (tmp_path / "new").read_text()) == (0, "york\tj o k\n")


@pytest.mark.parametrize("options", [("--out", "lexicon"), ("--out", "new", "--report", "new"), ("--out", "./words")])
def test_no_file_of_the_command_is_written_over_another(tmp_path, antiphon, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    for name in ("lexicon", "words"):
        (tmp_path / name).write_text("york\tj o k\n")
    done = antiphon("fill", "lexicon", "words", *options, "--force")
    assert (done.status, "given twice, expected different files" in done.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lexicon", "words"]


def test_a_folder_is_refused_as_the_new_lexicon_before_anything_is_trained(tmp_path, antiphon):
    (tmp_path / "lexicon").write_text("york\tj o k\n")
    (tmp_path / "words").write_text("leeds\n")
    done = antiphon("fill", tmp_path / "lexicon", tmp_path / "words", "--out", tmp_path, "--force")
    assert (done.status, done.err) == (2, f"antiphon: {tmp_path}: a folder, expected the name of a file\n")
