"""Lexica of other programs are recognised, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.exceptions import InputError
from antiphon.pronunciation.lexicon_files import FORMATS, Entry, format_named, read_lexicon, recognise

LEXICA = {
    "cmudict": ";;; a comment\nKNIGHT  N AY1 T\nREAD  R EH1 D\nREAD(2)  R IY1 D # past\n",
    "wikipron": "knight\tn aɪ t\nread\tɹ iː d\nread\tɹ ɛ d\n",
    "mfa": "knight\t0.99\t0.2\t1.0\t1.1\tn aj t\nread\t0.5\t0.1\t1.0\t1.0\tɹ iː d\n",
    "kaldi": "<SIL> SIL\nknight N AY1 T\nread R EH1 D\n",
    "kaldi-p": "<SIL> 1.0 SIL\nknight 1.0 N AY1 T\nread 0.6 R EH1 D\n",
}


@pytest.mark.parametrize("name", LEXICA)
def test_a_format_is_recognised_and_read(name, tmp_path):
    (tmp_path / "lexicon").write_text(LEXICA[name], encoding="utf-8")
    found = read_lexicon(tmp_path / "lexicon")
    assert found.format.name == name
    readings = [entry.phonemes for entry in found.entries if entry.word.lower() in ("knight", "read")]
    assert all(len(reading) == 3 for reading in readings)
    assert {len(entry.numbers) for entry in found.entries} == {{"mfa": 4, "kaldi-p": 1}.get(name, 0)}


def test_further_readings_are_those_of_the_same_word(tmp_path):
    (tmp_path / "lexicon").write_text(LEXICA["cmudict"], encoding="utf-8")
    found = read_lexicon(tmp_path / "lexicon")
    assert [entry.word for entry in found.entries] == ["KNIGHT", "READ", "READ"]
    assert list(found.format.write(found.entries))[1:] == ["READ  R EH1 D", "READ(2)  R IY1 D"]


SYMBOLS = st.lists(st.sampled_from(["N", "AY1", "tʃ", "2x", "ɹ"]), min_size=2, max_size=4).map(tuple)
ROWS = st.lists(st.tuples(st.sampled_from(["knight", "Öl", "it's", "naïve"]), SYMBOLS), min_size=1, max_size=5)


@given(ROWS, st.sampled_from(sorted(FORMATS)))
def test_what_is_written_is_read_back(tmp_path_factory, rows, name):
    form = FORMATS[name]
    numbers = (0.5, 0.25, 1.0, 1.0)[: max(form.numbers)]
    entries = [Entry(word, phonemes, numbers) for word, phonemes in rows]
    path = tmp_path_factory.mktemp("lexicon") / "lexicon"
    path.write_text("".join(f"{line}\n" for line in form.write(entries)), encoding="utf-8")
    assert read_lexicon(path, name).entries == entries


def test_sherpa_onnx_has_the_format_of_kaldi():
    assert format_named("sherpa-onnx") == FORMATS["kaldi"]


def test_a_number_as_a_phoneme_is_no_probability():
    assert recognise(["sju\t2 ʉ", "hej\th ɛ j"]).name == "wikipron"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", None, "no entry, expected lines such as word p p"),
        ("knight\n", None, "lexicon:1: 'knight', expected word p p as in a lexicon of kaldi"),
        ("knight\tnaɪt\nread\tɹɛd\n", None, "one symbol for every word, expected phonemes between spaces"),
        ("knight n\n", "kaldi-p", "lexicon:1: 'knight n', expected word 0.9 p p"),
        ("knight n aj t\n", "festival", "format 'festival': unknown, expected one of cmudict, wikipron, mfa"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(text, name, message, tmp_path):
    (tmp_path / "lexicon").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refusal:
        read_lexicon(tmp_path / "lexicon", name)
    assert message in str(refusal.value)
