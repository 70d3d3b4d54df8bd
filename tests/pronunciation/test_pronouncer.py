"""Pronunciations come from the lexicon, rules or the model, with their origin."""

from pathlib import Path

import pytest

import antiphon
from antiphon.pronunciation.pronouncer import Pronouncer, ReadingOptions

FREQUENT = (Path(__file__).parent / "frequent_words.tsv").read_text(encoding="utf-8").splitlines()


def only_word(text, **options):
    """The one word of a text."""
    (word,) = (word for part in antiphon.pronounce(text, **options) for word in part.words)
    return word


def test_the_500_most_frequent_words_are_right():
    wanted = dict(line.split("\t") for line in FREQUENT)
    assert len(wanted) == 500
    assert {word: " ".join(only_word(word).phonemes) for word in wanted} == wanted


def test_a_sentence_has_its_words_and_punctuation_with_positions():
    text = "The knight read 12 quixotic emails."
    found = antiphon.pronounce(text)
    assert [part.text for part in found] == ["The", "knight", "read", "12", "quixotic", "emails", "."]
    assert all(text[part.start : part.end] == part.text for part in found)
    assert [" ".join(part.phonemes) for part in found] == [
        "DH AH0",
        "N AY1 T",
        "R EH1 D",
        "T W EH1 L V",
        "K W IH0 K S AA1 T IH0 K",
        "IY0 M EY1 L Z",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "phonemes", "origin"),
    [
        ("knight", "N AY1 T", "lexicon"),
        ("KNIGHT", "N AY1 T", "lexicon"),
        ("naïve", "N AY2 IY1 V", "lexicon"),
        ("quixotic's", "K W IH0 K S AA1 T IH0 K S", "derived"),
        ("formatted", "F AO1 R M AE2 T IH0 D", "derived"),
        ("didnt", "D IH1 D AH0 N T", "derived"),
        ("didn", "D IH1 D AH0 N", "derived"),
        ("[knight](/N AY0 T/)", "N AY0 T", "given"),
        ("US", "Y UW1 EH1 S", "spelt"),
        ("us", "AH1 S", "lexicon"),
        ("U.S.", "Y UW1 EH1 S", "spelt"),
        ("NASA", "N AE1 S AH0", "lexicon"),
        ("xkcd", "EH1 K S K EY1 S IY1 D IY1", "spelt"),
        ("GPUs", "JH IY1 P IY1 Y UW1 Z", "spelt"),
        ("привет", "", "unknown"),
    ],
)
def test_where_a_word_comes_from(text, phonemes, origin):
    word = only_word(text)
    assert (" ".join(word.phonemes), word.origin) == (phonemes, origin)
    assert word.probability is None


def test_the_model_reads_what_the_lexicon_lacks():
    word = only_word("floofing", nbest=3)
    assert (" ".join(word.phonemes), word.origin) == ("F L UW1 F IH0 NG", "model")
    chances = [reading.probability for reading in word.readings]
    assert len(chances) == 3
    assert chances == sorted(chances, reverse=True)
    assert 0.3 < chances[0] <= 1


def test_readings_that_cover_a_probability_add_up_to_it():
    readings = only_word("floofing", cover=0.99).readings
    assert sum(each.probability for each in readings) >= 0.99
    assert sum(each.probability for each in readings[:-1]) < 0.99


def test_the_more_frequent_reading_comes_first_and_the_others_follow():
    listed = {word: [" ".join(each.phonemes) for each in only_word(word).readings] for word in ("lead", "wind", "live")}
    assert listed["lead"] == ["L IY1 D", "L EH1 D"]
    assert listed["wind"] == ["W IH1 N D", "W AY1 N D"]
    assert listed["live"] == ["L IH1 V", "L AY1 V"]
    assert [" ".join(each.phonemes) for each in only_word("lead", nbest=1).readings] == ["L IY1 D"]


def test_a_part_of_speech_is_given_with_the_words_or_in_the_text():
    pairs = [("They", "PRP"), ("record", "VBP"), ("the", "DT"), ("record", "NN")]
    spoken = [" ".join(part.phonemes) for part in antiphon.pronounce(pairs)]
    assert spoken == ["DH EY1", "R AH0 K AO1 R D", "DH AH0", "R EH1 K ER0 D"]
    assert " ".join(only_word("[record](VB)").phonemes) == "R AH0 K AO1 R D"


def test_letters_are_aligned_with_phonemes_on_request():
    assert only_word("knight").alignment == ()
    assert [letter for letter, _ in only_word("knight", align=True).alignment] == [1, 2, 5]
    links = only_word("floofing", align=True).alignment
    assert [phoneme for _, phoneme in links] == list(range(6))


def test_a_word_that_is_repeated_is_aligned_once(monkeypatch):
    aligned = []
    monkeypatch.setattr(Pronouncer, "_align", lambda _, word, phonemes: aligned.append(word) or ())
    antiphon.pronounce("the knight, the knight, the knight", align=True)
    assert sorted(aligned) == ["knight", "the"]


def test_text_in_capitals_is_not_spelt():
    words = [word for part in antiphon.pronounce("GOOGLED THE FLOOFS") for word in part.words]
    assert [word.origin for word in words] == ["lexicon", "lexicon", "model"]


@pytest.mark.parametrize("text", ["", " ", "...", "🙂", "\x00\x1b[31m", "a" * 10_000, "'" * 50, "\ud800", "٣", "漢字"])
def test_odd_text_is_answered(text):
    for part in antiphon.pronounce(text):
        assert text[part.start : part.end] == part.text


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("[x](/N Q/)", {}, "'Q' is no phoneme of ARPAbet"),
        ("x", {"nbest": 0}, "nbest = 0: expected a whole number, at least 1"),
        ("x", {"cover": 2}, "cover = 2: expected a probability above 0, at most 1"),
        (5, {}, "expected a string, or pairs of a word and its part of speech"),
        (["knight"], {}, "expected a string, or pairs of a word and its part of speech"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(text, options, message):
    with pytest.raises(antiphon.InputError, match=message):
        antiphon.pronounce(text, **options)


def test_a_lexicon_of_ones_own_goes_before_the_model():
    say = Pronouncer({"floof": (("F", "L", "UH1", "F"),)})
    (part,) = say("Floof's", ReadingOptions())
    assert (part.phonemes, part.words[0].origin) == (("F", "L", "UH1", "F", "S"), "derived")


def test_a_folder_with_the_name_of_the_model_changes_no_pronunciation(tmp_path, monkeypatch):
    (tmp_path / "en").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("antiphon.pronunciation.pronouncer.shipped", Pronouncer)  # which has not loaded it yet
    assert only_word("quixoticish").origin == "model"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I'll", "AY1 L"),
        ("hellooo", "HH AH0 L OW1"),
        ("COVID", "K OW1 V IH0 D"),
        ("js", "JH EY1 EH1 S"),
        ("UN", "Y UW1 EH1 N"),
        ("re", "R IY1"),
    ],
)
def test_words_that_letters_alone_do_not_tell(text, wanted):
    assert " ".join(only_word(text).phonemes) == wanted
