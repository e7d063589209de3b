"""Which faults strike, and when: drawn from a seed, so that the seed repeats them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

ACTIVE, NODES = 4, 6


class Victim(StrEnum):
    """What a fault strikes, and how."""

    WORKER = "worker"
    AGENT = "agent"
    COORDINATOR = "coordinator"
    DAEMON = "daemon"
    ACTIVE_NODE = "active node"
    STANDBY_NODE = "standby node"
    BATCH_HOST = "batch host"
    CUT_SHORT = "cut, short"
    CUT_LONG = "cut, long"
    CUT_IN = "cut, in only"
    CUT_OUT = "cut, out only"
    CUT_FOREVER = "cut, for ever"
    FREEZE_SHORT = "freeze, short"
    FREEZE_LONG = "freeze, long"
    SLURMCTLD = "slurmctld"
    SLURMDBD = "slurmdbd"


class Moment(StrEnum):
    """When it strikes; each is recognised by what the job itself says."""

    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"
    PROMOTING = "promoting"
    EXIT_BARRIER = "exit barrier"
    CLOSING = "closing"


ORDER = tuple(Moment)
CUTS = {Victim.CUT_SHORT, Victim.CUT_LONG, Victim.CUT_IN, Victim.CUT_OUT, Victim.CUT_FOREVER}
FREEZES = {Victim.FREEZE_SHORT, Victim.FREEZE_LONG}
SLURM = {Victim.SLURMCTLD, Victim.SLURMDBD}
BRIEF = {Victim.CUT_SHORT, Victim.FREEZE_SHORT}
"""Over before their node counts as lost."""
LOSSES = {Victim.DAEMON, Victim.ACTIVE_NODE, Victim.STANDBY_NODE, Victim.BATCH_HOST, *(CUTS | FREEZES) - BRIEF}
"""Cost the job a node, some of them for good."""
HARMLESS = {Victim.COORDINATOR, Victim.STANDBY_NODE, *SLURM}
"""Training goes on undisturbed."""
REPLACED = {Victim.DAEMON, Victim.ACTIVE_NODE, Victim.BATCH_HOST}
"""Always an active node, for which a standby is promoted."""
RESTARTING = {Victim.WORKER, *REPLACED}
"""Stop the running cycle for certain; others only when the node that they strike is active."""
SHORT, LONG = 2.0, 15.0
"""Seconds of cuts and freezes: well below the default timeouts.node_lost, and well above it and the fence."""
AWAY = (20.0, 40.0)
"""Seconds for which a daemon of Slurm is stopped."""


@dataclass(frozen=True)
class Fault:
    """`steps`: so many of the running cycle come first (for RUNNING). `pick` chooses among the nodes that fit.

    `seconds`: how long it lasts. `noticed`: the administrators' monitoring tells Slurm of a dead node at once.
    """

    victim: Victim
    moment: Moment
    steps: int = 0
    pick: int = 0
    seconds: float = 0.0
    noticed: bool = True

    def __str__(self) -> str:
        when = f"{self.moment}, {self.steps} steps" if self.moment is Moment.RUNNING else str(self.moment)
        last = f" for {self.seconds:.0f} s" if self.seconds else ""
        dead = self.victim in (Victim.ACTIVE_NODE, Victim.STANDBY_NODE, Victim.BATCH_HOST)
        return f"{self.victim}{last} @ {when}{', Slurm not told' if dead and not self.noticed else ''}"


@dataclass(frozen=True)
class Schedule:
    """Faults in their order, and the seed that they were drawn from."""

    seed: int
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return ";  ".join(map(str, self.faults))

    @property
    def survivable(self) -> bool:
        """Whether there are spares enough; otherwise the job ends interrupted."""
        return sum(fault.victim in LOSSES for fault in self.faults) <= NODES - ACTIVE

    @property
    def undisturbed(self) -> bool:
        """Whether the training must not even notice."""
        return all(f.victim in HARMLESS and f.moment is not Moment.JOINING for f in self.faults)

    @property
    def lingers(self) -> bool:
        """Whether the workers are to end one after the other, so that a fault comes in between."""
        return any(fault.moment is Moment.EXIT_BARRIER for fault in self.faults)


def draw(seed: int) -> Schedule:
    """One or two faults."""
    random_ = random.Random(seed)
    first = _fault(random_, [Moment.JOINING, Moment.RUNNING, Moment.RUNNING, Moment.EXIT_BARRIER, Moment.CLOSING])
    if random_.random() < 0.4:
        return Schedule(seed, (first,))
    while True:
        second = _fault(random_, _following(first))
        if not (first.victim is second.victim is Victim.BATCH_HOST):  # there is but one
            return Schedule(seed, (first, second))


def _following(first: Fault) -> list[Moment]:
    """When the next fault may strike."""
    later = [moment for moment in ORDER if ORDER.index(moment) >= ORDER.index(first.moment)]
    runs = first.moment is Moment.RUNNING
    if not (runs and first.victim in RESTARTING):
        later = [moment for moment in later if moment is not Moment.STOPPING]
    if not (runs and first.victim in REPLACED):
        later = [moment for moment in later if moment is not Moment.PROMOTING]
    return later


def _fault(random_: random.Random, moments: list[Moment]) -> Fault:
    moment = random_.choice(moments)
    without_workers = moment in (Moment.JOINING, Moment.STOPPING, Moment.CLOSING)
    victim = random_.choice([each for each in Victim if not (without_workers and each is Victim.WORKER)])
    seconds = 0.0
    if victim in BRIEF:
        seconds = SHORT
    elif victim in SLURM:
        seconds = random_.uniform(*AWAY)
    elif victim in (CUTS | FREEZES) - {Victim.CUT_FOREVER}:
        seconds = LONG
    return Fault(
        victim=victim,
        moment=moment,
        steps=random_.randint(3, 25) if moment is Moment.RUNNING else 0,
        pick=random_.randrange(12),
        seconds=seconds,
        noticed=random_.random() < 0.75,
    )
