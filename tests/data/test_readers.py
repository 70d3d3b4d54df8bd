import gzip

import pytest

from antiphon.data.files import read_lines
from antiphon.data.readers import (
    Pair,
    Source,
    has_features,
    keep_filled,
    parse_source,
    read_pairs,
    read_targets,
    split_features,
)
from antiphon.exceptions import InputError


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_pairs_come_with_features_and_their_place(tmp_path):
    file = write(tmp_path / "pairs.tsv", "Haus\tHäusern\tN;DAT;PL\nTag\tTage\tcase=nominative,number=plural\n")
    assert list(read_pairs(file)) == [
        Pair("Haus", "Häusern", ("N", "DAT", "PL"), f"{file}:1"),
        Pair("Tag", "Tage", ("case=nominative", "number=plural"), f"{file}:2"),
    ]
    assert has_features(file)


def test_features_are_passed_over_on_request(tmp_path):
    file = write(tmp_path / "pairs.tsv", "他\the\tun\n")
    assert next(read_pairs(file, features=False)).features == ()


def test_swap_exchanges_both_sides(tmp_path):
    pair = next(read_pairs(write(tmp_path / "pairs.tsv", "a\tb\tX\n"), swap=True))
    assert (pair.source, pair.target, pair.features) == ("b", "a", ("X",))


def test_gzipped_and_plain_files_read_alike(tmp_path):
    plain = write(tmp_path / "pairs.tsv", "a\tb\r\nc\td")
    packed = write(tmp_path / "pairs.tsv.gz", gzip.compress(b"a\tb\r\nc\td"))
    assert list(read_lines(plain)) == list(read_lines(packed)) == ["a\tb", "c\td"]


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert list(read_lines(write(tmp_path / "x", "\ufeffa\n\ufeffb\n"))) == ["a", "\ufeffb"]


def test_parallel_files_are_read_side_by_side(tmp_path):
    files = write(tmp_path / "a.fr", "un\ndeux\n"), write(tmp_path / "a.en", "one\ntwo\n")
    assert [(pair.source, pair.target) for pair in read_pairs(files)] == [("un", "one"), ("deux", "two")]
    assert not has_features(files)


@pytest.mark.parametrize(("source", "target"), [("a\nb\n", "x\n"), ("a\n", "x\ny\n")])
def test_parallel_files_of_different_lengths_are_refused(tmp_path, source, target):
    files = write(tmp_path / "a.fr", source), write(tmp_path / "a.en", target)
    with pytest.raises(InputError, match=r"a\.en: .*1 line, expected as many as in .*a\.fr"):
        list(read_pairs(files))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", r"pairs.tsv:2: 1 column, expected source<TAB>target"),
        (b"a\tb\tc\td\n", r"pairs.tsv:1: 4 columns, expected"),
        (b"a\tb\nc\td\tX\n", r"pairs.tsv:2: 3 columns, expected 2 as in the lines before it"),
        (b"a\tb\nc\t\xff\n", r"pairs.tsv:2: byte 3 is not UTF-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        list(read_pairs(write(tmp_path / "pairs.tsv", content)))


def test_a_missing_file_a_folder_and_damaged_gzip_are_named(tmp_path):
    with pytest.raises(InputError, match=r"none.tsv: no such file or directory, expected"):
        list(read_lines(tmp_path / "none.tsv"))
    with pytest.raises(InputError, match="a folder, expected a text file"):
        list(read_lines(tmp_path))
    for damaged in (b"not gzip", gzip.compress(b"a\tb\n" * 1000)[:-20]):
        with pytest.raises(InputError, match="damaged gzip file"):
            list(read_lines(write(tmp_path / "x.gz", damaged)))


def test_pairs_without_text_are_left_out_and_a_file_of_them_is_refused(tmp_path):
    file = write(tmp_path / "pairs.tsv", "\na\tb\n \t \nc\t\n")
    assert [(pair.source, pair.where) for pair in keep_filled(read_pairs(file), file)] == [("a", f"{file}:2")]
    with pytest.raises(InputError, match=r"empty\.tsv: no pairs, expected lines of source<TAB>target"):
        keep_filled(read_pairs(write(tmp_path / "empty.tsv", "")), "empty.tsv")


def test_targets_come_from_pairs_and_from_plain_text(tmp_path):
    pairs, text = write(tmp_path / "p.tsv", "a\tb\tX\n"), write(tmp_path / "t.txt", "one two\n")
    assert [pair.target for pair in read_targets(pairs)] == ["b"]
    assert [pair.target for pair in read_targets(pairs, swap=True)] == ["a"]
    assert [pair.target for pair in read_targets(text)] == ["one two"]
    with pytest.raises(InputError, match=r"bad\.tsv:1: 4 columns, expected text or source<TAB>target"):
        list(read_targets(write(tmp_path / "bad.tsv", "a\tb\tc\td\n")))


def test_inputs_are_parsed_with_and_without_features():
    assert parse_source("Haus", "f:1") == Source("Haus")
    assert parse_source("Haus\tHäuser", "f:1") == Source("Haus")
    assert parse_source("Haus\tHäuser", "f:1", swap=True) == Source("Häuser")
    assert parse_source("Haus\tN;PL", "f:1", features=True) == Source("Haus", ("N", "PL"))
    assert parse_source("Haus\tHäuser\tN;PL", "f:1", features=True) == Source("Haus", ("N", "PL"))
    assert parse_source("", "f:1", features=True) == Source("")
    with pytest.raises(InputError, match=r"f:1: 1 column, expected source<TAB>features"):
        parse_source("Haus", "f:1", features=True)
    with pytest.raises(InputError, match=r"f:1: 3 columns, expected source alone"):
        parse_source("a\tb\tc", "f:1")


def test_features_split_at_every_usual_mark():
    assert split_features("V;IND;PRS|3 SG") == ("V", "IND", "PRS", "3", "SG")
    assert split_features("") == ()
