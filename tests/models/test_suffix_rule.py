import pytest

from antiphon.exceptions import AntiphonError, RunError
from antiphon.torch_free.suffix_rule import SuffixRules

DATIVE_PLURAL = [
    ("Lehnwort", "Lehnwörtern"),
    ("Zahlwort", "Zahlwörtern"),
    ("Ort", "Orten"),
    ("Tag", "Tagen"),
    ("Montag", "Montagen"),
    ("Blatt", "Blättern"),
]


@pytest.fixture
def rules():
    return SuffixRules.learn((source, target, ("DAT", "PL")) for source, target in DATIVE_PLURAL)


def apply(rules, word, *features):
    return "".join(rules.apply(word, features or ("DAT", "PL")))


def test_the_longest_known_suffix_decides(rules):
    assert apply(rules, "Fremdwort") == "Fremdwörtern"
    assert apply(rules, "Freitag") == "Freitagen"
    assert apply(rules, "Datenblatt") == "Datenblattern".replace("att", "ätt")


def test_the_most_frequent_rule_of_a_suffix_wins(rules):
    assert apply(rules, "X") == "Xen"


def test_rules_belong_to_a_tag(rules):
    assert apply(rules, "Fremdwort", "NOM", "SG") == "Fremdwort"


def test_the_empty_word_and_the_empty_rule_set_are_answered(rules):
    assert apply(rules, "") == "en"
    assert apply(SuffixRules(), "Wort") == "Wort"


def test_rules_survive_their_file(rules, tmp_path):
    rules.save(tmp_path / "rules.tsv")
    again = SuffixRules.load(tmp_path / "rules.tsv")
    assert len(again) == len(rules)
    assert all(apply(again, word) == apply(rules, word) for word, _ in DATIVE_PLURAL)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "rules.tsv").write_text("a\tb\n")
    with pytest.raises(RunError, match=r"rules\.tsv:1: not a suffix rule"):
        SuffixRules.load(tmp_path / "rules.tsv")


def test_tokens_with_every_character_are_saved_and_loaded(tmp_path):
    rules = SuffixRules.learn([(["a\tb", "\\", "\x1f"], ["c\\t", "\\u", "ü"], ["N\\"])])
    rules.save(tmp_path / "rules.tsv")
    loaded = SuffixRules.load(tmp_path / "rules.tsv")
    assert loaded.apply(["a\tb", "\\", "\x1f"], ["N\\"]) == ("c\\t", "\\u", "ü")


@pytest.mark.parametrize("content", [b"\xff\t\t\t\t1\n", b"\t\t\t\t" + b"9" * 5000 + b"\n", "\t\t\t\t²\n".encode()])
def test_rules_that_are_none_are_refused(tmp_path, content):
    (tmp_path / "rules.tsv").write_bytes(content)
    with pytest.raises(AntiphonError, match=r"rules\.tsv:1"):
        SuffixRules.load(tmp_path / "rules.tsv")
