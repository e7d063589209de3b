"""Ranks for tests of State: real processes, forked from a server that has imported torch, in real gloo groups.

A rank's process lives through several cycles, as a restartable worker does, and runs one function in each.
"""

import datetime
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

BOUND = 120.0  # seconds, for anything that a rank is asked to do
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch._dynamo", "torch.distributed", "ft_supervisor.worker.state", "tests.worker.ranks"]
)


class Restart(BaseException):
    """Raised like worker.Restart, from a signal handler in the main thread."""


@dataclass
class Place:
    """A rank's place in its cycle."""

    rank: int
    world_size: int
    memory: dict[str, Any]  # of the process: it lives on from cycle to cycle


Job = Callable[..., Any]
"""job(place, *arguments) -> the answer to the test; it runs within the cycle's process group."""


class Rank:
    """The test's end of one process."""

    def __init__(self) -> None:
        self._pipe, end = _context.Pipe()
        self.process = _context.Process(target=_serve, args=(end,), daemon=True)
        self.process.start()
        end.close()

    def run(self, job: Job, rank: int, world_size: int, store: Path, *arguments: object) -> None:
        """Begin a cycle; `answer` gives its result."""
        self._pipe.send((job, rank, world_size, str(store), arguments))

    def answer(self) -> Any:
        """Return what the job has returned, or an exception's text as a Failure. EOFError: the process is dead."""
        assert self._pipe.poll(BOUND), f"no answer of {self.process.pid} within {BOUND} s"
        return self._pipe.recv()

    def has_answered(self) -> bool:
        return self._pipe.poll()

    def leave(self) -> None:
        """Raise Restart in the process's main thread."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGUSR1)

    def kill(self) -> None:
        self.process.kill()
        self.process.join(BOUND)
        self._pipe.close()


@dataclass(frozen=True)
class Failure:
    """The text of an exception of a job."""

    text: str


def cycle(ranks: Sequence[Rank], job: Job, store: Path, *arguments: object) -> list[Any]:
    """Run one cycle to its end on all ranks, and return their answers."""
    for rank, process in enumerate(ranks):
        process.run(job, rank, len(ranks), store, *arguments)
    return [process.answer() for process in ranks]


def _serve(pipe: Connection) -> None:
    """Run a rank's process: one cycle after the other, until its pipe is closed."""
    import torch

    torch.set_num_threads(1)
    memory: dict[str, Any] = {}
    while True:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        try:
            job, rank, world_size, store, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(_one_cycle(job, Place(rank, world_size, memory), store, arguments))


def _one_cycle(job: Job, place: Place, store: str, arguments: Sequence[object]) -> Any:
    import torch.distributed as dist

    result = _until_it_is_left(job, place, store, arguments)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if dist.is_initialized():
        dist.destroy_process_group()
    return result


def _until_it_is_left(job: Job, place: Place, store: str, arguments: Sequence[object]) -> Any:
    import torch.distributed as dist

    try:
        try:
            signal.signal(signal.SIGUSR1, _raise)
            dist.init_process_group(
                "gloo",
                init_method=f"file://{store}",
                rank=place.rank,
                world_size=place.world_size,
                timeout=datetime.timedelta(seconds=20),
            )
            return job(place, *arguments)
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    except Restart:
        return Failure("Restart")
    except Exception:
        return Failure(traceback.format_exc())


def _raise(number: int, frame: FrameType | None) -> None:
    raise Restart
