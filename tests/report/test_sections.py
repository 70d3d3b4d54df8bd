"""Tables stay tables whatever the text in them."""

from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.report.tables import Section, as_text, as_tsv

CELLS = st.text(st.characters(codec="utf-8"), max_size=12) | st.text("|\\`*_[]<>~$&#-+\t\n\r: a", max_size=8)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=3)
HEADER = ("one", "two", "three")


@given(ROWS)
@example([("a\tb", "c\nd", "e\r\\t")])
def test_tsv_has_a_line_for_every_row_and_a_tab_between_cells(rows):
    *lines, rest = as_tsv(HEADER, rows).split("\n")
    assert rest == ""
    assert [len(line.split("\t")) for line in lines] == [3] * (1 + len(rows))
    assert not any("\r" in line for line in lines)


@given(ROWS)
def test_text_for_a_terminal_holds_no_control_codes(rows):
    text = as_text(["run x: y"], [Section("t", HEADER, rows, "a note")])
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert text.endswith("a note\n")


def test_a_narrow_terminal_leaves_out_optional_columns_and_says_so():
    section = Section(
        "t", ("source", "a long name", "output"), [("x" * 20, "y" * 30, "z" * 20)], optional=["a long name"]
    )
    narrow, wide, file = (as_text([], [section], width) for width in (60, 100, None))
    assert "yyy" not in narrow
    assert narrow.endswith("no room for a long name; --format tsv has all columns\n")
    assert "x" * 20 in narrow
    assert wide.count("y") == file.count("y") == 30
    assert "no room" not in wide + file


def test_names_of_columns_are_broken_between_words_alone():
    section = Section("t", ("reference probability", "source"), [(0.5, "x" * 40)])
    assert "probability" in as_text([], [section], 30)
