"""Plans: the shape of a job and a list of plain faults, as text that a person can read, shorten and replay."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

KINDS = (
    *("worker", "agent", "coordinator", "daemon", "node"),
    *("freeze-agent", "freeze-coordinator", "freeze-daemon", "freeze-children", "freeze-node"),
    *("cut-node", "cut-pair", "cut-way", "split", "reset"),
    *("signal", "cancel", "repeat", "files", "outside", "stranger", "squatter"),
    *("sick", "unable", "drain", "limit", "hang", "still"),
    *("launch-term", "launch-int"),
)
"""The kinds of faults.

The first five kill. cut-way A.B: no packet gets from A to B. split: these nodes and the others cannot reach one
another. reset: this node's connection breaks, and messages on their way are lost. sick: its health checks fail from now
on. unable: it cannot start workers from now on. drain: Slurm answers that it drains this node. limit: Slurm answers
that the job ends in so many seconds. stranger: a foreign process on the network sets the exit barrier's keys in the
store of this node's coordinator. squatter: a foreign process has the first port on this node, with a store that claims
to be the job's and has another configuration. outside: a foreign process sets permanent_close in that store.
hang: its workers hang, and the agent notices it at once. still: its workers do nothing for so many seconds, 0 for ever,
and those that wait for them neither.
launch-term, launch-int: this signal is sent to `launch` alone, where the job has one."""

MOMENTS = (
    *("joining", "ordering", "running", "stopping", "promoting", "losing", "changing"),
    *("preparing", "leading", "returning", "succeeding", "closing", "recording", "closed"),
)
"""Moments that a fault can be aimed at: each is the first time at which world.moment is called with the name."""

IN_CHARGE, ACTOR = -1, -2
"""Used instead of an infra_rank: the node whose coordinator is in charge at that time, and the node at which the moment
happened."""

POLICIES = ("plain", "replace", "pause", "checks", "elastic", "wait")
"""Names of the cluster's policies, which settings.py makes."""

SLURM = ("lives", "silent", "gone", "over", "cut", "away", "hangs")
"""Slurmctld's behaviour at the job's end: see slurmctld.py. cut: the first node cannot reach it. away: no node can
reach it. hangs: it does not answer."""

PEERS = ("independent", "crash", "hang")
"""Behaviours of workers when a worker of their world is gone: go on, fail, or wait for ever."""

AUTO = ("notify", "restart")
"""Values of hang.auto."""

HABITS = ("parks", "never", "dies", "lies", "plain")
"""Behaviour of workers that are asked to leave their function: they park within PARK_TIME; they do nothing, like one
that holds the GIL; they park and die some time later; they report that they are parked while a process that they have
started goes on. Plain ones call no restartable function."""


@dataclass(frozen=True)
class Fault:
    """A fault. `at`: seconds after the world's beginning, or after the first such `moment`. `seconds`: its duration."""

    kind: str
    at: float
    nodes: tuple[int, ...] = ()
    seconds: float = 0.0
    moment: str = ""

    def __str__(self) -> str:
        when = f"{self.moment}+{self.at:g}" if self.moment else f"{self.at:g}"
        names = {IN_CHARGE: "charge", ACTOR: "actor"}
        where = ".".join(names.get(node, str(node)) for node in self.nodes)
        lasting = f"~{self.seconds:g}" if self.seconds else ""
        return f"{self.kind}@{when}" + (f":{where}" if where else "") + lasting


@dataclass(frozen=True)
class Plan:
    """A job and its faults.

    `fails`: (infra_rank, n) whose workers of cycle n fail. `stubborn`: nodes whose workers ignore SIGTERM. `slurm`:
    slurmctld's behaviour at the job's end, from SLURM. `slow`: longest delay of a packet; `work`: length of a cycle,
    both in seconds. `gentle`: these faults must not touch any training worker, and the job succeeds (invariant 8).
    `launch`: whether `launch` has started the job, on node 0. `in_process`: workers.restart is in_process; `habits`:
    (infra_rank, one of HABITS), where its workers do not park. `auto`: hang.auto, "" where nothing is watched.
    """

    seed: int
    nodes: int = 4
    active: int = 3
    candidates: tuple[int, ...] | int = 3
    restarts: int = 3
    work: float = 8.0
    slow: float = 0.05
    peers: str = "crash"
    fails: tuple[tuple[int, int], ...] = ()
    stubborn: tuple[int, ...] = ()
    gentle: bool = False
    policy: str = "plain"
    slurm: str = "lives"
    launch: bool = False
    in_process: bool = False
    habits: tuple[tuple[int, str], ...] = ()
    auto: str = ""
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        candidates = self.candidates if isinstance(self.candidates, int) else ",".join(map(str, self.candidates)) + ","
        words = [
            f"{self.seed} nodes={self.nodes} active={self.active} candidates={candidates} restarts={self.restarts}",
            f"work={self.work:g} slow={self.slow:g} peers={self.peers}",
        ]
        if self.fails:
            words.append("fails=" + ",".join(f"{rank}.{n}" for rank, n in self.fails))
        if self.stubborn:
            words.append("stubborn=" + ",".join(map(str, self.stubborn)))
        if self.gentle:
            words.append("gentle=1")
        if self.policy != "plain":
            words.append(f"policy={self.policy}")
        if self.slurm != "lives":
            words.append(f"slurm={self.slurm}")
        if self.launch:
            words.append("launch=1")
        if self.in_process:
            words.append("in_process=1")
        if self.habits:
            words.append("habits=" + ",".join(f"{rank}.{habit}" for rank, habit in self.habits))
        if self.auto:
            words.append(f"auto={self.auto}")
        return " ".join([*words, *map(str, self.faults)])


_FAULT = re.compile(r"([a-z-]+)@(?:([a-z]+)\+)?([0-9.e-]+)(?::([a-z0-9.]+))?(?:~([0-9.e-]+))?")


def parse(text: str) -> Plan:
    """Return the plan of a text that str() of a plan has made. Raises ValueError."""
    seed, *words = text.split()
    plan, faults = Plan(int(seed)), []
    for word in words:
        if "@" in word:
            faults.append(_parse_fault(word))
            continue
        name, _, value = word.partition("=")
        match name:
            case "nodes" | "active" | "restarts":
                plan = replace(plan, **{name: int(value)})  # type: ignore[arg-type]
            case "candidates":
                plan = replace(plan, candidates=_ranks(value) if "," in value else int(value))
            case "work" | "slow":
                plan = replace(plan, **{name: float(value)})  # type: ignore[arg-type]
            case "peers" if value in PEERS:
                plan = replace(plan, peers=value)
            case "fails":
                pairs = [pair.split(".") for pair in value.split(",")]
                plan = replace(plan, fails=tuple((int(rank), int(n)) for rank, n in pairs))
            case "policy" if value in POLICIES:
                plan = replace(plan, policy=value)
            case "slurm" if value in SLURM:
                plan = replace(plan, slurm=value)
            case "stubborn":
                plan = replace(plan, stubborn=_ranks(value))
            case "launch":
                plan = replace(plan, launch=value == "1")
            case "in_process":
                plan = replace(plan, in_process=value == "1")
            case "habits":
                plan = replace(plan, habits=tuple(_habit(pair) for pair in value.split(",")))
            case "auto" if value in AUTO:
                plan = replace(plan, auto=value)
            case "gentle":
                plan = replace(plan, gentle=value == "1")
            case _:
                raise ValueError(f"{word!r} is no part of a plan")
    return replace(plan, faults=tuple(faults))


def _habit(text: str) -> tuple[int, str]:
    rank, _, habit = text.partition(".")
    if habit not in HABITS:
        raise ValueError(f"{habit!r} is no habit")
    return int(rank), habit


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def _parse_fault(word: str) -> Fault:
    match = _FAULT.fullmatch(word)
    if match is None or match[1] not in KINDS or (match[2] or MOMENTS[0]) not in MOMENTS:
        raise ValueError(f"{word!r} is no fault")
    names = {"charge": IN_CHARGE, "actor": ACTOR}
    nodes = tuple(names[name] if name in names else int(name) for name in (match[4] or "").split(".") if name)
    return Fault(match[1], float(match[3]), nodes, float(match[5] or 0.0), match[2] or "")
