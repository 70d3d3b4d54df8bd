import gzip
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.cli.fill import read_words
from antiphon.exceptions import InputError
from antiphon.metrics.gold_links import read_gold
from antiphon.pronunciation.lexicon_files import read_lexicon
from antiphon.ranking.questions import read_qrels
from antiphon.torch_free.readers import (
    Pair,
    Source,
    has_features,
    keep_filled,
    parse_source,
    read_lines,
    read_pairs,
    read_targets,
    read_unpaired,
    split_features,
)


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


def test_layered_features_share_their_parts_and_keep_what_they_belong_to():
    assert split_features("V;NOM(1,SG)") == ("V", "NOM(1)", "NOM(SG)")
    assert split_features("N;DAT(SG;PSS(1, PL))") == ("N", "DAT(SG)", "DAT(PSS(1))", "DAT(PSS(PL))")
    assert split_features("V;ARG(1,SG);ARG(2,PL)") == ("V", "ARG(1,SG)", "ARG(2,PL)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("V;DAT(1,SG);NOM(FORM,2,PL)", "V;DAT(1,PL);NOM(FORM,2,SG)"),
        ("V;ARG(1,SG);ARG(2,PL)", "V;ARG(1,PL);ARG(2,SG)"),
        ("N;DAT(PSS(1,SG));PL", "N;DAT(PSS(1,PL));SG"),
        ("N;PSS(1);SG", "N;PSS(1;SG)"),
        ("N;DAT", "N;DAT()"),
        ("V;PRF;NOM(1)", "V;PRF;PRF;NOM(1)"),
        ("V;NOM(1,1)", "V;NOM(1);NOM(1)"),
    ],
)
def test_tags_that_differ_within_brackets_stay_different(one, other):
    assert set(split_features(one)) != set(split_features(other))


_tags = st.recursive(
    st.sampled_from("ABC"),
    lambda inner: st.builds(
        lambda name, parts: f"{name}({','.join(sorted(parts))})", st.sampled_from("XYZ"), st.sets(inner, min_size=1)
    ),
    max_leaves=6,
)


@given(st.sets(_tags, max_size=4), st.sets(_tags, max_size=4))
def test_bundles_in_which_no_name_has_two_brackets_are_never_confused(one, other):
    bundles = [";".join(sorted(bundle)) for bundle in (one, other)]
    assume(all(_names_are_unique(bundle) for bundle in bundles) and one != other)
    assert set(split_features(bundles[0])) != set(split_features(bundles[1]))


@given(st.sets(_tags, max_size=4))
def test_features_that_are_split_already_stay_as_they_are(bundle):
    split = split_features(";".join(bundle))
    assert split_features(";".join(split)) == split


def test_brackets_that_do_not_match_and_long_names_cost_nothing():
    assert split_features("A(1,SG;N") == ("A(1,SG;N",)
    assert split_features("A);B") == ("A)", "B")
    long = f"{'A' * 500_000}({','.join(['1'] * 100_000)})"
    assert split_features(f"{long};N") == (long, "N")


def _names_are_unique(bundle):
    """Whether no name is followed by brackets twice, at the same level."""
    return len(re.findall(r"[XYZ]\(", bundle)) == len(set(re.findall(r"[XYZ]\(", bundle)))


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("source target features", "Haus\tHäuser\tN;PL"),
        ("source features target", "Haus\tN;PL\tHäuser"),
        ("features source target", "N;PL\tHaus\tHäuser"),
    ],
)
def test_columns_may_come_in_another_order(tmp_path, columns, line):
    file = write(tmp_path / "pairs.tsv", f"{line}\n")
    assert list(read_pairs(file, columns=columns)) == [Pair("Haus", "Häuser", ("N", "PL"), f"{file}:1")]
    assert next(read_pairs(file, columns=columns, swap=True)).source == "Häuser"
    (target,) = read_targets(file, features=True, columns=columns)
    assert (target.target, target.features) == ("Häuser", ("N", "PL"))
    assert parse_source(line, "f:1", features=True, columns=columns) == Source("Haus", ("N", "PL"))
    without_target = line.replace("\tHäuser", "")
    assert parse_source(without_target, "f:1", features=True, columns=columns) == Source("Haus", ("N", "PL"))
    assert parse_source("Haus\tHäuser", "f:1", columns=columns) == Source("Haus")


def test_csv_is_recognised(tmp_path):
    with pytest.raises(InputError, match=r"pairs\.csv:1: 1 column, .*if it is CSV, save it as tab-separated text"):
        list(read_pairs(write(tmp_path / "pairs.csv", "a,b\n")))


@pytest.mark.parametrize(
    "read", [read_pairs, read_targets, read_unpaired, read_qrels, read_lexicon, read_words, read_gold]
)
def test_a_file_of_blank_lines_is_not_read_to_its_end(tmp_path, monkeypatch, read):
    monkeypatch.setattr("antiphon.torch_free.readers.MAX_BLANK_LINES", 3)
    file = write(tmp_path / "pairs.tsv", "q 0\ta 1\n" + "\n" * 5)
    with pytest.raises(InputError, match=r"pairs\.tsv:5: 4 blank lines, expected fewer than others"):
        list(read(file))


@pytest.mark.parametrize("read", [read_pairs, read_targets])
def test_some_blank_lines_are_kept(tmp_path, monkeypatch, read):
    monkeypatch.setattr("antiphon.torch_free.readers.MAX_BLANK_LINES", 3)
    assert len(list(read(write(tmp_path / "more.tsv", "a\tb\n\n" * 5)))) == 10
    assert has_features(write(tmp_path / "two.tsv", "\n" * 2 + "a\tb\tN\n"))
    assert not has_features(write(tmp_path / "three.tsv", "\n" * 3 + "a\tb\tN\n"))
