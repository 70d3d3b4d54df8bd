"""Where the trials of a search are trained: which GPU each of those that are trained at the same time has."""

from dataclasses import dataclass
from itertools import cycle, islice

from antiphon.device import visible_gpus
from antiphon.exceptions import InputError

_JOBS = 2
"""Trials at the same time if nothing says how many."""


@dataclass(frozen=True)
class Slot:
    """Where one trial at a time is trained: ``gpu`` is a name in CUDA_VISIBLE_DEVICES, or empty for no choice."""

    device: str = "auto"
    gpu: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a process of this slot finds in its environment."""
        return {"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {}


def make_slots(devices: str | None, jobs: int | None) -> list[Slot]:
    """As many slots as ``jobs``, or as devices are listed, such as ``0,0,1`` or ``cpu``; else the GPUs in turn."""
    gpus = visible_gpus()
    if devices is None:
        listed = [Slot(gpu=gpu) for gpu in gpus] or [Slot()]
        return list(islice(cycle(listed), jobs or _JOBS))
    listed = [_slot(name.strip(), gpus) for name in devices.split(",")]
    return list(islice(cycle(listed), jobs or len(listed)))


def _slot(name: str, gpus: list[str]) -> Slot:
    """The slot of a device, named by the index of a visible GPU or cpu."""
    if name == "cpu":
        return Slot(device="cpu")
    if name.isascii() and name.isdecimal() and int(name) < len(gpus):
        return Slot(gpu=gpus[int(name)])
    known = ", ".join([*map(str, range(len(gpus))), "cpu"])
    raise InputError(
        f"--devices {name}: not found on this machine, expected one or more of {known}, separated by commas"
    )
