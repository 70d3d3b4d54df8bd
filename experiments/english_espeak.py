"""Words wrong on the held-out tenth beside espeak-ng, whose IPA becomes classes of phonemes that both can write.

python -m experiments.english_espeak FOLDER/test.tsv ESPEAK.txt MODEL [MODEL ...]

ESPEAK.txt is what ``espeak-ng -v en-us -q --ipa --sep=_`` prints for the words of test.tsv, each on a line and once.
Stress is left out, AA and AO are one class, and so are unstressed AH and IH; before R, so
are IY and IH, and AO and OW.
"""

import re
import sys
from pathlib import Path

from experiments.english_score import outputs, references

_PHONEMES = {
    "iː": "IY",
    "i": "IY",
    "ɪ": "IH",
    "ᵻ": "@",
    "ɛ": "EH",
    "e": "EH",
    "æ": "AE",
    "a": "AE",
    "aː": "AA",
    "ɑː": "AA",
    "ɑ": "AA",
    "ɔː": "AA",
    "ɔ": "AA",
    "oː": "AA",
    "ɒ": "AA",
    "ʌ": "AH",
    "ə": "@",
    "ɐ": "@",
    "ʊ": "UH",
    "uː": "UW",
    "u": "UW",
    "eɪ": "EY",
    "aɪ": "AY",
    "ɔɪ": "OY",
    "aʊ": "AW",
    "oʊ": "OW",
    "ɜː": "ER",
    "ɚ": "ER",
    "o": "OW",
    "ɑːɹ": "AA R",
    "ɔːɹ": "AA R",
    "oːɹ": "AA R",
    "ɛɹ": "EH R",
    "ɪɹ": "IH R",
    "ʊɹ": "UH R",
    "aɪɚ": "AY ER",
    "aɪə": "AY @",
    "iə": "IY @",
    "əl": "@ L",
    "n̩": "@ N",
    "ɾ": "T",
    "ʔ": "T",
    "x": "K",
    "tʃ": "CH",
    "dʒ": "JH",
    "ð": "DH",
    "θ": "TH",
    "ŋ": "NG",
    "ɹ": "R",
    "r": "R",
    "ʃ": "SH",
    "ʒ": "ZH",
    "j": "Y",
    "h": "HH",
    "ɡ": "G",
    **{letter: letter.upper() for letter in "bdfklmnpstvwz"},
}
_CLASSES = {"AO": "AA"}


def of_arpabet(phonemes: str) -> str:
    """Phonemes with stress as classes."""
    found = ("@" if each in ("AH0", "IH0") else each.rstrip("012") for each in phonemes.split())
    return _merge(" ".join(_CLASSES.get(each, each) for each in found))


def of_espeak(line: str) -> str:
    """The IPA of a word, phonemes between underscores, as classes."""
    found = []
    for each in re.split(r"[_\s]+", line.strip()):
        is_stressed = each[:1] in ("ˈ", "ˌ")
        name = _PHONEMES.get(each.strip("ˈˌː"), _PHONEMES.get(each.strip("ˈˌ"), f"?{each}"))
        found.append("@" if name in ("IH", "AH") and not is_stressed else name)
    return _merge(" ".join(found))


def _merge(phonemes: str) -> str:
    """Vowels before R that only one side tells apart become one class."""
    for old, new in (("IY R", "IH R"), ("OW R", "AA R"), ("UW R", "UH R"), ("@ R", "ER"), ("ER R", "ER")):
        phonemes = phonemes.replace(old, new)
    return phonemes


def main() -> None:
    """Prints a row for espeak-ng and for each model."""
    test, espeak, *models = sys.argv[1:]
    wanted = {word: set(map(of_arpabet, readings)) for word, readings in references(Path(test)).items()}
    lines = Path(espeak).read_text(encoding="utf-8").splitlines()
    found = {"espeak-ng": dict(zip(wanted, map(of_espeak, lines), strict=True))}
    for model in models:
        found[model] = {word: of_arpabet(phonemes) for word, phonemes in outputs(model, list(wanted)).items()}
    for name, spoken in found.items():
        wrong = sum(spoken.get(word, "") not in readings for word, readings in wanted.items())
        print(f"{100 * wrong / len(wanted):.2f}\t{name}")


if __name__ == "__main__":
    main()
