"""What is said for numbers, signs, abbreviations and addresses, and where every token stands."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.pronunciation.number_words import cardinal, ordinal, year
from antiphon.pronunciation.tokens import fold, split_case, tokens


def said(line):
    """The words that are said for a line; those that are spelt have a full stop after each letter."""
    pieces = [piece for token in tokens(line) for piece in token.pieces]
    return " ".join(
        "".join(f"{letter}." for letter in piece.text) if piece.is_spelt else piece.text for piece in pieces
    )


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("12 emails", "twelve emails"),
        ("1,234.5", "one thousand two hundred thirty four point five"),
        ("in 1984, 1905 and 2026", "in nineteen eighty four nineteen oh five and twenty twenty six"),
        ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
        ("the 21st", "the twenty first"),
        ("agent 007", "agent zero zero seven"),
        ("-5°C or 1 km", "minus five degrees celsius or one kilometer"),
        ("60 mph, 3 ft", "sixty miles per hour three feet"),
        ("10-20%", "ten to twenty percent"),
        ("3/4 of it, 24/7", "three quarters of it twenty four seven"),
        ("$5.20", "five dollars and twenty cents"),
        ("$1", "one dollar"),
        ("£3.5 million", "three point five million pounds"),
        ("€0.99", "ninety nine cents"),
        ("$1.5bn and £25k", "one point five billion dollars and twenty five thousand pounds"),
        ("A cat, A-level, plan A.", "A cat A. level plan A."),
        ("at 3:05 p.m.", "at three oh five p.m."),
        ("at 10:00", "at ten o'clock"),
        ("7 am", "seven a.m."),
        ("on 2024-03-04", "on march fourth twenty twenty four"),
        ("on 12/25/2020", "on december twenty fifth twenty twenty"),
        ("March 4", "march fourth"),
        ("call 555-123-4567", "call five five five one two three four five six seven"),
        ("version 1.2.3", "version one point two point three"),
        ("Dr. Smith and Mr. Jones", "doctor Smith and mister Jones"),
        ("St. John on Main St.", "saint John on Main street"),
        ("No. 5 is no. Yes.", "number five is no Yes"),
        ("e.g. this, etc.", "for example this et cetera"),
        ("the U.S. today", "the U.S. today"),
        ("Henry VIII, World War II, I am", "Henry the eighth World War two I am"),
        ("me@example.com", "me at example dot com"),
        ("ann.lee@a-b.org", "ann dot lee at a dash b dot org"),
        ("https://example.com/a-b", "example dot com slash a dash b"),
        ("see x.org.", "see x dot org"),
        ("R&D + 5", "R and D plus five"),
        ("and/or well-known", "and or well known"),
        ("getHTTPResponse", "get HTTP Response"),
        ("x² and ½", "x squared and one half"),
        ("#5", "number five"),
        ("I'm sure I'll go, I've been, I'd say IT'S fine, DON'T", "I'm sure I'll go I've been I'd say IT'S fine DON'T"),
        ("D'Angelo's CEO's TVs", "D'Angelo's CEO's TVs"),
        (
            "call 555-1234 or 1-555-123-4567",
            "call five five five one two three four or one " + "five " * 3 + "one two three four five six seven",
        ),
        ("+44 20 7946", "plus four four two zero seven nine four six"),
        ("0800 123 456", "zero eight zero zero one two three four five six"),
        ("id 5551234567, but 7000000000", "id five five five one two three four five six seven but seven billion"),
        ("Feb 3rd, March 4th", "february third march fourth"),
        ("0 -5 and .5", "zero minus five and point five"),
        ("5€, ₹500 and 50¢", "five euros five hundred rupees and fifty cents"),
        ("12:00:30, 3:1, John 3:7", "twelve o'clock and thirty seconds three to one John three seven"),
        ("w/o it, w/ it", "without it with it"),
        ("C# and F#", "C. sharp and F. sharp"),
        ("CO2, H₂O, 10⁶ and 10^-3", "C.O. two H two O ten to the power of six and ten to the power of minus three"),
        ("2π, the α", "two pi the alpha"),
        ("192.168.0.1", "one hundred ninety two dot one hundred sixty eight dot zero dot one"),
        ("4x4 is 3x faster", "four by four is three times faster"),
        ("6'2\" or 3 1/4 or 2½", "six foot two or three and one quarter or two and one half"),
        ("1 000 000 and 12\u202f500", "one million and twelve thousand five hundred"),
        ("~5 ~word~", "about five word"),
        ("in 1066 Henry V", "in ten sixty six Henry the fifth"),
        ("3 AM", "three a.m."),
        ("1-2-3, 50-50, 24-7 but 3-2", "one two three fifty fifty twenty four seven but three to two"),
        ("ZIP 90210-1234", "ZIP nine zero two one zero one two three four"),
        ("ISBN 978-3-16-148410-0", "ISBN nine seven eight three one six one four eight four one zero zero"),
        ("2:30-4:00pm, $5–$10", "two thirty to four p.m. five dollars to ten dollars"),
        ("a $3.5-million house, 2 tbsp", "a three point five million dollars house two tablespoons"),
        ("2x - 1, 5x.", "two x one five times"),
        ("in '09 and '99", "in oh nine and ninety nine"),
        ("WWII", "World War two"),
        ("", ""),
        ("... !?", ""),
    ],
)
def test_what_is_said(line, wanted):
    assert said(line) == wanted


def test_apostrophes_belong_to_words():
    assert [token.text for token in tokens("don’t say 'tis the dogs' o'clock 'quoted'")] == (
        ["don’t", "say", "'tis", "the", "dogs'", "o'clock", "'", "quoted", "'"]
    )


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("camelCase", ["camel", "Case"]),
        ("XMLHttpRequest", ["XML", "Http", "Request"]),
        ("NASA", ["NASA"]),
        ("PCs", ["PCs"]),
        ("McDonald's", ["McDonald's"]),
        ("iPhone", ["i", "Phone"]),
    ],
)
def test_camel_case_is_split(word, parts):
    assert split_case(word) == parts


def test_letters_are_folded():
    assert [fold(word) for word in ("Café", "NAÏVE", "Straße", "Łódź", "don’t", "Æon")] == (
        ["cafe", "naive", "strasse", "lodz", "don't", "aeon"]
    )


@given(st.text(st.characters() | st.sampled_from("aZ0159.,:/-$%°'’ @[]()"), max_size=40))
@example("[a](/N/)[b](VB)")
@example("9" * 5000)
@example("$" + "9" * 5000 + ".50")
def test_tokens_follow_each_other_and_leave_out_only_space_and_controls(line):
    found = list(tokens(line))
    position = 0
    for token in found:
        assert token.start >= position
        assert not any(character.isalnum() for character in line[position : token.start])
        assert line[token.start : token.end] == token.text != ""
        position = token.end
    assert not any(character.isalnum() for character in line[position:])


@given(st.integers(0, 10**15 - 1))
def test_numbers_are_said_in_words_alone(number):
    assert all(word.isalpha() for word in [*cardinal(str(number)), *ordinal(str(number))])


def test_every_year_is_said_in_its_own_way():
    assert len({tuple(year(str(number))) for number in range(1000, 2100)}) == 1100


@pytest.mark.parametrize("unit", ["a-", "1-", "a_", "a+", "x.y", "a@", "1:", "[", "9", "Mr. ", "111 ", "1^", "+1 22 "])
def test_the_time_for_long_text_grows_in_proportion(unit):
    def seconds(length):
        line, started = unit * (length // len(unit)), time.process_time()
        assert len(list(tokens(line))) > 0
        return time.process_time() - started

    seconds(1000)
    assert seconds(20_000) < 40 * max(0.02, seconds(2000))


def test_an_address_is_one_token_and_the_full_stop_after_it_is_not_in_it():
    text = "Mail me@example.com, ann.lee@a-b.org or see https://x.org/a?b=1."
    addresses = ["me@example.com", "ann.lee@a-b.org", "https://x.org/a?b=1"]
    assert [token.text for token in tokens(text) if "." in token.text[1:]] == addresses
