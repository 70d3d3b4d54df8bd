"""The moving picture of the README: the model ``en-stream`` reads words and writes their phonemes meanwhile.

``python -m experiments.moving_picture`` writes ``docs/reading.svg``, which moves by itself in a browser and shows all
of it where pictures do not move. Each letter stands where it is read, each phoneme below the letter after which it was
written.
"""

from pathlib import Path

from antiphon.lite import load

PICTURE = Path(__file__).parents[1] / "docs/reading.svg"
_WORDS = ("knight", "daylight", "quixotic")
_STEP, _PAUSE = 0.45, 2.5
"""Seconds for each symbol read, and at the end."""
_WIDTH, _LINE, _LEFT = 46, 92, 24
_STYLE = (
    "text{font:20px ui-monospace,monospace;text-anchor:middle}.read{fill:#555}.written{fill:#0b5c6b;font-weight:700}"
    "@media(prefers-color-scheme:dark){.read{fill:#aaa}.written{fill:#5cc3d1}}"
)


def written_after(word: str) -> list[list[str]]:
    """The phonemes written after each letter of a word, and at its end."""
    stream = load("en-stream").stream(policy="beam")
    return [*(list(stream.read(letter)) for letter in word), list(stream.finish())]


def draw(words: tuple[str, ...] = _WORDS) -> str:
    """The picture as SVG."""
    steps = sum(len(word) + 1 for word in words)
    seconds = steps * _STEP + _PAUSE
    shown, now = [], 0.0
    for row, word in enumerate(words):
        x, y, free = _LEFT, 34 + row * _LINE, _LEFT
        for letter, phonemes in zip([*word, ""], written_after(word), strict=True):
            now += _STEP
            shown += [_text(letter, "read", x, y, now / seconds, seconds)] if letter else []
            for phoneme in phonemes:
                place = max(x, free)
                shown.append(_text(phoneme, "written", place, y + 34, (now + 0.15) / seconds, seconds))
                free = place + _WIDTH
            x += _WIDTH
    width, height = 2 * _LEFT + _WIDTH * 12, _LINE * len(words)
    body = "\n".join(shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="Words are read letter by letter; phonemes are written meanwhile">\n'
        f"<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _text(text: str, kind: str, x: float, y: float, start: float, seconds: float) -> str:
    """A text that appears at a fraction of the time, again and again."""
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}">{text}<animate attributeName="opacity" dur="{seconds:g}s" '
        f'repeatCount="indefinite" calcMode="discrete" values="0;1" keyTimes="0;{start:.4f}"/></text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
