"""Text files as people have them are read alike, whatever their encoding, separator and first line are."""

import gzip

import pytest

from antiphon.exceptions import InputError
from antiphon.own_data.table_file import read_table

ROWS = [("Käse", "k ɛː z ə"), ("Öl", "øː l"), ("blau, hell", "b l aʊ")]


def written(tmp_path, text, encoding="utf-8", name="pairs.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def quoted(cell):
    return f'"{cell}"' if "," in cell else cell


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("separator", "name"), [("\t", "tab"), (",", "comma"), (";", "semicolon")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_are_those_of_the_file(tmp_path, encoding, separator, name, end):
    lines = [separator.join(quoted(cell) if separator == "," else cell for cell in row) for row in ROWS]
    table = read_table(written(tmp_path, end.join(lines) + end, encoding))
    assert table.rows == ROWS
    assert table.lines == [1, 2, 3]
    assert table.separator == separator
    assert table.encoding == encoding


def test_a_first_line_of_names_is_no_pair(tmp_path):
    table = read_table(written(tmp_path, "word;ipa\nab;a b\ncd;c d\n"))
    assert table.header == ("word", "ipa")
    assert table.rows == [("ab", "a b"), ("cd", "c d")]
    assert table.lines == [2, 3]


@pytest.mark.parametrize(("source", "encoding"), [("Käse", "cp1252"), ("Käse’s", "cp1252"), ("\x81ä", "latin-1")])
def test_what_is_not_utf8_is_that_of_windows_or_latin_1(tmp_path, source, encoding):
    table = read_table(written(tmp_path, f"{source}\tcheese\n", encoding))
    assert table.encoding == encoding
    assert table.rows == [(source, "cheese")]


def test_commas_of_sentences_do_not_separate_columns(tmp_path):
    lines = ["Yes, I do.\tOui, je le veux.", "Now, please.\tMaintenant, s'il te plaît.", "No.\tNon."]
    assert read_table(written(tmp_path, "\n".join(lines))).width == 2


def test_blank_lines_are_left_out_and_gzip_is_unpacked(tmp_path):
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress(b"\na\tb\n\n  \nc\td\n"))
    assert read_table(path).lines == [2, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no text, expected lines of source and target"),
        ("word\nother\n", r"one column \('word'\), expected source and target"),
        ("a\tb\nc\td\ne\tf\tg\n", r":3: 3 columns between tabs, expected 2 as in most lines"),
        ("source\ttarget\n", "nothing but a first line of names"),
        ("a\0\tb\n", "has bytes of 0, expected text"),
        ("a,b\n" + "x" * 200_000 + ",y\n", ":2: a cell of more than 131,072 characters"),
        ("a,b\n" * 5 + '"c,d\n' + "e,f\n" * 50_000, ":6: a cell of more than 131,072 characters.*quotation mark"),
        ("a\tb\n" + "x" * 2_000_000 + "\ty\n", ":2: a line of more than 1,048,576 characters"),
        ("PK\x03\x04rest", "a zip file or a spreadsheet"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_table(written(tmp_path, text))


@pytest.mark.parametrize("line", ["\n", "a\tb\n", "a,b\n"])
def test_a_packed_file_is_unpacked_up_to_a_limit_of_lines(tmp_path, monkeypatch, line):
    monkeypatch.setattr("antiphon.own_data.table_file._MOST_LINES", 2000)
    path = tmp_path / "pairs.gz"
    path.write_bytes(gzip.compress(line.encode() * 3000))
    with pytest.raises(InputError, match="more than 2,000 lines"):
        read_table(path)
