"""Files cut into parts: together they are the file."""

import gzip
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.data import part_files
from antiphon.data.part_files import cut_file
from antiphon.exceptions import InputError
from antiphon.torch_free.files import read_lines

TEXTS = st.lists(st.sampled_from(["a", "ä", "\n", "\r\n", "", "\ufeff", "long " * 3])).map("".join)


@given(TEXTS, st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_parts_have_the_lines_of_the_file(tmp_path_factory, text, lines_per_part, block, zipped):
    path = tmp_path_factory.mktemp("cut") / ("x.gz" if zipped else "x.txt")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_files, "_BLOCK", block)
        cut = cut_file(path, lines_per_part)
    expected = list(enumerate(read_lines(path), 1))
    parts = [list(cut.read([part])) for part in range(len(cut.starts))]
    assert [line for part in parts for line in part] == expected == list(cut.read(range(len(cut.starts))))
    assert all(len(part) == lines_per_part for part in parts[:-1])
    assert [number for number, _ in parts[-1]] == list(cut.line_numbers(len(parts) - 1)) if parts else not expected
    assert (cut.lines, cut.bytes) == (len(expected), len(text.encode()))
    assert cut.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_errors_name_the_file_and_the_line(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"a\nb\nc\n\xff\n")
    cut = cut_file(tmp_path / "x.txt", 2)
    with pytest.raises(InputError, match=r"x\.txt:4: byte 1 is not UTF-8"):
        list(cut.read([1]))
    with pytest.raises(InputError, match="a folder, expected a text file"):
        cut_file(tmp_path, 2)
