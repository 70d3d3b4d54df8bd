"""What predict says beside its outputs, on standard error alone."""

import io
import itertools
import sys
from pathlib import Path

import pytest

from antiphon.cli.predict import Progress, UnknownSymbols, count_lines, with_long_ones_noted
from antiphon.exceptions import InputError
from antiphon.torch_free.codec import Chars, Normalisation, TextCodec
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Candidate, Prediction
from antiphon.torch_free.vocab import Vocab

NOTHING = (Candidate("", 0.0, (), ()),)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def predictions(number):
    return [Prediction("x", ("x", "</s>"), NOTHING)] * number


def follow(stream, seconds_each, number, **options):
    ticks = itertools.count()
    progress = Progress(number, stream, clock=lambda: next(ticks) * seconds_each / 2, **options)
    assert len(list(progress.follow(predictions(number)))) == number
    return stream.getvalue()


def test_a_short_input_is_answered_without_a_word():
    assert follow(io.StringIO(), 0.01, 100) == ""
    assert follow(Terminal(), 0.01, 100, silent=False) == ""


def test_progress_rate_and_time_left_are_said_on_a_long_input():
    lines = follow(io.StringIO(), 1.0, 200).splitlines()
    assert 1 <= len(lines) <= 6
    assert all("of 200 inputs" in line and "per second" in line and "left" in line for line in lines)


def test_the_rate_counts_whole_windows_alone():
    times = iter([0.0, *(30.0 + index / 1000 for index in range(100)), *(60.0 + index / 1000 for index in range(100))])
    stream = io.StringIO()
    list(Progress(1000, stream, clock=lambda: next(times)).follow(predictions(200)))
    assert stream.getvalue() == "antiphon: 100 of 1,000 inputs, 3.3 per second, 4:31 left\n"


def test_progress_is_shown_where_outputs_come_without_a_pause():
    assert "per second" in follow(io.StringIO(), 0.01, 9000)


def test_a_terminal_shows_one_line_that_is_taken_away_at_the_end():
    shown = follow(Terminal(), 1.0, 20, silent=False)
    assert "\n" not in shown
    assert "of 20 inputs" in shown
    assert shown.endswith("\r\x1b[K")


def test_nothing_is_said_where_outputs_come_on_the_same_terminal():
    assert follow(Terminal(), 1.0, 20, silent=True) == ""


def test_unknown_symbols_are_counted_once_for_all_inputs():
    unknown = UnknownSymbols()
    found = [Prediction("Xy", ("X", "y"), NOTHING, ("X",)), *predictions(2), Prediction("XQ", (), NOTHING, ("X", "Q"))]
    assert list(unknown.follow(found)) == found
    assert str(unknown) == "3 symbols in 2 inputs that training never saw: 'X' (2), 'Q' (1)"
    assert str(UnknownSymbols()) == ""


def test_a_symbol_that_was_seen_in_lower_case_is_pointed_out():
    for steps, hint in (
        (Normalisation(), "; it saw 'm': lower-case the input, or train with data.lowercase=true, which reads 'M' so"),
        (Normalisation(lowercase=True), ""),
    ):
        unknown = UnknownSymbols(TextCodec(steps, Chars(), Vocab("am")))
        unknown.add(["Q", "Q", "M"])
        said = "3 symbols in 1 input that training never saw: 'Q' (2), 'M' (1)"
        assert str(unknown) == said + hint


def test_very_many_different_unknown_symbols_take_no_more_memory():
    unknown = UnknownSymbols(kept=10)
    for number in range(1000):
        unknown.add(["frequent", str(number)])
    assert len(unknown.counts) <= 20
    assert str(unknown).startswith("2,000 symbols in 1,000 inputs that training never saw: 'frequent' (1,000), ")


def test_lines_are_counted_where_that_is_cheap(tmp_path):
    (tmp_path / "x.txt").write_text("a\nb\n")
    assert count_lines(tmp_path / "x.txt") == 2
    assert count_lines(tmp_path / "x.txt.gz") is None


def test_a_very_long_input_is_announced_before_its_search(capsys):
    codec = TextCodec(Normalisation(), Chars(), Vocab(["a"]))
    given = iter([Source("a" * 2000), Source("a" * 2001), Source("a" * 9000)])
    sources = with_long_ones_noted(given, codec)
    next(sources)
    assert capsys.readouterr().err == ""
    next(sources)
    assert capsys.readouterr().err.startswith("antiphon: input 2 has 2,001 symbols: the time of a search grows with")
    next(sources)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_that_cannot_be_counted_is_named():
    with pytest.raises(InputError, match=r"^/proc/self/mem: input/output error, expected a readable text file"):
        count_lines(Path("/proc/self/mem"))
