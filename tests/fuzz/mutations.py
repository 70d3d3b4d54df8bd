"""Values and bytes that programs stumble over, and ways to damage what is well-formed."""

import gzip
import io
import zipfile
from random import Random

import numpy as np

NUMBERS = [
    *("0", "-1", "1", "2", "3", "7", "-0", "0.0", "0.5", "-0.5", "1e-9", "0.99", "0.999", "0.9999999999999999"),
    *("nan", "inf", "-inf", "+inf", "NaN", "1e400", "-1e400", "1e-400", "1e308", "1e9", "1e6", "1_000", "0x10"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "-9223372036854775809", "2147483648"),
    *("1000000000", "100000", "20000", "1001", "65", "65537", "1" + "0" * 400, "1" + "0" * 4999, "٣", "²", "+1", " 1"),
    *(
        "1.",
        ".5",
        "1e",
        "--1",
        "1,2",
        "0b1",
        "true",
        "false",
        "none",
        "null",
        "''",
        '""',
        "[]",
        "{}",
        "[1]",
        "1979-05-27",
    ),
]
TEXTS = [
    *(
        "",
        " ",
        "-",
        "--",
        "=",
        "a=b",
        ".",
        "..",
        "./.",
        "x/../y",
        "~",
        "$HOME",
        "%s%n%d",
        "{0}",
        "{folder}",
        "\\",
        "'",
        '"',
    ),
    *("\x1b[31mred\x1b[0m", "[bold]x[/]", "[/b]", "[fr]", "[link=x]y", ":smile:", "\x07", "\r", "\n", "a\nb", "\t"),
    *(
        "a" * 300,
        "a" * 5000,
        "ü" * 200,
        "é",
        "\udcff",
        "\u202eabc",
        "\ufeff",
        "日本語",
        "𝔘",
        "\x7f",
        "\x9b31m",
        "\u2028",
    ),
    *("none", "none/none/none", "train.tsv", "train.tsv/x", "direct", "direct/recipe.toml", "direct/", "recipe.toml"),
    *(
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
        "/proc/self/cmdline",
        "empty",
        "dangling",
        "loop",
        "pipe",
    ),
    *(
        "online",
        "lm",
        "noisy",
        "rules",
        "matcher",
        "overlap",
        "tagged.tsv",
        "questions.tsv",
        "vectors.npz",
        "train.tsv.gz",
    ),
]
LINES = [
    *(
        b"",
        b" ",
        b"\t",
        b"\t\t",
        b"\t\t\t",
        b"a",
        b"a\t",
        b"\ta",
        b"a\tb",
        b"a\tb\tc",
        b"a\tb\tc\td",
        b"\r",
        b"a\tb\r",
        b"\x00",
    ),
    *(
        b"\xff",
        b"a\t\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        "\ufeff".encode(),
        "a\u2028b\tc".encode(),
        b"\x0b",
        b"\x1c\tb",
        b"\x85",
    ),
    *(
        b"\x1b[2J\tx",
        b"[bold]\t[/]",
        b"a" * 100 + b"\tb",
        b"a\t" + b"b" * 100,
        "e\u0301\u0301\tx".encode(),
        "日\t本".encode(),
    ),
    *(
        b"<pad>\t</s>",
        b"<unk>\t<s>",
        b"\x1f\t\x1f",
        b"\\t\\\t\\u",
        b"a b  c\td",
        b"\xe2\x80\xae\tx",
        "𝔘\t𝔘".encode(),
        b"%s\t{}",
    ),
    *(
        "ß\tİ".encode(),
        b"0\t1",
        b"nan\tinf",
        b'"a\tb"',
        b"a,b;c|d\te\tf;g",
        "\u200b\t\u00a0".encode(),
        b"<QApairs id='x'>",
    ),
    *(b"</QApairs>", b"<question>", b"<positive>", b"question_id\tquestion\tcandidate_id\tsentence\tlabel", b"q 0 a 1"),
    *(b"1000000000000 300", b"0 0", b"1 0", b"a 1 2 3 4", b"a nan inf 1 1", b"a 1e400 1 1 1", b"unk 0 0 0 0", b"2 4"),
]


def mutate(content: bytes, draw: Random) -> bytes:
    """The content with one to four changes of lines or bytes."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        content = draw.choice((change_bytes, change_lines, change_lines, replace_whole))(content, draw)
    return content


def change_bytes(content: bytes, draw: Random) -> bytes:
    """A flipped bit, a cut, a removed or repeated span, or some bytes put in."""
    place, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    kind = draw.randrange(6)
    if kind == 0 and content:
        place = min(place, len(content) - 1)
        return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + content[end:]
    if kind == 3:
        return content[:end] + content[place:end][:5000] + content[end:]
    if kind == 4:
        return (
            content[:place] + draw.choice((b"\0", b"\xff", b"\n", b"\t", b"\x1b", b"\r\n", b"9" * 30)) + content[place:]
        )
    return content[:place] + draw.randbytes(draw.randrange(1, 20)) + content[end:]


def change_lines(content: bytes, draw: Random) -> bytes:
    """A line put in, removed, repeated, moved, or damaged."""
    lines = content.split(b"\n")
    place = draw.randrange(len(lines))
    kind = draw.randrange(6)
    if kind == 0:
        lines.insert(place, draw.choice(LINES))
    elif kind == 1:
        del lines[place]
    elif kind == 2:
        lines.insert(place, lines[place])
    elif kind == 3:
        draw.shuffle(lines)
    elif kind == 4:
        lines[place] = draw.choice(LINES)
    else:
        lines[place] = change_bytes(lines[place], draw)
    return draw.choice((b"\n", b"\n", b"\n", b"\r\n")).join(lines)


def replace_whole(content: bytes, draw: Random) -> bytes:
    """Something else altogether, now and then."""
    if draw.random() < 0.8:
        return change_bytes(content, draw)
    return draw.choice(
        (
            b"",
            b"\n" * 50,
            draw.randbytes(200),
            b"\n".join(draw.choices(LINES, k=10)),
            gzip.compress(content, mtime=0),
            b"x" * (2**20 + 5),
            b"[" * 5000,
            b'{"a":' * 5000,
            b"a = " + b"9" * 5000,
            b"null",
            b"[]",
            b"{}",
            b'"x"',
            b"1e999",
            b"NaN",
            "\ufeff".encode() + content,
            content.decode("latin1").encode("utf-16"),
        )
    )


def damaged_npz(draw: Random) -> bytes:
    """Word vectors with arrays of odd shapes, types and headers."""
    names = np.array(
        draw.choice((["red", "cat", "which"], ["red"], [], [1, 2, 3], [["a"], ["b"], ["c"]], ["", "\n", "a b"]))
    )
    rows = draw.choice(
        (
            np.ones((3, 4), np.float32),
            np.ones((3, 0)),
            np.ones(3),
            np.ones((3, 4, 2)),
            np.full((3, 4), np.nan),
            np.full((3, 4), 1e300),
            np.ones((3, 4), complex),
            np.array([["a"] * 4] * 3),
            np.ones((3, 4), bool),
            np.ones((3, 4), ">i8"),
            np.ones((1, 4)),
            np.zeros((0, 4)),
            np.ones((3, 4), np.float16, order="F"),
        )
    )
    arrays = {"words": names, "vectors": rows}
    if draw.random() < 0.3:
        arrays["unknown"] = draw.choice((np.ones(4), np.ones(3), np.full(4, np.inf), np.array("x"), np.ones((1, 4))))
    if draw.random() < 0.1:
        del arrays[draw.choice(("words", "vectors"))]
    file = io.BytesIO()
    (np.savez_compressed if draw.random() < 0.5 else np.savez)(file, **arrays)
    content = file.getvalue()
    if draw.random() < 0.4:
        return _lying_npz(draw)
    return change_bytes(content, draw) if draw.random() < 0.4 else content


def _lying_npz(draw: Random) -> bytes:
    """An archive whose header claims what is not there."""
    shape = draw.choice(
        ("(1000000000000, 300)", "(3, 4)", "(-1, 4)", "(3,)", "()", "x", "(" * 200, "(10**9, 10**9)", "(True, 4)")
    )
    kind = draw.choice(("<f4", "|O", "<U5", "<f8", "<M8", "V9", "zzz"))
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    version = draw.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    member = b"\x93NUMPY" + version + length + header + b"\0" * draw.choice((0, 48, 100))
    file = io.BytesIO()
    with zipfile.ZipFile(
        file, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    ) as archive:
        archive.writestr("words.npy", draw.choice((member, b"", b"\x93NUMPY")))
        archive.writestr("vectors.npy", member)
    return file.getvalue()


def toml_value(draw: Random) -> str:
    """A value as it might stand in a recipe."""
    kind = draw.randrange(6)
    if kind == 0:
        return '"' + draw.choice(("\\u0000", "\\u001b[31m", "x", "a\\nb", "[/b]", "/dev/zero", "none.tsv", "nan")) + '"'
    if kind == 1:
        return f"[{draw.choice(NUMBERS)}, {draw.choice(NUMBERS)}]"
    if kind == 2:
        depth = draw.choice((2, 50, 3000))
        return "[" * depth + "]" * depth
    if kind == 3:
        return '{a = 1, "\\u001b[2J" = 2}'
    return draw.choice(NUMBERS)
