"""What programs of speech synthesis call for phonemes: interfaces of phonemizer and misaki."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from antiphon.exceptions import InputError
from antiphon.integrations.misaki import misaki_fallback
from antiphon.integrations.phonemizer import AntiphonBackend, Separator

ROOT = Path(__file__).parent.parent.parent
MISAKI_LETTERS = frozenset("AIOWYbdfhijklmnpstuvwzæðŋɑɔəɛɜɡɪɹɾʃʊʌʒʤʧˈˌθᵊᵻʔ")


def test_words_end_with_their_separator_and_empty_texts_are_left_out():
    backend = AntiphonBackend("en-us")
    assert backend.phonemize(["the knight", " ", "12 cats!"]) == ["ðə naɪt ", "twɛlv kæts "]
    assert backend.phonemize(["the knight"], strip=True) == ["ðə naɪt"]
    separated = backend.phonemize(["the knight"], separator=Separator(phone="-", word="|"))
    assert separated == ["ð-ə|n-aɪ-t|"]


def test_punctuation_and_stress_are_kept_on_request():
    backend = AntiphonBackend(preserve_punctuation=True, with_stress=True, punctuation_marks=",.")
    assert backend.phonemize(["The computer, Sir!"], strip=True) == ["ðə kəmpjˈutɚ, sˈɝ!"]


def test_another_language_and_a_plain_string_are_refused():
    with pytest.raises(InputError, match="language 'fr-fr': not supported, expected en-us"):
        AntiphonBackend("fr-fr")
    with pytest.raises(InputError, match="text: a string, expected a list of strings"):
        AntiphonBackend().phonemize("knight")


@pytest.mark.parametrize(
    ("text", "letters", "rating"),
    [
        ("knight", "nˈIt", 3),
        ("voyage", "vˈYəʤ", 3),
        ("bird", "bˈɜɹd", 3),
        ("about", "əbˈWt", 3),
        ("floofs", "flˈufs", 2),
        ("...", None, None),
    ],
)
def test_misaki_gets_its_own_letters(text, letters, rating):
    assert misaki_fallback(SimpleNamespace(text=text)) == (letters, rating)
    assert MISAKI_LETTERS.issuperset(letters or "")


REAL = """
import inspect, pathlib, re
from importlib.util import find_spec
from phonemizer.backend.base import BaseBackend
from phonemizer.separator import Separator
from antiphon.integrations.phonemizer import AntiphonBackend
theirs, ours = (list(inspect.signature(each.phonemize).parameters) for each in (BaseBackend, AntiphonBackend))
assert theirs == ours, (theirs, ours)
backend = AntiphonBackend("en-us", with_stress=True)
found = backend.phonemize(["the knight"], Separator(phone="-", word="|"), True, 1)
assert found == ["\\u00f0-\\u0259|n-\\u02c8a\\u026a-t|"]
from misaki.token import MToken
from antiphon.integrations.misaki import misaki_fallback
assert misaki_fallback(MToken("knight", "NN", "")) == ("n\\u02c8It", 3)
source = (pathlib.Path(find_spec("misaki").submodule_search_locations[0]) / "en.py").read_text(encoding="utf-8")
letters = set(re.search(r"US_VOCAB = frozenset\\('(.*?)'", source)[1])
from antiphon.pronunciation.phonemes import SYMBOLS
from antiphon.integrations.misaki import _letter
assert not [each for each in SYMBOLS if not letters.issuperset(_letter(each))]
"""


@pytest.mark.slow
def test_the_real_packages_have_these_interfaces(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "phonemizer", "misaki", "."], check=True, cwd=ROOT)
    done = subprocess.run([python, "-I", "-c", REAL], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
