"""A worker whose function is restartable. It trains nothing: it runs until the file `finish` is there, and runs
Python code that tests put into files.

`do-RANK` is run within the function, `initialize-RANK`, `finalize-RANK` and `health_check-RANK` within those hooks;
each once. Words of the command line: `reads-rank`, which needs RANK before the function.
"""

import os
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
def train() -> None:
    """Run until the file `finish` is there."""
    memory["calls"] += 1
    say("worker", call=memory["calls"])
    while not Path("finish").exists():
        worker.ping()
        obey("do")
        time.sleep(DEED)


if __name__ == "__main__":
    if "reads-rank" in sys.argv:
        say("began", own=int(os.environ["RANK"]))  # a spare has none: the variable is empty
    train()
    say("returned")
