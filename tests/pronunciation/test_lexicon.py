"""The compact lexicon gives back what was packed, and the one that ships has all of the dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.pronunciation import FOLDER
from antiphon.pronunciation.lexicon import CompactLexicon, pack
from antiphon.pronunciation.phonemes import SYMBOLS, ipa, write
from antiphon.pronunciation.word_readings import order_readings

WORDS = st.text(st.sampled_from("abc'é-z"), min_size=1, max_size=6)
READINGS = st.lists(st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=5).map(tuple), min_size=1, max_size=3)


@given(st.dictionaries(WORDS, READINGS.map(tuple), min_size=1, max_size=20), WORDS)
def test_a_packed_lexicon_has_what_was_packed_and_nothing_else(tmp_path_factory, readings, other):
    path = tmp_path_factory.mktemp("lexicon") / "some.lexicon"
    path.write_bytes(pack(readings.items(), SYMBOLS))
    lexicon = CompactLexicon(path)
    assert dict(lexicon.items()) == readings
    assert len(lexicon) == len(readings)
    assert (other in lexicon) == (other in readings)


def test_words_beyond_one_block_are_found(tmp_path):
    readings = {f"w{number:05}": ((SYMBOLS[number % len(SYMBOLS)],),) for number in range(2000)}
    (tmp_path / "many.lexicon").write_bytes(pack(readings.items(), SYMBOLS))
    assert dict(CompactLexicon(tmp_path / "many.lexicon").items()) == readings


def test_the_shipped_lexicon_has_the_dictionary():
    lexicon = CompactLexicon(FOLDER / "en.lexicon")
    assert len(lexicon) == sum(1 for _ in lexicon) > 126_000
    assert lexicon["knight"] == (("N", "AY1", "T"),)
    assert lexicon["read"] == (("R", "EH1", "D"), ("R", "IY1", "D"))
    assert lexicon.get("knihgt") is None
    assert "" not in lexicon


def test_every_symbol_has_an_ipa_letter():
    assert all(write([symbol], "ipa").strip("ˈˌ").islower() for symbol in SYMBOLS)
    assert not any(character.isascii() and character.isupper() for symbol in SYMBOLS for character in ipa([symbol])[0])


def test_the_mark_of_stress_stands_before_the_syllable():
    lexicon = CompactLexicon(FOLDER / "en.lexicon")
    found = {word: write(lexicon[word][0], "ipa") for word in ("knight", "computer", "extra", "singer", "banjo")}
    wanted = {"knight": "ˈnaɪt", "computer": "kəmˈpjutɚ", "extra": "ˈɛkstɹə", "singer": "ˈsɪŋɚ", "banjo": "ˈbænˌdʒoʊ"}
    assert found == wanted


def test_a_part_of_speech_chooses_the_reading():
    listed = (("R", "EH1", "D"), ("R", "IY1", "D"))
    assert order_readings("read", listed, "VB")[0] == ("R", "IY1", "D")
    assert order_readings("read", listed, "VBN")[0] == ("R", "EH1", "D")
    assert order_readings("read", listed, "NOUN") == listed
    assert order_readings("knight", (("N", "AY1", "T"),), "VB") == (("N", "AY1", "T"),)


def test_every_heteronym_has_known_phonemes_and_several_readings_unless_no_lexicon_has_it():
    rows = [line.split("\t") for line in (FOLDER / "heteronyms.tsv").read_text(encoding="utf-8").splitlines()]
    assert all(set(phonemes.split()) <= set(SYMBOLS) for _, _, phonemes in rows)
    by_word = {word: [row[2] for row in rows if row[0] == word] for word, _, _ in rows}
    assert not [word for word, found in by_word.items() if len(set(found)) < len(found)]
    lexicon = CompactLexicon(FOLDER / "en.lexicon")
    assert not [word for word, found in by_word.items() if len(found) < 2 and word in lexicon]
