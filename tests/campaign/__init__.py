"""Faults injected into commands, and what was lost: ``python -m tests.campaign``."""

from dataclasses import dataclass, field


@dataclass
class Findings:
    """How many faults were injected, and what went wrong."""

    injected: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def survived(self):
        """Faults after which all was well, or that were noticed."""
        return self.injected - len(self.problems)

    def __add__(self, other):
        return Findings(self.injected + other.injected, self.problems + other.problems)
