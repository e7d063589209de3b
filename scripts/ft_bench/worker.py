"""A worker that only says what happens to it, one line each, into the named pipe that its argument names.

`start` carries the time of its first statement; SIGTERM is `term` and exit code 143, SIGUSR1 is `exit` and 0. Imports
next to nothing: python -I -S has it running in about 10 ms.
"""

import time

STARTED = time.time()

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from types import FrameType  # noqa: E402

PIPE = os.open(sys.argv[1], os.O_WRONLY)
RANK = os.environ["RANK"]


def tell(what: str, when: float) -> None:
    os.write(PIPE, f"{what} {when:.6f} {os.getpid()} {RANK}\n".encode())


def on_signal(number: int, frame: FrameType | None) -> None:
    done = number == signal.SIGUSR1
    tell("exit" if done else "term", time.time())
    os._exit(0 if done else 143)


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGUSR1, on_signal)
tell("start", STARTED)
while True:
    signal.pause()
