"""One schedule from its job's start to a cluster that is healed again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm_lab.chaos.checks import check
from tests.slurm_lab.chaos.job import CANDIDATES, NAMES, ChaosJob, submit
from tests.slurm_lab.chaos.journals import AGENT, COORDINATOR, DAEMON, Journals
from tests.slurm_lab.chaos.schedule import NODES, RESTARTING, Fault, Moment, Schedule, Victim
from tests.slurm_lab.chaos.strikes import NothingToHit, Strike, Strikes
from tests.slurm_lab.jobs import EXAMPLE

from slurm_lab import JobRecord, Lab, LabError, Parameters

SIX = Parameters(nodes=NODES, slurmd_timeout=30)
MOMENT_BOUND = 180.0
"""Seconds until a moment must have come, on a machine that does other things too."""
END_BOUND = 300.0
"""Seconds from the last fault to the job's end by sacct: Slurm may take a minute to see its batch host dead."""
PAUSE = 0.02
"""Seconds between two looks: some moments are short."""
TAIL = 40
"""Lines of each log that are told of a failed run."""


@dataclass
class Result:
    """What became of a schedule. `wrong`: nothing if all is well. `log`: the end of all logs, if not.

    `late`: what struck when its moment was just over.
    """

    schedule: Schedule
    strikes: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    log: str = ""
    seconds: float = 0.0

    @property
    def told(self) -> str:
        """All of it, with the command that repeats it."""
        return "\n".join(
            [
                f"seed {self.schedule.seed}: {self.schedule}",
                *(f"  struck: {each}" for each in self.strikes),
                *(f"  too late: {each}" for each in self.late),
                *(f"  WRONG: {each}" for each in self.wrong),
                f"  again: scripts/chaos --seed {self.schedule.seed}",
                self.log,
            ]
        )


class Disappointed(Exception):
    """Something that had to come did not."""


def play(lab: Lab, schedule: Schedule, training: Path = EXAMPLE) -> Result:
    """Runs the training under this schedule. Raises LabError only for faults of the lab itself."""
    began = time.monotonic()
    lab.renew(SIX)
    result = Result(schedule)
    job = submit(lab, "chaos", training=training, linger=schedule.lingers, hold=True)
    strikes = Strikes(job)
    try:
        record = _Play(job, strikes).through(schedule)
        strikes.end_all()
        result.wrong = check(job, schedule, strikes, record)
    except Disappointed as error:
        result.wrong = [str(error)]
    finally:
        strikes.end_all()
    result.strikes = [str(each) for each in strikes.done]
    result.late = [str(each) for each in strikes.done if _late(each, job.journals)]
    if result.wrong:
        result.log = _logs(job)
    result.seconds = time.monotonic() - began
    return result


class _Play:
    """The moments of one job, one after the other."""

    def __init__(self, job: ChaosJob, strikes: Strikes) -> None:
        self._job = job
        self._strikes = strikes
        self._said = 0
        self._cycle = -1
        self._gone = False

    def through(self, schedule: Schedule) -> JobRecord:
        """All faults, and the job's end."""
        for fault in schedule.faults:
            self._wait(f"the moment for {fault}", lambda fault=fault: self._has_come(fault), MOMENT_BOUND)  # type: ignore[misc]
            self._wait(f"a victim for {fault}", lambda fault=fault: self._strike(fault), MOMENT_BOUND)  # type: ignore[misc]
        return self._end()

    def _let_go(self) -> None:
        """The training begins when every candidate that lives keeps a coordinator: earlier none could take over."""
        if self._gone:
            return
        listening = {each.node for each in self._job.journals.said if each.event == "coordinator_listens"}
        struck = self._strikes.dead | self._strikes.cut | self._strikes.frozen
        if listening >= CANDIDATES - struck:
            self._job.go()
            self._gone = True

    def _strike(self, fault: Fault) -> bool:
        said, cycle = len(self._job.journals.said), self._job.cycle()
        try:
            strike = self._strikes.strike(fault)
        except NothingToHit:
            # Over already: then there is nothing to wait for.
            return fault.moment is Moment.CLOSING or self._job.journals.find(COORDINATOR, "proposed") is not None
        self._said = said
        if fault.victim in RESTARTING or (fault.victim is Victim.AGENT and strike.was_active):
            self._cycle = cycle
        return True

    def _has_come(self, fault: Fault) -> bool:
        journals = self._job.journals
        match fault.moment:
            case Moment.JOINING:
                return journals.find(COORDINATOR, "registered") is not None
            case Moment.RUNNING:
                rows = self._job.rows()
                newest = [row for row in rows if row["cycle"] == rows[-1]["cycle"] and row["cycle"] > self._cycle]
                return len(newest) >= fault.steps
            case Moment.STOPPING:
                return journals.find(COORDINATOR, "restart", self._said) is not None
            case Moment.PROMOTING:
                return journals.find(COORDINATOR, "promoted", self._said) is not None
            case Moment.EXIT_BARRIER:
                return journals.find(AGENT, "succeeded") is not None
            case Moment.CLOSING:
                return journals.find(COORDINATOR, "proposed") is not None

    def _end(self) -> JobRecord:
        records: list[JobRecord] = []

        def ended() -> bool:
            if self._strikes.slurm_away:
                return False
            record = self._job.lab.sacct(self._job.id)
            if record is None or not record.ended:
                time.sleep(0.2)  # each look is a process or two
                return False
            records.append(record)
            return True

        self._wait("the job's end", ended, END_BOUND)
        return records[0]

    def _wait(self, what: str, done: Callable[[], bool], bound: float) -> None:
        end = time.monotonic() + bound
        while True:
            self._strikes.end_due()
            self._job.journals.read()
            self._let_go()
            if done():
                return
            if time.monotonic() > end:
                raise Disappointed(f"waited {bound:.0f} s for {what} in vain")
            time.sleep(PAUSE)


def _late(strike: Strike, journals: Journals) -> bool:
    """Whether the moment was over before the fault was carried out; journals and strikes go by one clock."""
    said = sorted((each for each in journals.said if each.time < strike.time), key=lambda each: each.time)
    decided = [each.event for each in said if each.kind == COORDINATOR]
    match strike.fault.moment:
        case Moment.JOINING:
            return "cycle_started" in decided
        case Moment.STOPPING:
            return [event for event in decided if event in ("restart", "cycle_started")][-1] == "cycle_started"
        case Moment.EXIT_BARRIER:
            return "proposed" in decided
        case Moment.CLOSING:  # a node's is over when its daemon has left
            return any((each.kind, each.event, each.node) == (DAEMON, "leave", strike.target) for each in said)
        case _:
            return False


def _logs(job: ChaosJob) -> str:
    """Returns the end of every log."""
    parts = [f"--- out ({job.folder / 'out'})", *job.output.splitlines()[-TAIL:]]
    parts += ["--- training", *(str(row) for row in job.rows()[-3:])]
    for node in NAMES:
        said = sorted((each for each in job.journals.said if each.node == node), key=lambda each: each.time)
        parts += [f"--- {node}", *map(str, said[-TAIL:])]
    parts.append("--- slurmctld")
    try:
        log = (job.lab.layout.log / "slurmctld.log").read_text(errors="replace")
        parts += [line for line in log.splitlines() if f"={job.id}" in line][-TAIL:]
        parts += job.lab.run(["scontrol", "show", "job", str(job.id)], check=False).stdout.splitlines()
    except (OSError, LabError) as error:
        parts.append(str(error))
    return "\n".join(parts)
