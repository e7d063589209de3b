"""The observable signs of a job: its log lines, its workers' reports, and the ends of its processes."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ft_bench.seen import BenchError, GrowingList

BOUND = 180.0
"""Seconds for an event that must happen once, on a machine with too few cores for so many nodes."""
_WORKER = Path(__file__).with_name("worker.py")
_OURS = re.compile(r"(?:\s*\S+\| )?(\d{4}-\d\d-\d\dT[0-9:.]+Z) \w+ event=(\w+)(.*)")
_FIELD = re.compile(r' (\w+)=([^ "]+)')


@dataclass(frozen=True)
class LogLine:
    """One of ft-supervisor's own lines. `time`: seconds since the epoch, with the milliseconds of the log line."""

    time: float
    event: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class WorkerReport:
    """One line of a worker. `time`: seconds since the epoch; `seconds`: the line's own figure."""

    what: str
    time: float
    pid: int
    rank: int
    seconds: float


class Workers:
    """The workers' reports, from a named pipe."""

    def __init__(self, folder: Path) -> None:
        pipe = folder / "workers"
        os.mkfifo(pipe)
        self.command = [sys.executable, "-I", "-S", str(_WORKER), str(pipe)]
        self._told: GrowingList[WorkerReport] = GrowingList()
        # Also open for writing, so that it does not end when no worker is there.
        self._fd = os.open(pipe, os.O_RDWR)
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, what: str, count: int, after: float = 0.0) -> list[WorkerReport]:
        """Return each rank's first report `what` after that time, once `count` ranks have sent one."""

        def pick(told: Sequence[WorkerReport]) -> list[WorkerReport] | None:
            first: dict[int, WorkerReport] = {}
            for one in told:
                if one.what == what and one.time > after:
                    first.setdefault(one.rank, one)
            return list(first.values()) if len(first) >= count else None

        return self._told.wait(pick, BOUND, f"{count} workers that say {what}")

    def between(self, what: str, first: float, last: float) -> list[WorkerReport]:
        """Return the reports `what` of these times, of those that are there by now."""
        return self._told.wait(
            lambda told: [one for one in told if one.what == what and first < one.time < last], BOUND, what
        )

    def said(self, what: str) -> int:
        """Return how often this report was sent so far."""
        return self._told.wait(lambda told: sum(one.what == what for one in told), BOUND, what)

    def _read(self) -> None:
        with os.fdopen(self._fd) as lines:
            for line in lines:
                what, when, pid, rank, seconds = line.split()
                self._told.add(WorkerReport(what, float(when), int(pid), int(rank), float(seconds)))


def parse(line: str) -> LogLine | None:
    """Parse a line of ours, with or without the node's name that `local` puts before it; None for any other."""
    match = _OURS.match(line)
    if match is None:
        return None
    return LogLine(datetime.fromisoformat(match[1]).timestamp(), match[2], dict(_FIELD.findall(match[3])))


class Exits:
    """Waits for the end of processes. Make it before they end."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._fds = [os.pidfd_open(pid) for pid in pids]

    def last(self, bound: float = BOUND) -> float:
        """Return when the last one ended, in seconds since the epoch. Raises BenchError after `bound` seconds."""
        poll = select.poll()
        for fd in self._fds:
            poll.register(fd, select.POLLIN)
        left, until = len(self._fds), time.monotonic() + bound
        while left and (wait := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(wait * 1000):
                poll.unregister(fd)
                left -= 1
        ended = time.time()
        for fd in self._fds:
            os.close(fd)
        if left:
            raise BenchError(f"{left} processes did not end within {bound:g} s")
        return ended
