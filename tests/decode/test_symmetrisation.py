from hypothesis import given
from hypothesis import strategies as st

from antiphon.decode.alignments import COMBINATIONS, grow_diagonally

intersect, unite = COMBINATIONS["intersection"], COMBINATIONS["union"]
LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))


def links(*rows):
    """The links of a matrix written with ``#``: rows are source words, columns target words."""
    return {(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell == "#"}


def test_links_beside_the_intersection_are_added_where_a_word_has_none():
    forward = links("#...", ".#..", "..#.", "....")
    backward = links("#...", "....", "..#.", "...#")
    assert intersect(forward, backward) == links("#...", "....", "..#.", "....")
    assert grow_diagonally(forward, backward) == links("#...", ".#..", "..#.", "...#")


def test_a_link_between_two_words_that_have_links_is_not_added():
    forward = links("#.", "##")
    backward = links("#.", ".#")
    assert grow_diagonally(forward, backward) == links("#.", ".#")
    assert unite(forward, backward) == links("#.", "##")


def test_a_link_far_from_all_others_is_not_added():
    forward = links("#....", ".....", "..#..")
    backward = links("#....", ".....", ".....")
    assert grow_diagonally(forward, backward) == links("#....")


def test_growing_goes_on_from_links_that_were_added():
    forward = links("#...", "....", "....", "....")
    backward = links("####", "....", "....", "....")
    assert grow_diagonally(forward, backward) == links("####")
    assert grow_diagonally(links("...#"), links("####")) == links("####")


def test_a_word_gets_a_second_link_if_the_other_word_has_none():
    assert grow_diagonally(links("#.", "#."), links("#.", "..")) == links("#.", "#.")


def test_without_an_intersection_nothing_grows():
    assert grow_diagonally(links("#."), links(".#")) == set()


@given(LINKS, LINKS)
def test_grow_diag_is_between_intersection_and_union(forward, backward):
    grown = grow_diagonally(forward, backward)
    assert intersect(forward, backward) <= grown <= unite(forward, backward)
    assert grow_diagonally(forward, forward) == forward


@given(LINKS, LINKS)
def test_the_directions_may_be_exchanged(forward, backward):
    for combine in (intersect, unite, grow_diagonally):
        assert combine(forward, backward) == combine(backward, forward)
