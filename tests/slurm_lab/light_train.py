"""A training without torch, for tests in which torch is not the point: it starts in 50 ms instead of seconds of CPU.

To its job it looks like the example (configs/examples/ddp/train.py): the same command line, rows of output, checkpoints
and use of RANK, WORLD_SIZE and MASTER_ADDR. In each step all ranks add up their parts of a sum over TCP, as a
collective does: a rank whose peer has ended fails, and one whose peer is silent waits. The loss follows from a weight
that only the checkpoints keep, so it is the same after a restart from any checkpoint, and with any number of ranks.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path
from typing import TextIO

BATCH = 96
"""Samples of each step, shared out to the ranks."""
RATE = 0.01
PORT = 23000
"""Plus the cycle: rank 0 of an earlier cycle may be frozen and still have its own port."""
BOUND = 120.0
"""Seconds until all ranks must have met."""
COUNTS = (
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_ID",
    "FT_SUPERVISOR_TERM",
    "TORCHELASTIC_RESTART_COUNT",
)
"""Together a number that is greater for every later incarnation of the training."""


class World:
    """All ranks; rank 0 adds up."""

    def __init__(self, cycle: int) -> None:
        self.rank, self.size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._others = self._accept(PORT + cycle) if self.rank == 0 else [self._call(PORT + cycle)]

    def total(self, mine: list[float]) -> list[float]:
        """The sums over all ranks, which have all come here by then."""
        if self.rank != 0:
            self._send(mine)
            return self._receive(self._others[0])
        parts = [mine, *map(self._receive, self._others)]
        sums = [sum(column) for column in zip(*parts, strict=True)]
        self._send(sums)
        return sums

    def _accept(self, port: int) -> list[TextIO]:
        with socket.create_server(("", port)) as server:
            server.settimeout(BOUND)
            return [server.accept()[0].makefile("rw") for _ in range(1, self.size)]

    def _call(self, port: int) -> TextIO:
        end = time.monotonic() + BOUND
        while True:
            try:
                connection = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=5.0)
                connection.settimeout(None)
                return connection.makefile("rw")
            except OSError:  # rank 0 does not listen yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def _send(self, numbers: list[float]) -> None:
        for other in self._others:
            other.write(json.dumps(numbers) + "\n")
            other.flush()

    def _receive(self, other: TextIO) -> list[float]:
        line = other.readline()
        if not line:
            raise ConnectionError("a peer has ended")
        numbers: list[float] = json.loads(line)
        return numbers


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-time", type=float, default=0.0)
    parser.add_argument("--checkpoint-every", type=int, required=True)
    parser.add_argument("--log-every", type=int, choices=[1], required=True)
    return parser.parse_args()


def own_path() -> Path:
    """Where this incarnation saves, and no other: one that was frozen overwrites nothing newer."""
    folder = Path("checkpoints", os.environ.get("SLURM_JOB_ID", "none"))
    return folder / f"checkpoint-{'.'.join(os.environ.get(name, '0') for name in COUNTS)}.pt"


def token(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.stem.removeprefix("checkpoint-").split(".")))


def save(path: Path, state: list[float]) -> None:
    """Replaces this incarnation's checkpoint, and removes those of earlier ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".tmp").write_text(json.dumps(state))
    path.with_suffix(".tmp").replace(path)
    for other in path.parent.glob("checkpoint-*"):
        if token(other) < token(path):
            other.unlink(missing_ok=True)


def load(path: Path) -> list[float]:
    """The newest checkpoint's step and weight; zeros when there is none."""
    newest = max(path.parent.glob("checkpoint-*.pt"), key=token, default=None)
    if newest is None:
        return [0, 0.0]
    if token(newest) > token(path):
        raise SystemExit(f"{newest} is of a later incarnation than this one, which would save {path.name}")
    state: list[float] = json.loads(newest.read_text())
    return state


def parts(step: int, weight: float, world: World) -> list[float]:
    """This rank's parts of the loss and of its gradient. The data follow from the number of the step."""
    data = [(step * 7919 + index * 104729) % 1000 / 500 - 1 for index in range(world.rank, BATCH, world.size)]
    error = weight - 1.0
    return [sum((error * x) ** 2 for x in data), sum(2 * error * x * x for x in data)]


def main() -> None:
    options = parse()
    cycle = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    world, path = World(cycle), own_path()
    step, weight = world.total(load(path) if world.rank == 0 else [0, 0.0])
    facts = {"world": world.size, "resumed_from": int(step), "cycle": cycle}
    for number in range(int(step) + 1, options.steps + 1):
        loss, gradient = world.total(parts(number, weight, world))
        weight -= RATE * gradient / BATCH
        time.sleep(options.step_time)
        if world.rank == 0:
            line = json.dumps({"step": number, "loss": round(loss / BATCH, 6), **facts})
            os.write(1, f"{line}\n".encode())  # in one piece: others may write there too
            if number % options.checkpoint_every == 0 or number == options.steps:
                save(path, [number, weight])
    world.total([])  # no rank reports success before the last checkpoint is written


if __name__ == "__main__":
    main()
