"""Training killed by SIGKILL at random times, again and again, until it ends by itself."""

import os
import random
import signal
import time

from tests.campaign import Findings
from tests.campaign.forks import call, in_fork, scratch_left

COMMAND = ["train", "recipe.toml", "--out", "run", "--resume", "--set", "train.max_epochs=6"]


def kill_at_random(shop, kills, seed=0):
    """Kills trainings at random times, ``kills`` times in all, and compares their ends with an uninterrupted one."""
    draw, found = random.Random(seed), Findings()
    shop.restore("data")
    started = time.monotonic()
    shop.must(COMMAND)
    seconds, expected = time.monotonic() - started, shop.stable_files()
    while found.injected < kills:
        shop.restore("data")
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            status, said = _start_and_kill(shop, draw.uniform(0, seconds))
            found.injected += status == -signal.SIGKILL
        if status:
            found.problems.append(f"after {found.injected} kills: ended with {status}: {said}")
        elif shop.stable_files() != expected or scratch_left(shop.work):
            found.problems.append(f"after {found.injected} kills: other files than without kills")
    return found


def _start_and_kill(shop, seconds):
    """Gives the command, and a SIGKILL after some seconds if it has not ended by then."""

    def work():
        os.chdir(shop.work)
        command = os.getpid()
        if os.fork() == 0:
            time.sleep(seconds)
            if os.getppid() == command:
                os.kill(command, signal.SIGKILL)
            os._exit(0)
        return call(*COMMAND)

    return in_fork(work)
