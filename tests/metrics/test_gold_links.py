import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.exceptions import InputError
from antiphon.metrics.gold_links import GoldLinks, read_gold, score_links
from antiphon.torch_free.readers import Pair

PAIRS = [Pair("a b", "x y z", (), "pairs.tsv:1"), Pair("c", "w", (), "pairs.tsv:2")]
LINKS = [GoldLinks.of([(0, 0)], [(1, 2)]), GoldLinks.of([(0, 0)])]
DRAWN = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)))


def written(folder, text):
    path = folder / "gold.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a b\tx y z\t1-1 2p3\nc\tw\t1-1\n", "tsv"),
        ("0-0 1p2\n0-0\n", "pharaoh"),
        ("0-0 1?2\n0-0\n", "pharaoh"),
        ("0-0 1-2p\n0-0\n", "pharaoh"),
        ("0001 1 1 S\n0001 2 3 P\n0002 1 1\n", "naacl"),
        ("1\t1\t1\tS\n1\t2\t3\tP\n\n2 1 1 S 0.9\n", "naacl"),
    ],
)
def test_every_format_is_recognised_and_gives_the_same_links(tmp_path, text, name):
    path = written(tmp_path, text)
    for format in (None, name):
        assert read_gold(path, PAIRS, format).links == LINKS


def test_a_tsv_has_its_own_pairs(tmp_path):
    found = read_gold(written(tmp_path, "a b\tx y z\t1-1 2p3\n\nc\tw\t1-1\n"))
    assert [pair.source for pair in found.pairs] == ["a b", "", "c"]
    assert found.links == [LINKS[0], GoldLinks.of([]), LINKS[1]]
    swapped = found.swapped()
    assert (swapped.pairs[0].source, swapped.links[0]) == ("x y z", GoldLinks.of([(0, 0)], [(2, 1)]))


def test_sure_links_are_possible_too():
    links = GoldLinks.parse("0-0 1p1 0p0", "here")
    assert (links.sure, links.possible) == ({(0, 0)}, {(0, 0), (1, 1)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: not gold links, expected source<TAB>target<TAB>links, Pharaoh"),
        ("hello\n", ":1: not gold links, expected"),
        ("a b\tx y z\t1-1\nc\tw\n", ":2: 2 columns, expected source<TAB>target<TAB>links"),
        ("a b\tx y z\t0-1\nc\tw\t1-1\n", ":1: link '0-1', expected i-j (sure) or ipj (possible), words counted from 1"),
        ("a b\tx y z\t1-1\nd\tw\t1-1\n", ":2: a different pair from pairs.tsv:2, expected the same text"),
        ("a b\tx y z\t1-1\n", ": links of 1 pair, expected 2 as there are pairs"),
        ("0-0\n0=0\n", ":2: link '0=0', expected i-j (sure) or ipj (possible), words counted from 0"),
        ("0-0\n0-0\n0-0\n", ": links of 3 pairs, expected 2 as there are pairs"),
        ("1 1 1 S\n1 1\n", ":2: '1 1', expected sentence source target [S|P], all counted from 1"),
        ("1 1 1 S\n1 0 1 S\n", ":2: '1 0 1 S', expected sentence source target"),
        ("1 1 1 S\n3 1 1 S\n", ":2: sentence 3, expected at most 2 as there are pairs"),
    ],
)
def test_wrong_lines_are_refused_with_file_and_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_gold(path, PAIRS)
    assert str(error.value).startswith(f"{path}{message}")


def test_links_without_text_need_pairs(tmp_path):
    with pytest.raises(InputError, match=r"format pharaoh, without text, expected the pairs"):
        read_gold(written(tmp_path, "0-0\n"))


@pytest.mark.parametrize("text", ["1 1 1 S\n1 3 1 P\n", "0-0 \n2-0\n"])
def test_links_outside_a_pair_name_their_line(tmp_path, text):
    links = read_gold(written(tmp_path, text), PAIRS).links
    outside = next(each for each in links if (2, 0) in each.possible)
    with pytest.raises(InputError, match=r"gold.txt:2: a link of source word 3 and target word 1 in a pair of 2 and 3"):
        outside.check_inside(2, 3, "unknown")


def values(found, gold):
    return [score.value for score in score_links(found, gold, "by hand").values()]


def test_the_metrics_are_those_computed_by_hand():
    gold = [GoldLinks.of([(0, 0), (1, 1)], [(1, 2), (2, 2)]), GoldLinks.of([(0, 1)])]
    found = [{(0, 0), (1, 2), (2, 0)}, {(0, 1)}]  # of 4 links 2 are sure and 3 possible; there are 3 sure ones
    assert values(found, gold) == pytest.approx([100 * (1 - 5 / 7), 75.0, 100 * 2 / 3])


def test_links_of_different_pairs_are_different():
    assert values([{(0, 0)}, set()], [GoldLinks.of([]), GoldLinks.of([(0, 0)])]) == [100.0, 0.0, 0.0]


@given(DRAWN.filter(bool), DRAWN)
def test_the_sure_links_have_no_errors(sure, possible):
    assert values([sure], [GoldLinks.of(sure, possible)]) == [0.0, 100.0, 100.0]


@given(DRAWN.filter(bool), DRAWN, DRAWN)
def test_links_that_are_not_possible_are_all_wrong(sure, possible, found):
    gold = GoldLinks.of(sure, possible)
    assert values([found - gold.possible], [gold]) == [100.0, 0.0, 0.0]


@given(DRAWN, DRAWN.filter(bool), DRAWN)
def test_with_sure_links_alone_the_error_rate_is_one_minus_f1(found, sure, more):
    error, precision, recall = values([found | more], [GoldLinks.of(sure)])
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert error == pytest.approx(100 - f1)


def test_signatures_say_how_links_were_found():
    scores = score_links([set()], [GoldLinks.of([(0, 0)])], "posterior > 0.5")
    assert {score.signature for score in scores.values()} == {"sure and possible links|posterior > 0.5|percent"}
