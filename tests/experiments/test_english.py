"""How the dictionary is cut for the English models, and how their words are scored."""

import pytest
from experiments.english_data import family, part_of
from experiments.english_espeak import of_arpabet, of_espeak
from experiments.english_score import score


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "stops", "stopped", "stopping", "stopper's"),
        ("baby", "babies", "baby's"),
        ("happy", "happily", "happier"),
        ("make", "makes", "making"),
    ],
)
def test_forms_of_a_word_are_on_the_same_side_of_the_cut(words):
    assert len({family(word) for word in words}) == 1
    assert len({part_of(word) for word in words}) == 1


def test_a_tenth_of_the_families_is_held_out():
    words = [f"{first}{second}{third}" for first in "bcdfgklm" for second in "aeiou" for third in ("bra", "tto", "ck")]
    parts = [part_of(f"{word}{letter}") for word in words for letter in "abcdefghik"]
    assert 0.05 < parts.count("test") / len(parts) < 0.15
    assert 0 < parts.count("dev") / len(parts) < 0.05


def test_a_word_is_right_if_it_is_one_of_its_readings():
    wanted = {"read": {"R EH1 D", "R IY1 D"}, "lead": {"L IY1 D"}}
    assert score({"read": "R IY1 D", "lead": "L IY0 D"}, wanted) == (50, 0)
    assert score({}, wanted) == (100, 100)


@pytest.mark.parametrize(
    ("arpabet", "ipa"),
    [
        ("HH AH0 L OW1", "h_ə_l_ˈoʊ"),
        ("K AA1 R", "k_ˈɑːɹ"),
        ("W AO1 T ER0", "w_ˈɔː_ɾ_ɚ"),
        ("HH IY1 R", "h_ˈɪɹ"),
        ("R IH0 L IY1 S", "ɹ_ɪ_l_ˈiː_s"),
    ],
)
def test_both_alphabets_have_the_same_classes(arpabet, ipa):
    assert of_arpabet(arpabet) == of_espeak(ipa)
