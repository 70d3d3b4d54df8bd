"""Endings are added to listed stems as English says them."""

import pytest

from antiphon.pronunciation.word_readings import derive

LEXICON = {
    "floof": (("F", "L", "UW1", "F"),),
    "blat": (("B", "L", "AE1", "T"),),
    "wize": (("W", "AY1", "Z"),),
    "grony": (("G", "R", "OW1", "N", "IY0"),),
    "didn't": (("D", "IH1", "D", "AH0", "N", "T"),),
    "goofing": (("G", "UW1", "F", "IH0", "NG"),),
}


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("floofs", "F L UW1 F S"),
        ("floof's", "F L UW1 F S"),
        ("floofs'", "F L UW1 F S"),
        ("floofs's", "F L UW1 F S IH0 Z"),
        ("wizes", "W AY1 Z IH0 Z"),
        ("floofed", "F L UW1 F T"),
        ("blatted", "B L AE1 T IH0 D"),
        ("wized", "W AY1 Z D"),
        ("gronied", "G R OW1 N IY0 D"),
        ("wizing", "W AY1 Z IH0 NG"),
        ("blatting", "B L AE1 T IH0 NG"),
        ("groniness", "G R OW1 N IY0 N AH0 S"),
        ("floofless", "F L UW1 F L AH0 S"),
        ("goofin'", "G UW1 F IH0 N"),
        ("didnt", "D IH1 D AH0 N T"),
        ("didn", "D IH1 D AH0 N"),
    ],
)
def test_a_word_is_derived_from_its_stem(word, phonemes):
    assert [" ".join(reading) for reading in derive(word, LEXICON)] == [phonemes]


@pytest.mark.parametrize("word", ["floofss", "as", "s", "'", "'s", "quux", "floof'd", ""])
def test_a_word_without_a_listed_stem_is_not_derived(word):
    assert derive(word, LEXICON) == ()
