"""Processes that tests interrupt."""

import signal


def hear_ctrl_c():
    """Run in the new process: one that a shell has put into the background is born deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
