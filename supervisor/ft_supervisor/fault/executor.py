"""`python -m ft_supervisor.fault.executor REQUEST`: the process on the node that carries out one fault.

It is started before anything is frozen or cut, in a session of its own, and undoes that when its time is over, even if
the shell that started it is gone. The line `thaw` on its standard input or a SIGTERM (a cancelled step) ends the time
at once; the end of its standard input does not. If its input ends before the fault, the fault does not happen: no shell
waits for it any more. It prints its answers, one JSON object a line.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ft_supervisor.core.protocol.codec import decode
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.fault import answering, find, record
from ft_supervisor.fault.answering import say
from ft_supervisor.fault.cut import Cut
from ft_supervisor.fault.messages import (
    MAX_BYTES,
    TO_EXECUTOR,
    Act,
    FaultError,
    Hit,
    Look,
    NotAllowed,
    NotThere,
    Seen,
    Target,
    Verb,
    Wrong,
)
from ft_supervisor.fault.pidfds import Pidfds, stopped
from ft_supervisor.journal.lines import wall
from ft_supervisor.process import tree
from ft_supervisor.run_folder import runs

THAW = b"thaw"
GONE_BOUND = 5.0
"""Seconds that a killed process gets to be gone."""


def main(words: list[str]) -> NoReturn:
    """Carry out one request. Leaves by os._exit with 0, or with the code of a refusal."""

    def work() -> None:
        request = decode(words[0].encode(), TO_EXECUTOR, MAX_BYTES)
        _Executor().carry_out(request)

    answering.answer(work)


class _Executor:
    def __init__(self) -> None:
        self._pidfds = Pidfds()
        self._signalled, write = socket.socketpair()
        write.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        self._wakeup = write
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(
                number, lambda _number, _frame: None
            )  # only _wait and _check_wanted see it, between two steps

    def carry_out(self, request: Look | Hit) -> None:
        """Raises FaultError."""
        if isinstance(request, Look):
            for seen in find.look(runs.Wanted(request.job_id, request.step_id, request.restart_count)):
                say(seen)
            return
        seen, begin = find.find(request.run_id, request.node)
        if not seen.allowed:
            raise NotAllowed(not_allowed(seen))
        match request.verb:
            case Verb.KILL:
                self._kill(request, seen)
            case Verb.FREEZE:
                self._freeze(request, seen)
            case Verb.THAW:
                self._thaw(request, seen)
            case Verb.CUT:
                self._cut(request, seen, begin)
            case _:
                raise Wrong(f"{request.verb} cannot be asked for")

    # -- faults

    def _kill(self, hit: Hit, seen: Seen) -> None:
        self._take(hit, seen)
        self._check_wanted()
        try:
            if hit.target is Target.NODE:  # all at once: no process sees another one die
                self._pidfds.stop_below(seen.daemon)
        finally:
            pids = self._pidfds.send(signal.SIGKILL)
        self._tell(hit, seen, self._reached(pids))
        if left := self._pidfds.wait_gone(GONE_BOUND):
            raise FaultError(f"{hit.node}: still there {GONE_BOUND:g} s after SIGKILL: {', '.join(map(str, left))}")

    def _freeze(self, hit: Hit, seen: Seen) -> None:
        seconds = _seconds(hit)
        self._take(hit, seen)
        if stopped(self._pidfds.pids):  # whose thaw would end ours, and ours theirs
            raise NotThere(f"the {hit.target} of {hit.node} is frozen already; `fault thaw {hit.target}` ends that")
        self._check_wanted()
        end = time.monotonic() + seconds
        try:
            if hit.target is Target.NODE:
                self._pidfds.stop_below(seen.daemon)
                pids = self._reached(self._pidfds.pids)
            else:
                pids = self._reached(self._pidfds.send(signal.SIGSTOP))
                self._pidfds.wait_still()
            still = bool(stopped(self._pidfds.pids))  # before the answer, after which it may be thawed at once
            self._tell(hit, seen, pids)
            why = self._wait(end, still)
        finally:
            thawed = self._pidfds.send(signal.SIGCONT)
        self._tell(replace(hit, verb=Verb.THAW, seconds=None), seen, thawed, note=why if thawed else "all are dead")

    def _thaw(self, hit: Hit, seen: Seen) -> None:
        self._take(hit, seen)
        if hit.target is Target.NODE:
            for pid in tree.descendants(seen.daemon):
                self._pidfds.take(pid)
        frozen = stopped(self._pidfds.pids)
        self._pidfds.send(signal.SIGCONT)
        if not frozen:
            raise NotThere(f"no {hit.target} of {hit.node} is frozen")
        self._tell(hit, seen, tuple(frozen))

    def _cut(self, hit: Hit, seen: Seen, begin: Begin) -> None:
        seconds = _seconds(hit)
        if hit.target is not Target.NODE:
            raise Wrong("only a node can be cut")
        cut = Cut(begin.job, begin.node)  # looks up names, which may take long
        self._check_wanted()
        try:
            cut.begin(seconds)
            self._tell(hit, seen, ())
            why = self._wait(time.monotonic() + seconds)
        finally:
            with suppress(NotAllowed):  # never begun, or its elements have timed out
                cut.end()
        self._tell(replace(hit, verb=Verb.HEAL, seconds=None), seen, (), note=why)

    # -- what they share

    def _take(self, hit: Hit, seen: Seen) -> None:
        processes = tree.scan()
        for pid in victims(hit.target, hit.rank, seen):
            # What was seen a moment ago is still below the same daemon, or has gone.
            process = processes.get(pid)
            parent = {seen.daemon: None, seen.agent: seen.daemon, seen.coordinator: seen.daemon}.get(pid, seen.agent)
            if process and parent in (None, process.parent) and self._pidfds.take(pid, process.start):
                return
        raise NotThere(f"the {hit.target} of {hit.node} has ended just now")

    def _check_wanted(self) -> None:
        """Raise FaultError if the shell is gone: it has reported that nothing was done."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._signalled, select.POLLIN)
        if poll.poll(0):
            raise FaultError("the command that asked for it has gone; nothing was done")

    def _reached(self, pids: tuple[int, ...]) -> tuple[int, ...]:
        if not pids:
            raise NotThere("it has ended just now")
        return pids

    def _tell(self, hit: Hit, seen: Seen, pids: tuple[int, ...], note: str = "") -> None:
        """Record the act in the run's folder, which may hang for record.BOUND, and answer the shell."""
        act = Act(wall(), hit.verb, hit.target, hit.node, pids, hit.rank, hit.seconds, hit.seed, note)
        if problem := record.append(Path(seen.run_folder), act):
            act = replace(act, note="; ".join(filter(None, (note, problem))))
        say(act)

    def _wait(self, end: float, stood_still: bool = False) -> str:
        """Wait until the time is over, an order ends it, all held processes are dead, or they have been thawed.

        `stood_still`: whether they stood still at the beginning. Returns the reason, "" when the time is over.
        """
        poll = select.poll()
        poll.register(self._signalled, select.POLLIN)
        poll.register(0, select.POLLIN)
        heard = b""
        while (left := end - time.monotonic()) > 0:
            for fd, _ in poll.poll(min(left, 1.0) * 1000):
                if fd != 0:
                    return "told to end"
                with suppress(OSError):
                    if data := os.read(0, 4096):
                        heard = (heard + data)[-4096:]
                        continue
                poll.unregister(0)  # the shell is gone, and the fault goes on
            if THAW in heard:
                return "told to end"
            if self._pidfds.pids and not self._pidfds.wait_gone(0):
                return "all are dead"
            stands_still = bool(stopped(self._pidfds.pids))
            if stood_still and not stands_still:
                return "thawed by somebody else"
            stood_still = stands_still
        return ""


def victims(target: Target, rank: int | None, seen: Seen) -> tuple[int, ...]:
    """Return the pid to hit; for a node, its daemon's. Raises NotThere."""
    match target:
        case Target.WORKER:
            found = [worker.pid for worker in seen.workers if rank in (None, worker.rank)]
            if not found:
                which = "no worker" if rank is None else f"no worker of rank {rank}"
                raise NotThere(f"{which} runs on {seen.node}")
            return (found[0],)
        case Target.AGENT | Target.COORDINATOR:
            pid = seen.agent if target is Target.AGENT else seen.coordinator
            if pid is None:
                raise NotThere(f"no {target} runs on {seen.node}")
            return (pid,)
        case Target.DAEMON | Target.NODE:
            return (seen.daemon,)
        case _:
            raise Wrong(f"{target} is nothing that a node has")


def not_allowed(seen: Seen) -> str:
    """Return the text of the refusal for a job whose policy does not allow faults."""
    how = "one that may be hurt says `policy: {faults: {allow: true}}`"
    return f"job {seen.run_id} runs with faults.allow: false; {how}"


def _seconds(hit: Hit) -> float:
    if hit.seconds is None or hit.seconds <= 0:
        raise Wrong(f"how long? a {hit.verb} has an end")
    return hit.seconds


if __name__ == "__main__":
    main(sys.argv[1:])
