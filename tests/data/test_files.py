"""Files are read within bounds, and pipes once."""

import gzip
import os
import threading
import zlib
from pathlib import Path

import pytest

from antiphon.exceptions import InputError
from antiphon.torch_free.readers import MAX_LINE_BYTES, is_count, is_pipe, read_lines, read_text


def test_a_line_of_bounded_length_is_read_and_a_longer_one_named(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"a\n" + b"b" * (MAX_LINE_BYTES - 1) + b"\nc\n")
    assert [len(line) for line in read_lines(path)] == [1, MAX_LINE_BYTES - 1, 1]
    path.write_bytes(b"a\n" + b"b" * (MAX_LINE_BYTES + 1))
    with pytest.raises(InputError, match=r"lines\.txt:2: a line of more than 1,048,576 bytes"):
        list(read_lines(path))


def test_a_packed_file_is_not_unpacked_beyond_a_line(tmp_path):
    packer = zlib.compressobj(wbits=31)
    packed = b"".join(packer.compress(b"\0" * 2**20) for _ in range(300)) + packer.flush()
    (tmp_path / "bomb.gz").write_bytes(packed)
    with pytest.raises(InputError, match=r"bomb\.gz:1: a line of more than"):
        list(read_lines(tmp_path / "bomb.gz"))


@pytest.mark.parametrize("device", ["/dev/zero", "/proc/self/mem", "/dev"])
def test_what_is_no_text_file_is_refused(device):
    with pytest.raises(InputError, match=device):
        list(read_lines(Path(device)))


def test_a_pipe_is_read_once_and_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe.gz")
    content = gzip.compress(b"a\nb\n" * 1000)
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.gz").write_bytes(content))
    writer.start()
    assert len(list(read_lines(tmp_path / "pipe.gz"))) == 2000
    writer.join()


def test_pipes_and_devices_are_told_from_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    assert is_pipe(tmp_path / "pipe")
    assert is_pipe(Path("/dev/null"))
    assert not any(is_pipe(path) for path in (tmp_path, tmp_path / "file", tmp_path / "none", Path("a\0b")))


def test_a_text_that_is_read_as_a_whole_has_a_bound():
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_text(Path("/dev/zero"), 10)


def test_counts_are_plain_digits_of_bounded_size():
    assert is_count("0")
    assert is_count("9" * 18)
    assert not any(is_count(text) for text in ("", "-1", "²", "٣", "1.0", " 1", "9" * 5000))


@pytest.mark.parametrize(
    ("content", "found", "cure"),
    [
        (gzip.compress(b"a\tb\n", mtime=0), "gzipped", "gunzip"),
        ("a\tb\n".encode("utf-16"), "UTF-16", "iconv"),
        (b"PAR1\x15\x04\x15\x10PAR1", "Parquet", "read_parquet"),
        (b"PK\x03\x04\x14\x00", "a zip file", "unpack it"),
    ],
)
def test_a_file_of_another_format_is_named_with_what_converts_it(tmp_path, content, found, cure):
    (tmp_path / "pairs.tsv").write_bytes(content)
    with pytest.raises(InputError, match=rf"pairs\.tsv: seems to be {found}.*{cure}"):
        list(read_lines(tmp_path / "pairs.tsv"))


def test_text_that_starts_like_another_format_is_text(tmp_path):
    (tmp_path / "pairs.tsv").write_bytes(b"PAR1\tp a r\nPK\tp k\n")
    assert len(list(read_lines(tmp_path / "pairs.tsv"))) == 2
