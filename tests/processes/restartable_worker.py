"""A worker whose function is restartable. It trains nothing: it runs until the file `finish` is there, and runs
Python code that tests put into files.

`do-RANK` is run within the function, `initialize-RANK`, `finalize-RANK` and `health_check-RANK` within those hooks;
each once. While the function runs in a cycle, the file `ran-RESTART-RANK` has when it began and when it last ran, by
CLOCK_MONOTONIC. Words of the command line: `reads-rank`, which needs RANK before the function; `twice`, which calls the
function until the file `half` is there, and then once more.
"""

import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

from ft_supervisor import worker

DEED = 0.02
"""Seconds between two deeds."""
memory: dict[str, Any] = {"calls": 0}
"""Kept from one call of the function to the next."""


def say(what: str, **more: object) -> None:
    """Print a line with a single write."""
    get = os.environ.get
    told = f"event={what} restart={get('TORCHELASTIC_RESTART_COUNT')} rank={get('RANK')} world={get('WORLD_SIZE')}"
    more = {"pid": os.getpid(), **more}
    os.write(1, f"{told} {' '.join(f'{name}={value}' for name, value in more.items())}\n".encode())


def act(first: float) -> None:
    """Do a deed of this cycle, which others can see."""
    path = f"ran-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['RANK']}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(file, struct.pack("2d", first, time.monotonic()), 0)
    os.close(file)


def obey(when: str) -> None:
    """Run a test's code for this rank, if there is any, once."""
    order = Path(f"{when}-{os.environ.get('RANK')}")
    if order.exists():
        code = order.read_text()
        order.unlink()
        exec(code, globals())


@worker.restartable(
    initialize=lambda _: obey("initialize"),
    finalize=lambda _: obey("finalize"),
    health_check=lambda _: obey("health_check"),
)
def train(until: str = "finish") -> None:
    """Run until this file is there."""
    memory["calls"] += 1
    memory["began"] = time.monotonic()
    act(memory["began"])
    say("worker", call=memory["calls"], until=until)
    while not Path(until).exists():
        worker.ping()
        act(memory["began"])
        obey("do")
        time.sleep(DEED)


if __name__ == "__main__":
    if "reads-rank" in sys.argv:
        say("began", own=int(os.environ["RANK"]))  # a spare has none: the variable is empty
    if "twice" in sys.argv:
        train("half")
    train()
    say("returned")
