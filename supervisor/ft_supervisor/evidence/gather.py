"""Takes the evidence of a node's workers, all at the same time: for each a digest, and a text for people.

Any look at a process may hang with it, so each worker has a thread of its own that can be abandoned. The digest comes
first, and what takes longer, such as the stacks of a data loader's processes, afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource
from ft_supervisor.evidence import digest, kernel, printed, py_spy, recorder, server, stack
from ft_supervisor.evidence.footprint import Footprints
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
from ft_supervisor.process.tree import descendants

BOUND = 3.2
"""Seconds for all workers of a node. It leaves some to evidence.TAKING."""
_SERVER = 0.8
"""Seconds for one answer of a worker server. It takes milliseconds where the process can run."""
TEXT = 256 << 10
"""Characters of a worker's text."""


@dataclass(frozen=True)
class Worker:
    """A worker of this node. `said`: its last STATUS=. `since`: its later output, which is read if the signal
    `signal_name` is sent."""

    rank: int
    local_rank: int
    pid: int
    said: str = ""
    signal_name: str = "SIGUSR2"
    since: printed.Since = lambda _position: (0, b"")


@dataclass
class _Found:
    """What is known of one worker so far; filled in by its thread."""

    digest: Digest
    sections: list[str] = field(default_factory=list)


class Gathering:
    """Evidence that is being taken."""

    def __init__(
        self,
        workers: Sequence[Worker],
        sockets: Path,
        began: float = 0.0,
        keep: Callable[[Worker, str], None] | None = None,
        footprints: Footprints | None = None,
    ) -> None:
        """`sockets`: the folder of worker_server.FOLDER; `began`: when the cycle began, in seconds since the epoch, as
        records may tell of former ones. `keep` is called with each worker's text, in its thread; its errors are logged.
        `footprints` is told what the looks cost.
        """
        self._until = time.monotonic() + BOUND
        self._sockets = sockets
        self._began = began
        self._keep = keep
        self._footprints = footprints or Footprints()
        self._found = {worker.local_rank: _Found(Digest(worker.local_rank)) for worker in workers}
        self._work = {
            worker.local_rank: Background(f"stacks of rank {worker.rank}", partial(self._take, worker), file_failed)
            for worker in workers
        }

    def wait(self, bound: float) -> bool:
        """Wait at most `bound` seconds, and never beyond BOUND after the beginning. Return whether it is over."""
        end = min(time.monotonic() + bound, self._until)
        while time.monotonic() < end and not all(work.wait(end - time.monotonic()) for work in self._work.values()):
            pass
        return time.monotonic() >= self._until or all(work.wait(0) for work in self._work.values())

    def digests(self) -> tuple[Digest, ...]:
        """Return what is known by now, by local rank."""
        return tuple(self._found[local_rank].digest for local_rank in sorted(self._found))

    def text(self, local_rank: int) -> str:
        """Return what is known by now of one worker, for people."""
        return "\n\n".join(list(self._found[local_rank].sections))[:TEXT]

    def late(self) -> list[str]:
        """Return the names of what is not done."""
        return [work.what for work in self._work.values() if not work.wait(0)]

    def _take(self, worker: Worker) -> None:
        found = self._found[worker.local_rank]
        try:
            with self._footprints.of(worker.pid):
                self._look(worker, found)
        finally:
            if self._keep is not None:
                self._keep(worker, self.text(worker.local_rank))

    def _look(self, worker: Worker, found: _Found) -> None:
        pid = self._python(worker.pid)
        state = kernel.state(pid)
        if state:
            found.digest = digest.make(worker.local_rank, EvidenceSource.PROC, (), (), state, worker.said)
        collectives, source = self._collectives(worker, pid, state)
        text, frames, by = self._stacks(worker, pid, state)
        best = source if source is not EvidenceSource.NONE else by
        found.digest = digest.make(worker.local_rank, best, frames, collectives, state, worker.said)
        if not state:
            found.digest = Digest(worker.local_rank)
        if collectives:
            found.sections.append(_entered(collectives))
        if pid != worker.pid:
            found.sections.append(f"== process {worker.pid}\n{kernel.threads(worker.pid)}")
        found.sections.append(f"== process {pid}\n{text.strip()}\n\n{kernel.threads(pid)}")
        for child in kernel.python_below(pid):
            if told := py_spy.dump(child, self._until, pausing=False):
                found.sections.append(f"== process {child}\n{told.text}\n\n{kernel.threads(child)}")
            else:
                found.sections.append(f"== process {child}\n{kernel.threads(child)}")

    def _python(self, pid: int) -> int:
        """Return the process that trains: the worker itself, or the Python that a shell has started."""
        served = self._served()
        if pid in served:
            return pid
        if below := served & descendants(pid).keys():
            return min(below)
        if kernel.is_python(pid):
            return pid
        return next(iter(kernel.python_below(pid)), pid)

    def _served(self) -> set[int]:
        try:
            return {int(path.name) for path in self._sockets.iterdir() if path.name.isdecimal()}
        except OSError:
            return set()

    def _bound(self, seconds: float) -> float:
        return min(self._until, time.monotonic() + seconds)

    def _collectives(self, worker: Worker, pid: int, state: str) -> tuple[tuple[Collective, ...], EvidenceSource]:
        record: Mapping[str, object] | None = None
        data = None if state in digest.STOPPED else server.ask(self._socket(pid), server.TRACE, self._bound(_SERVER))
        source = EvidenceSource.WORKER_SERVER
        if data is not None:
            record = recorder.parse(data)
        if record is None:
            record = recorder.offered(pid, worker.rank, self._began, self._bound(_SERVER))
            source = EvidenceSource.FLIGHT_RECORDER
        if record is None:
            return (), EvidenceSource.NONE
        return recorder.collectives(record, self._began), source

    def _stacks(self, worker: Worker, pid: int, state: str) -> tuple[str, tuple[stack.Frame, ...], EvidenceSource]:
        """Return the stacks for people, the main thread's frames, and who has told them."""
        stopped, path = state in digest.STOPPED, self._socket(pid)
        asks = not stopped and server.unanswered(path) < server.WAITING
        if asks and (data := server.ask(path, server.TRACEBACK, self._bound(_SERVER))):
            text = data.decode(errors="replace")
            if frames := stack.by_faulthandler(text):
                return text, frames, EvidenceSource.WORKER_SERVER
        if told := py_spy.dump(pid, self._until, pausing=not stopped):
            return told.text, told.frames, EvidenceSource.PY_SPY
        if not stopped and (text := printed.stacks(pid, worker.signal_name, worker.since, self._until) or ""):
            words = f"What it printed at {worker.signal_name}:\n{text}"
            return words, stack.by_faulthandler(text), EvidenceSource.FAULTHANDLER
        return printed.advice(worker.signal_name), (), EvidenceSource.PROC if state else EvidenceSource.NONE

    def _socket(self, pid: int) -> Path:
        return self._sockets / str(pid)


def _entered(collectives: Sequence[Collective]) -> str:
    lines = [f"  {one.group}: {_one(one)}" for one in collectives]
    return "\n".join(["The last collective that it has entered, by group:", *lines])


def _one(entered: Collective) -> str:
    if not entered.sequence:
        return "none yet"
    return f"{entered.operation} {entered.sequence}" + (f", shape {entered.shape}" if entered.shape else "")
