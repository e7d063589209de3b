"""Reads a worker's signs of work from proc(5): CPU time, and bytes that were read and written, of the worker and of all
processes below it. The counts of processes that have ended are in those of their parents, which have waited for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ft_supervisor.core.protocol.activity import Activity
from ft_supervisor.core.protocol.events import WorkersSeen
from ft_supervisor.core.protocol.evidence import Digest
from ft_supervisor.core.protocol.model import Cycle
from ft_supervisor.evidence import kernel
from ft_supervisor.evidence.footprint import Footprints
from ft_supervisor.evidence.gather import BOUND, Gathering
from ft_supervisor.process.background import Background
from ft_supervisor.process.log import file_failed
from ft_supervisor.process.tree import living, scan

_TICK = os.sysconf("SC_CLK_TCK")
_CPU = slice(11, 13)
_WAITED = slice(13, 15)
"""Of proc_pid_stat(5), after the state: utime and stime; cutime and cstime, of children that were waited for."""


class Looks:
    """Looks at the workers, one look at a time, in a thread of its own. `seen` is called there."""

    def __init__(self, seen: Callable[[WorkersSeen], None]) -> None:
        self._seen = seen
        self._work: Background[None] | None = None

    def begin(
        self,
        cycle: Cycle,
        pids: Mapping[int, int],
        output: Mapping[int, int],
        footprints: Footprints,
        stacks: Callable[[], Gathering | None] | None = None,
    ) -> None:
        """Look at the workers of `cycle`, by local rank; `output` and `footprints` as for `look`. `stacks` begins to
        take evidence where stacks are wanted. While a look is under way there is no other."""
        if self._work is None or self._work.wait(0):
            gathering = stacks() if stacks is not None else None
            work = partial(self._look, cycle, dict(pids), dict(output), footprints, gathering)
            self._work = Background("look at workers", work, file_failed)

    def _look(
        self,
        cycle: Cycle,
        pids: Mapping[int, int],
        output: Mapping[int, int],
        footprints: Footprints,
        gathering: Gathering | None,
    ) -> None:
        digests: tuple[Digest, ...] = ()
        if gathering is not None:
            gathering.wait(BOUND)
            digests = gathering.digests()
        entered = {digest.local_rank: sum(one.sequence for one in digest.collectives) for digest in digests}
        stacks = tuple((digest.local_rank, _place(digest)) for digest in digests)
        self._seen(WorkersSeen(cycle, look(pids, output, entered, footprints), stacks))


def _place(digest: Digest) -> str:
    """Return where a worker is, as text that changes as soon as it goes on; "" if that is not known."""
    if not digest.stack:
        return ""
    entered = ",".join(str(collective.sequence) for collective in digest.collectives)
    return f"{digest.stack} {digest.frame} {entered}"


@dataclass(frozen=True)
class _Counts:
    cpu: float = 0.0
    waited: float = 0.0
    read: int = 0
    written: int = 0


def look(
    pids: Mapping[int, int], output: Mapping[int, int], entered: Mapping[int, int], footprints: Footprints
) -> tuple[Activity, ...]:
    """Return what each of these workers has done since its start, by local rank. `output`: the bytes that came through
    its pipes; `entered`: its collectives, where they are known; `footprints`: what it has written only because it was
    looked at. Workers that have ended are left out. Raises OSError when /proc cannot be read."""
    processes = scan()
    found = []
    for local_rank, pid in sorted(pids.items()):
        own = _counts(pid)
        if own is not None:
            below = _total(living(pid, processes=processes))
            found.append(
                Activity(
                    local_rank,
                    output.get(local_rank, 0),
                    footprints.without(pid, own.written),
                    own.read,
                    own.cpu,
                    below.written,
                    own.waited + below.cpu + below.waited,
                    entered.get(local_rank, 0),
                )
            )
    return tuple(found)


def _total(pids: Iterable[int]) -> _Counts:
    counts = [one for one in map(_counts, pids) if one is not None]
    return _Counts(
        sum(one.cpu for one in counts),
        sum(one.waited for one in counts),
        sum(one.read for one in counts),
        sum(one.written for one in counts),
    )


def _counts(pid: int) -> _Counts | None:
    """Return the counts of one process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    cpu, waited = (sum(map(int, fields[part])) / _TICK for part in (_CPU, _WAITED))
    io = kernel.totals(pid)
    return _Counts(cpu, waited, io.get("rchar", 0) + io.get("read_bytes", 0), kernel.written_of(io))
