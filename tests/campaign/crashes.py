"""Crashes at every file operation of a command, and what is found afterwards.

What a killed process leaves on the disk is what was there before the operation that it was killed at. So one run of a
command, with a copy of its folder made before each operation, gives what every kill would leave (``states_of``);
copies that are the same in every bit are checked once. ``kill_everywhere`` does it the long way: it starts the command
anew for each operation and kills it there.
"""

import errno
import hashlib
import os
import shutil
from pathlib import Path

from tests.campaign import Findings
from tests.campaign.forks import call, in_fork, scratch_left
from tests.campaign.operations import watch

KILLED = 137


def snapshot_everywhere(shop, scenario, every=1):
    """Checks the states of the disk that a kill before any operation of a command leaves, or some of them."""
    expected, operations, states = states_of(shop, scenario)
    found = Findings(injected=len(operations[::every]))
    for number, state in list(states.items())[::every]:
        shutil.rmtree(shop.work)
        state.rename(shop.work)
        found.problems += problem_at(number, operations, check(shop, scenario, expected))
    return found


def kill_everywhere(shop, scenario, every=1):
    """Kills a command before each of its operations, every time from the same start, and checks what is left."""
    expected, operations, _ = states_of(shop, scenario)
    found = Findings(injected=len(operations[::every]))
    for number in range(1, len(operations) + 1, every):
        shop.restore(scenario.before)
        status, said = shop.call(scenario.command, lambda at=number: watch(shop.work, Countdown(at, _die)))
        wrong = "" if status == KILLED else f"ended with {status} instead of being killed: {said}"
        found.problems += problem_at(number, operations, wrong or check(shop, scenario, expected))
    return found


def fill_disk_everywhere(shop, scenario, every=1):
    """Lets a disk be full from each operation of a command on that needs room, and checks what is left."""
    expected, operations, _ = states_of(shop, scenario)
    needy = [number for number, operation in enumerate(operations, 1) if operation.endswith("+")][::every]
    found = Findings(injected=len(needy))
    for number in needy:
        shop.restore(scenario.before)
        status, said = shop.call(scenario.command, lambda at=number: watch(shop.work, Countdown(at, _refuse_room)))
        one_sentence = "Traceback" not in said and ("disk is full" in said or "no space left" in said)
        wrong = "" if status == 2 and one_sentence else f"ended with {status}: {said}"
        found.problems += problem_at(number, operations, wrong or check(shop, scenario, expected))
    return found


def problem_at(number, operations, problem):
    """What is wrong, with the operation that it happened at, if anything is."""
    return [f"operation {number} ({operations[number - 1]}): {problem}"] if problem else []


class Countdown:
    """Acts from operation ``at`` on."""

    def __init__(self, at, act):
        self.left, self.act = at, act

    def __call__(self, operation):
        self.left -= 1
        if self.left <= 0:
            self.act(operation)


def _die(operation):
    if operation.half_written:
        os.truncate(operation.path, operation.path.stat().st_size // 2)
    os._exit(KILLED)


def _refuse_room(operation):
    if operation.needs_room:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(operation.path))


def states_of(shop, scenario):
    """A command left alone: the files that it leaves, its operations, and by their numbers copies of what was there.

    Only copies that differ from the one before are made. Operations that need room end in a plus sign.
    """
    shop.restore(scenario.before)
    copies, listed = shop.kept.parent / "states", shop.kept.parent / "operations"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()

    def work():
        os.chdir(shop.work)
        recorder = Recorder(shop.work, copies, listed)
        watch(shop.work, recorder)
        return call(*scenario.command)

    listed.write_text("")
    status, said = in_fork(work)
    assert status == 0, said
    states = {int(copy.name): copy for copy in sorted(copies.iterdir(), key=lambda copy: int(copy.name))}
    return shop.stable_files(), listed.read_text().splitlines(), states


class Recorder:
    """Writes down every operation, and copies the folder whenever something has changed since the last copy."""

    def __init__(self, folder, copies, listed):
        self.folder, self.copies, self.listed = folder, copies, listed
        self.number, self.last = 0, ""

    def __call__(self, operation):
        self.number += 1
        mark = "+" if operation.needs_room else ""
        with self.listed.open("a") as file:
            file.write(f"{operation.name} {os.path.relpath(operation.path, self.folder)}{mark}\n")
        if operation.half_written or fingerprint(self.folder) != self.last:
            copy = shutil.copytree(self.folder, self.copies / str(self.number), symlinks=True)
            if operation.half_written:
                half = copy / os.path.relpath(operation.path, self.folder)
                os.truncate(half, half.stat().st_size // 2)
            self.last = fingerprint(copy)


def fingerprint(folder):
    """A digest of all names and contents under a folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def check(shop, scenario, expected):
    """What is wrong after a crash: a run that is neither the old nor the new one, or a command that does not go on."""
    status, problem = in_fork(lambda: _check(shop, scenario, expected))
    return problem or f"status {status}" if status else ""


def _check(shop, scenario, expected):
    os.chdir(shop.work)
    is_there = scenario.is_there(shop.work / scenario.written)
    if not is_there and scenario.is_there(shop.kept / scenario.before / scenario.written):
        return 1, f"neither the old {scenario.written} nor the new one is there"
    status, said = call(*scenario.next_command(is_there))
    if status:
        return 1, f"the next command ended with {status}: {said}"
    if left := scratch_left(shop.work):
        return 1, f"left behind: {left}"
    files = shop.stable_files()
    if files.keys() != expected.keys() or (scenario.repeatable and files != expected):
        return 1, f"other files than without a crash: {sorted(set(files.items()) ^ set(expected.items()))}"
    return 0, ""
