"""What commands print on a terminal, and what into a pipe."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from antiphon.console import PlainConsole

NOTE = "a note of several words, the last of which does not fit"
PROGRAM = f"""
import shutil
from antiphon.cli.failures import Failure, report, secure_standard_streams
from antiphon.terminal import print_note
secure_standard_streams()
print(shutil.get_terminal_size().columns, flush=True)
print_note({NOTE!r})
report(Failure(2, {NOTE!r}))
"""


def on_terminal(columns):
    """The lines that the program prints on a terminal with so many columns."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    subprocess.run([sys.executable, "-c", PROGRAM], stdout=terminal, stderr=terminal, check=True, env=environment)
    os.close(terminal)
    printed = b""
    while b"fit" not in printed.partition(b"fit")[2]:
        printed += os.read(screen, 4096)
    os.close(screen)
    return printed.decode().split()[0], printed.decode().splitlines()[1:]


def test_a_command_knows_the_width_of_its_terminal():
    assert on_terminal(200) == ("200", [f"antiphon: {NOTE}"] * 2)


def test_notes_and_errors_break_between_words():
    folded = ["antiphon: a note of several words, the", "last of which does not fit"]
    assert on_terminal(40) == ("40", folded * 2)


def test_text_for_a_pipe_is_wide(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    PlainConsole().print("word " * 25)
    assert capsys.readouterr().out.count("\n") == 1
