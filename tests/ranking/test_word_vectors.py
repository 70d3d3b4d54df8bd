import struct
import zipfile

import numpy as np
import pytest

from antiphon.exceptions import InputError
from antiphon.ranking.word_vectors import read_vectors

WORDS = {"the": [1.0, 2.0], "cat": [0.5, -1.0], "sat": [0.0, 3.0]}
GLOVE = "".join(f"{word} {x} {y}\n" for word, (x, y) in WORDS.items())


def write_binary(path, words=WORDS, cut=0):
    body = b"".join(word.encode() + b" " + struct.pack("<2f", *numbers) + b"\n" for word, numbers in words.items())
    path.write_bytes((f"{len(words)} 2\n".encode() + body)[: -cut or None])
    return path


def write_text(path, text):
    path.write_text(text)
    return path


def write_npz(path, **arrays):
    np.savez(path, words=np.array(list(WORDS)), vectors=np.array(list(WORDS.values()), np.float16), **arrays)
    return path


@pytest.mark.parametrize("format", ["glove", "word2vec text", "word2vec binary", "npz"])
def test_every_format_gives_the_same_vectors(tmp_path, format):
    path = {
        "glove": lambda: write_text(tmp_path / "v.txt", GLOVE),
        "word2vec text": lambda: write_text(tmp_path / "v.vec", f"3 2\n{GLOVE}"),
        "word2vec binary": lambda: write_binary(tmp_path / "v.bin"),
        "npz": lambda: write_npz(tmp_path / "v.npz"),
    }[format]()
    known = read_vectors(path, {"cat", "dog", "the"})
    assert known.words == ("the", "cat")
    np.testing.assert_allclose(known.vectors, [WORDS["the"], WORDS["cat"]])
    np.testing.assert_allclose(known.unknown, [0.75, 0.5])


def test_more_words_come_from_the_head_of_the_file(tmp_path):
    path = write_text(tmp_path / "v.txt", GLOVE)
    assert read_vectors(path, {"sat"}, more=1).words == ("the", "sat")
    assert read_vectors(path, {"sat"}, more=9).words == ("the", "cat", "sat")


def test_a_vector_for_unknown_words_is_taken_where_there_is_one(tmp_path):
    assert read_vectors(write_text(tmp_path / "v.txt", f"{GLOVE}<unk> 7 8\n"), {"cat"}).unknown.tolist() == [7, 8]
    npz = write_npz(tmp_path / "v.npz", unknown=np.array([5.0, 6.0]))
    assert read_vectors(npz, {"cat"}).unknown.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncat 3\n", r"v\.txt:2: 1 numbers after 'cat', expected 2"),
        ("3 2\nthe 1 2 3\n", r"v\.txt:2: 3 numbers after 'the', expected 2"),
        ("the 1 x\n", r"v\.txt:1: not a number"),
        (GLOVE, r"v\.txt: knows none of the 1 words of the data"),
    ],
)
def test_damaged_or_strange_vectors_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_vectors(write_text(tmp_path / "v.txt", text), {"elephant"})


def test_a_binary_file_cut_short_is_refused(tmp_path):
    with pytest.raises(InputError, match="ends in word 3 of 3"):
        read_vectors(write_binary(tmp_path / "v.bin", cut=4), {"cat"})


def test_an_npz_with_objects_in_it_is_not_loaded(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["a"], object), vectors=np.zeros((1, 2)))
    with pytest.raises(InputError, match=r"v\.npz: cannot be read"):
        read_vectors(tmp_path / "v.npz", {"a"})


def test_as_many_vectors_as_words_are_needed(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["a"]), vectors=np.zeros((2, 2)))
    with pytest.raises(InputError, match="expected one row for each word"):
        read_vectors(tmp_path / "v.npz", {"a"})


def npz(path, header, content=b"\0" * 48):
    """An archive of arrays with a header that may be wrong."""
    start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vectors.npy", start + content)
        archive.writestr("words.npy", b"")
    return path


@pytest.mark.parametrize("shape", ["(10**12, 300)", "(1000000000000, 300)", "(3, 5)", "(-3, -4)", "x"])
def test_an_npz_file_that_promises_what_it_has_not_is_refused_before_allocating(tmp_path, shape):
    path = npz(tmp_path / "v.npz", f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")
    with pytest.raises(InputError, match=r"v\.npz: cannot be read"):
        read_vectors(path, {"a"})


def test_an_npz_file_whose_header_is_cut_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"v\.npz: cannot be read"):
        read_vectors(npz(tmp_path / "v.npz", "{'descr': ('<f4',"), {"a"})


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"words": np.array(["a"]), "vectors": np.zeros((1, 0))},
        {"words": np.array(["a"]), "vectors": np.full((1, 2), np.nan)},
        {"words": np.array(["a"]), "vectors": np.full((1, 2), 1e300)},
        {"words": np.array([1]), "vectors": np.zeros((1, 2))},
        {"words": np.array("a"), "vectors": np.zeros((1, 2))},
        {"words": np.array(["a"]), "vectors": np.zeros((1, 2), complex)},
        {"words": np.array(["a"]), "vectors": np.zeros((1, 2)), "unknown": np.full(2, np.inf)},
    ],
)
def test_arrays_that_are_no_vectors_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(InputError, match=r"v\.npz"):
        read_vectors(tmp_path / "v.npz", {"a"})


def test_an_empty_npz_file_is_refused(tmp_path):
    (tmp_path / "v.npz").write_bytes(b"")
    with pytest.raises(InputError, match=r"v\.npz: cannot be read"):
        read_vectors(tmp_path / "v.npz", {"a"})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.bin", b"1000000000000 1000000000000\na "),
        ("v.bin", b"1 0\na "),
        ("v.bin", b"9" * 5000 + b" 3\n"),
        ("v.bin", b"2 1\n" + b"a" * 10_000),
        ("v.bin", b"1 1\na \x00\x00\xc0\x7f"),
        ("v.txt", b"1 1000000000\na 1\n"),
        ("v.txt", b"a nan\n"),
        ("v.txt", b"a 1e400\n"),
        ("v.txt", "² ²\na 1\n".encode()),
    ],
)
def test_absurd_counts_and_numbers_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_vectors(tmp_path / name, {"a"})


def test_words_that_no_vocabulary_can_hold_are_left_out(tmp_path):
    np.savez(tmp_path / "v.npz", words=np.array(["a", "b\nc", "", "d e", "\ud800", "f"]), vectors=np.ones((6, 2)))
    assert read_vectors(tmp_path / "v.npz", {"a"}, more=10).words == ("a", "f")
