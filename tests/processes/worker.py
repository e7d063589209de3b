"""A worker that trains nothing: it says that it is there and runs until the file `finish` is there. SIGUSR1: it fails.

`deaf`: SIGTERM does nothing to it. `family`: it has a child in a session of its own, and an orphan in another.
"""

import os
import signal
import sys
import time
from pathlib import Path


def say(what: str) -> None:
    """One line, in one piece."""
    told = f"event={what} restart={os.environ['TORCHELASTIC_RESTART_COUNT']} rank={os.environ['RANK']}"
    os.write(1, f"{told} world={os.environ['WORLD_SIZE']} pid={os.getpid()}\n".encode())


def start_family() -> None:
    """A child, and a grandchild whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        run("child")
    between = os.fork()
    if between == 0:
        os.setsid()
        if os.fork() == 0:
            run("orphan")
        os._exit(0)
    os.waitpid(between, 0)


def run(what: str) -> None:
    """Until a signal."""
    say(what)
    while True:
        signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda _number, _frame: os._exit(1))
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, lambda _number, _frame: say("deaf"))
    if "family" in sys.argv:
        start_family()
    say("worker")
    while not Path("finish").exists():
        time.sleep(0.02)
