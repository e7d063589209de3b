"""A worker that reports its events, one line each, into the named pipe that its argument names.

`start` carries the time of its first statement; SIGTERM is `term` and exit code 143, SIGUSR1 is `exit` and 0. It
imports next to nothing: python -I -S has it running in about 10 ms. With a second argument it trains: in steps of so
many seconds; SIGUSR2 is `pause`, with the longest time between the ends of two steps since the last SIGUSR2.
"""

import time

STARTED = time.time()

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from types import FrameType  # noqa: E402

PIPE = os.open(sys.argv[1], os.O_WRONLY)
RANK = os.environ["RANK"]
longest = 0.0


def tell(what: str, when: float, seconds: float = 0.0) -> None:
    os.write(PIPE, f"{what} {when:.6f} {os.getpid()} {RANK} {seconds:.6f}\n".encode())


def on_signal(number: int, frame: FrameType | None) -> None:
    done = number == signal.SIGUSR1
    tell("exit" if done else "term", time.time())
    os._exit(0 if done else 143)


def on_question(_number: int, _frame: FrameType | None) -> None:
    global longest
    tell("pause", time.time(), longest)
    longest = 0.0


def train(step: float) -> None:
    global longest
    last = time.monotonic()
    while True:
        time.sleep(step)
        now = time.monotonic()
        longest, last = max(longest, now - last), now


signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGUSR1, on_signal)
signal.signal(signal.SIGUSR2, on_question)
tell("start", STARTED)
if len(sys.argv) > 2:
    train(float(sys.argv[2]))
while True:
    signal.pause()
