"""A fuzzer of the command line: ``python -m tests.fuzz --seconds 60 --seed 1``.

Cases are drawn from a seed, run in this process through the real ``main``, and judged: exit status 0, 1 or 2, a
message that starts with ``antiphon:``, no control characters, bounded time and memory, nothing of the user's changed,
and nothing left behind by a command that failed.
"""
