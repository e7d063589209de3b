"""A worker that trains nothing: it says that it is there and runs until the file `finish` is there. SIGUSR1: it fails.

SIGUSR2: it complains, and exits with 7. `deaf`: SIGTERM does nothing to it. `family`: it has a child in a session of
its own, and an orphan in another. `beats`: heartbeats by systemd's notify protocol, until the file `silent-RANK` is
there. `checkpoints`: it writes the step that the file `next-step` tells to the file `step`. `records`: it writes when
it ran first and last, by CLOCK_MONOTONIC, to the file `ran-RESTART-RANK`.
"""

import os
import signal
import socket
import struct
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


def complain(_number: int, _frame: object) -> None:
    """Fail, with a reason."""
    os.write(2, b"NVRM: Xid 48, uncorrectable ECC error\n")
    os._exit(7)


def beat(notify: socket.socket) -> None:
    """As any client of sd_notify does."""
    if not Path(f"silent-{os.environ['RANK']}").exists():
        notify.send(b"WATCHDOG=1\nSTATUS=step 1769, training")


def checkpoint() -> None:
    """As a training script does, whole or not at all."""
    told = Path("next-step")
    if told.exists():
        Path("step.new").write_text(told.read_text())
        Path("step.new").replace("step")


def record(file: int, first: float) -> None:
    """Where no other can be seen: it runs now, and did at `first`."""
    os.pwrite(file, struct.pack("2d", first, time.monotonic()), 0)


def run(what: str) -> None:
    """Until a signal."""
    say(what)
    while True:
        signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda _number, _frame: os._exit(1))
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, lambda _number, _frame: say("deaf"))
    signal.signal(signal.SIGUSR2, complain)
    if "family" in sys.argv:
        start_family()
    if "beats" in sys.argv:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        beat(notify)  # before it says that it is there, so that a test may have it fall silent from then on
    began, file = time.monotonic(), -1
    if "records" in sys.argv:
        path = f"ran-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}"
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        record(file, began)
    say("worker")
    while not Path("finish").exists():
        if "beats" in sys.argv:
            beat(notify)
        if "checkpoints" in sys.argv and os.environ["RANK"] == "0":
            checkpoint()
        if file >= 0:
            record(file, began)
        time.sleep(0.02 if file < 0 else 0.001)
