"""Faults, carried out on the lab, and ended again when their time is over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.slurm_lab.chaos.job import BATCH_HOST, NAMES, ChaosJob
from tests.slurm_lab.chaos.schedule import FREEZES, SLURM, Fault, Victim

from slurm_lab import Process

DAEMON, AGENT, COORDINATOR = "-m ft_supervisor --config", "-m ft_supervisor.agent", "-m ft_supervisor.coordinator"
ONE_WAY = {Victim.CUT_IN: "in", Victim.CUT_OUT: "out"}


@dataclass(frozen=True)
class Strike:
    """A fault that was carried out. `time`: when that was done, in seconds since the epoch.

    `was_active`: whether it hit an active node.
    """

    fault: Fault
    target: str
    time: float
    was_active: bool

    def __str__(self) -> str:
        return f"{time.strftime('%H:%M:%S', time.gmtime(self.time))} {self.fault} -> {self.target}"


class NothingToHit(Exception):
    """No such victim is there (yet)."""


class Strikes:
    """What one job suffers."""

    def __init__(self, job: ChaosJob) -> None:
        self._job = job
        self._lab = job.lab
        self._ends: list[tuple[float, Callable[[], None]]] = []
        self._away: set[str] = set()
        self.done: list[Strike] = []
        self.dead: set[str] = set()
        """Nodes whose daemon was killed, or everything."""
        self.cut: set[str] = set()
        """Nodes that were cut off for long, once."""
        self.frozen: set[str] = set()
        self.back: dict[str, float] = {}
        """When a node's cut or freeze was over, in seconds since the epoch."""
        self.lost_for_good: set[str] = set()
        """Nodes that Slurm takes out of the job, their processes with them."""

    def strike(self, fault: Fault) -> Strike:
        """Carries it out. Raises NothingToHit."""
        target = self._target(fault)
        active = target in self._job.active()
        self._carry_out(fault, target)
        strike = Strike(fault, target, time.time(), active)
        self.done.append(strike)
        return strike

    @property
    def slurm_away(self) -> bool:
        """Whether a daemon of Slurm is stopped, so that sacct cannot be asked."""
        return bool(self._away)

    def end_due(self) -> None:
        """Ends what has lasted for its time."""
        self._end(lambda at: at <= time.monotonic())

    def end_all(self) -> None:
        """Ends what still lasts."""
        self._end(lambda at: True)

    def _end(self, due: Callable[[float], bool]) -> None:
        ripe = [end for at, end in self._ends if due(at)]
        self._ends = [(at, end) for at, end in self._ends if not due(at)]
        for end in ripe:
            end()

    # -- whom

    def _target(self, fault: Fault) -> str:
        job, victim = self._job, fault.victim
        if victim in SLURM:
            return victim.value
        if victim is Victim.COORDINATOR:
            return job.journals.in_charge()
        active = job.active()
        there = [node for node in NAMES if node not in self.dead | self.cut | self.frozen]
        if victim is Victim.BATCH_HOST:
            found = [BATCH_HOST]
        elif victim is Victim.WORKER:
            found = [node for node in there if job.workers(node)]
        elif victim in (Victim.ACTIVE_NODE, Victim.DAEMON):
            found = [node for node in there if node in active and node != BATCH_HOST]
        elif victim is Victim.STANDBY_NODE:
            found = [node for node in there if node not in active]
        else:
            found = there
        if not found:
            raise NothingToHit(str(victim))
        return found[fault.pick % len(found)]

    # -- how

    def _carry_out(self, fault: Fault, target: str) -> None:
        match fault.victim:
            case Victim.WORKER:
                self._kill(self._job.workers(target))
            case Victim.AGENT:
                self._kill(self._job.processes(target, AGENT))
            case Victim.COORDINATOR:
                self._kill(self._job.processes(target, COORDINATOR))
            case Victim.DAEMON:
                self._kill(self._job.processes(target, DAEMON))
                self.dead.add(target)
            case Victim.ACTIVE_NODE | Victim.STANDBY_NODE | Victim.BATCH_HOST:
                self._kill_node(target, fault.noticed)
            case Victim.SLURMCTLD | Victim.SLURMDBD:
                self._stop_daemon(target, fault.seconds)
            case victim if victim in FREEZES:
                self._lab.freeze_node(target)
                self.frozen.add(target)
                self._later(fault.seconds, lambda: self._unless_killed(target, self._lab.thaw_node))
            case _:
                self._cut(fault, target)

    def _kill(self, processes: list[Process]) -> None:
        """The first one: it may have children that have not become another program yet."""
        if not processes:
            raise NothingToHit("no such process")
        try:
            os.kill(processes[0].pid, signal.SIGKILL)
        except ProcessLookupError:
            raise NothingToHit("it has ended just now") from None

    def _kill_node(self, target: str, noticed: bool) -> None:
        self._lab.kill_node(target)
        self.dead.add(target)
        self.lost_for_good.add(target)
        if noticed and "slurmctld" not in self._away:
            self._lab.run(["scontrol", "update", f"nodename={target}", "state=down", "reason=dead"])

    def _cut(self, fault: Fault, target: str) -> None:
        match fault.victim:
            case Victim.CUT_IN:
                self._lab.cut_node(target, "in")
            case Victim.CUT_OUT:
                self._lab.cut_node(target, "out")
            case _:
                self._lab.cut_node(target)
        self.cut.add(target)
        if fault.victim is Victim.CUT_FOREVER:
            self.lost_for_good.add(target)
        self._later(fault.seconds or float("inf"), lambda: self._unless_killed(target, self._lab.heal_node))

    def _stop_daemon(self, name: str, seconds: float) -> None:
        self._lab.stop_daemon(name)
        self._away.add(name)

        def start() -> None:
            self._lab.start_daemon(name)
            self._away.discard(name)

        self._later(seconds, start)

    def _unless_killed(self, target: str, end: Callable[[str], None]) -> None:
        if target in self._lab.machines():
            end(target)
        self.back[target] = time.time()

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        self._ends.append((time.monotonic() + seconds, end))


def end_orphans(job: ChaosJob, node: str) -> None:
    """Ends what the workers of a killed daemon left: only that daemon would have found it."""
    for each in job.lab.node_processes(node):
        if each.name == "sleep":
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
