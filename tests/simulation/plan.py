"""What a seed means: the shape of a job and a list of plain faults, which a person can read, shorten and replay."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

KINDS = (
    *("worker", "agent", "coordinator", "daemon", "node"),
    *("freeze-agent", "freeze-coordinator", "freeze-daemon", "freeze-children", "freeze-node"),
    *("cut-node", "cut-pair", "cut-way", "split"),
    *("signal", "cancel", "repeat", "files", "outside"),
)
"""The first five kill. cut-way A.B: nothing gets from A to B. split: these nodes and the others are apart."""

MOMENTS = (
    *("joining", "running", "stopping", "promoting", "losing", "changing"),
    *("preparing", "leading", "closing", "recording", "closed"),
)
"""When something like this happens for the first time, as world.moment says."""

IN_CHARGE, ACTOR = -1, -2
"""Instead of an infra_rank: whose coordinator is in charge then; who did what the moment is about."""

PEERS = ("independent", "crash", "hang")
"""What workers do when one of their world is gone: go on, fail, or wait for ever."""


@dataclass(frozen=True)
class Fault:
    """`at`: seconds after the world's beginning, or after the first such `moment`. `seconds`: how long it lasts."""

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
    """`fails`: (infra_rank, n) whose workers of cycle n fail. `stubborn`: nodes whose workers heed no SIGTERM.

    `slow`: longest delay of a packet; `work`: length of a cycle, both in seconds. `gentle`: with these faults no
    training worker may be touched, and the job succeeds (invariant 8).
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
        return " ".join([*words, *map(str, self.faults)])


_FAULT = re.compile(r"([a-z-]+)@(?:([a-z]+)\+)?([0-9.e-]+)(?::([a-z0-9.]+))?(?:~([0-9.e-]+))?")


def parse(text: str) -> Plan:
    """What str() of a plan says; a seed alone is the plan that it draws. Raises ValueError."""
    seed, *words = text.split()
    if not words:
        return draw(int(seed))
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
            case "stubborn":
                plan = replace(plan, stubborn=_ranks(value))
            case "gentle":
                plan = replace(plan, gentle=value == "1")
            case _:
                raise ValueError(f"what is {word!r}?")
    return replace(plan, faults=tuple(faults))


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def _parse_fault(word: str) -> Fault:
    match = _FAULT.fullmatch(word)
    if match is None or match[1] not in KINDS or (match[2] or MOMENTS[0]) not in MOMENTS:
        raise ValueError(f"{word!r} is no fault")
    names = {"charge": IN_CHARGE, "actor": ACTOR}
    nodes = tuple(names[name] if name in names else int(name) for name in (match[4] or "").split(".") if name)
    return Fault(match[1], float(match[3]), nodes, float(match[5] or 0.0), match[2] or "")


def draw(seed: int) -> Plan:
    """The plan of this seed."""
    dice = random.Random(f"plan {seed}")
    nodes = dice.choice((2, 3, 3, 4, 4, 5, 5, 6, 7))
    plan = Plan(
        seed=seed,
        nodes=nodes,
        active=dice.randint(1, max(1, nodes - dice.choice((0, 1, 1, 2)))),
        candidates=_draw_candidates(dice, nodes),
        restarts=dice.choice((0, 1, 2, 3, 5)),
        work=round(dice.choice((dice.uniform(0.5, 6.0), dice.uniform(4.0, 20.0))), 2),
        slow=dice.choice((0.005, 0.05, 0.3)),
        peers=dice.choice(PEERS),
        fails=tuple((dice.randrange(nodes), dice.randrange(3)) for _ in range(dice.choice((0, 0, 0, 1, 2)))),
        stubborn=tuple(rank for rank in range(nodes) if dice.random() < 0.15),
    )
    form = dice.random()
    if form < 0.02:
        return plan
    if form < 0.12:
        return _gentle(dice, plan)
    last = 4.0 + dice.choice((1.0, 1.5, 2.5)) * plan.work
    faults = [fault for _ in range(dice.choice((1, 1, 2, 2, 3))) for fault in _draw_faults(dice, nodes, last)]
    return replace(plan, faults=tuple(faults))


def _draw_candidates(dice: random.Random, nodes: int) -> tuple[int, ...] | int:
    if dice.random() < 0.7:
        return dice.choice((1, 2, 3, 3, 3, 4))
    return tuple(dice.sample(range(nodes), dice.randint(1, min(3, nodes))))


def _gentle(dice: random.Random, plan: Plan) -> Plan:
    """Coordinators die and stand still, one takeover at a time, late enough for everybody to be there."""
    faults, at = [], dice.uniform(12.0, 14.0)
    for _ in range(dice.randint(1, 2)):
        if dice.random() < 0.5:
            faults.append(Fault("coordinator", round(at, 2), (IN_CHARGE,)))
            at += dice.uniform(12.0, 15.0)
        else:
            seconds = round(dice.uniform(0.1, 12.0), 2)
            faults.append(Fault("freeze-coordinator", round(at, 2), (IN_CHARGE,), seconds))
            at += seconds + dice.uniform(12.0, 15.0)
    nodes = max(plan.nodes, 3)
    candidates = max(plan.candidates, 2) if isinstance(plan.candidates, int) else 3
    return replace(
        plan, nodes=nodes, candidates=candidates, work=round(at + 3.0, 2), fails=(), gentle=True, faults=tuple(faults)
    )


def _draw_faults(dice: random.Random, nodes: int, last: float) -> list[Fault]:
    """One fault at any time, or a few that follow one another closely, some aimed at a moment."""
    moment = dice.choice(MOMENTS) if dice.random() < 0.45 else ""
    at = dice.choice((0.0, dice.uniform(0.0, 0.3), dice.uniform(0.0, 8.0))) if moment else dice.uniform(0.0, last)
    faults = [_draw_fault(dice, nodes, at, moment)]
    while dice.random() < 0.5 and len(faults) < 4:
        at += dice.choice((0.0, dice.uniform(0.0, 1.0), dice.uniform(0.0, 7.5), dice.uniform(5.0, 7.5)))
        faults.append(_draw_fault(dice, nodes, at, moment))
    return faults


_WEIGHTS = {
    **{"worker": 4, "agent": 8, "coordinator": 9, "daemon": 3, "node": 7},
    **{"freeze-agent": 4, "freeze-coordinator": 9, "freeze-daemon": 3, "freeze-children": 3, "freeze-node": 9},
    **{"cut-node": 9, "cut-pair": 5, "cut-way": 6, "split": 12, "signal": 2, "cancel": 1, "repeat": 10, "files": 3},
    "outside": 0,
}


def _draw_fault(dice: random.Random, nodes: int, at: float, moment: str) -> Fault:
    kind = dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    special = [IN_CHARGE, IN_CHARGE, ACTOR] if moment else [IN_CHARGE]
    node = dice.choice(special) if dice.random() < 0.4 else dice.randrange(nodes)
    longest = 10.0 if kind in ("freeze-agent", "freeze-daemon") else 18.0
    seconds = dice.choice((dice.uniform(0.1, 3.0), dice.uniform(0.1, longest), dice.uniform(4.0, 9.0)))
    at, seconds = round(at, 3), round(seconds, 2)
    match kind:
        case "cancel":
            return Fault(kind, at, (), 0.0, moment)
        case "files":
            return Fault(kind, at, (), seconds, moment)
        case "cut-pair" | "cut-way":
            other = dice.choice([rank for rank in range(nodes) if rank != node])
            pair = (node, other) if dice.random() < 0.5 else (other, node)
            return Fault(kind, at, pair, seconds, moment)
        case "split":
            side = dice.sample(range(nodes), dice.randint(1, nodes - 1))
            return Fault(kind, at, tuple(sorted(side)), round(seconds + dice.uniform(0.0, 12.0), 2), moment)
        case "repeat":
            return Fault(kind, at, (node,), float(dice.randint(1, 12)), moment)
        case _ if kind.startswith(("freeze", "cut")):
            return Fault(kind, at, (node,), seconds, moment)
    return Fault(kind, at, (node,), 0.0, moment)
