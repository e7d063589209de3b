"""Plans with faults that belong together: such pairs at the wrong moment are too rare among random faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.plan import ACTOR, HABITS, IN_CHARGE, Fault, Plan
from tests.simulation.settings import AFTER

Theme = Callable[[random.Random, Plan], Plan]


def _fault(kind: str, at: float, nodes: Sequence[int] = (), seconds: float = 0.0, moment: str = "") -> Fault:
    return Fault(kind, round(at, 3), tuple(nodes), round(seconds, 2), moment)


def gentle(dice: random.Random, plan: Plan) -> Plan:
    """Plan coordinators that die and stand still, one takeover at a time, when every node is there.

    They do not stand still for about as long as agents wait for a silent one, as half of the agents might stay. The
    network is not slow: round trips of half a second would leave a takeover no room in the fence.
    """
    faults, at = [], dice.uniform(12.0, 14.0)
    for _ in range(dice.randint(1, 2)):
        if dice.random() < 0.5:
            faults.append(_fault("coordinator", at, [IN_CHARGE]))
            at += dice.uniform(12.0, 15.0)
        else:
            seconds = dice.choice((dice.uniform(0.1, 0.9), dice.uniform(5.5, 12.0)))
            faults.append(_fault("freeze-coordinator", at, [IN_CHARGE], seconds))
            at += seconds + dice.uniform(12.0, 15.0)
    return replace(
        plan,
        nodes=max(plan.nodes, 3),
        candidates=max(plan.candidates, 2) if isinstance(plan.candidates, int) else 3,
        work=round(at + 3.0, 2),
        slow=min(plan.slow, 0.05),
        fails=(),
        gentle=True,
        faults=tuple(faults),
    )


def ailing(dice: random.Random, plan: Plan) -> Plan:
    """Plan nodes that turn unhealthy or fail for good, so that others have to take their places."""
    faults, at = [], dice.uniform(3.0, 8.0)
    for _ in range(dice.randint(2, 5)):
        kind = dice.choice(("sick", "sick", "unable", "worker", "drain", "node", "agent"))
        faults.append(_fault(kind, at, [dice.randrange(plan.nodes)]))
        at += dice.choice((dice.uniform(0.0, 0.5), dice.uniform(0.0, 4.0)))
    if dice.random() < 0.4:
        faults.append(_fault("coordinator", at, [IN_CHARGE]))
    fails = tuple((dice.randrange(plan.nodes), n) for n in range(dice.randint(0, 2)))
    policy = dice.choice(("checks", "replace"))
    return replace(_long(dice, plan, at), policy=policy, fails=fails, faults=tuple(faults))


def unable(dice: random.Random, plan: Plan) -> Plan:
    """Plan nodes, active ones and spares, that cannot start workers; one spare can."""
    spares = dice.randint(1, 3)
    nodes = plan.active + spares
    broken = dice.sample(range(nodes), dice.randint(1, spares))
    moments = ("", "", "joining", "ordering", "promoting")
    faults = [_fault("unable", dice.uniform(0.0, 3.0), [node], moment=dice.choice(moments)) for node in broken]
    if dice.random() < 0.5:
        faults.append(_fault("reset", dice.uniform(0.0, 0.3), [ACTOR], moment="ordering"))
    faults[0] = replace(faults[0], at=0.0, nodes=(dice.randrange(plan.active),), moment="")
    return replace(_long(dice, plan, 3.0), nodes=nodes, restarts=dice.choice((0, 0, 3)), faults=tuple(faults))


def see_saw(dice: random.Random, plan: Plan) -> Plan:
    """Plan coordinators in charge that are away, one after another, until their replacement has taken charge."""
    faults, at = [], dice.uniform(5.0, 12.0)
    for _ in range(dice.randint(2, 4)):
        kind = dice.choice(("cut-node", "freeze-coordinator", "freeze-node", "coordinator", "cut-node", "daemon"))
        seconds = dice.choice((dice.uniform(2.0, 5.0), dice.uniform(6.0, 10.0), dice.uniform(6.0, 16.0)))
        faults.append(_fault(kind, at, [IN_CHARGE], 0.0 if kind in ("coordinator", "daemon") else seconds))
        if dice.random() < 0.4:
            faults.append(_fault("agent", at + dice.uniform(0.0, seconds + 2.0), [dice.randrange(plan.nodes)]))
        if dice.random() < 0.2:
            faults.append(_fault("worker", at + dice.uniform(0.0, seconds + 2.0), [dice.randrange(plan.nodes)]))
        at += seconds + dice.uniform(-2.0, 3.0)
    return replace(_long(dice, plan, at), candidates=dice.choice((plan.candidates, 2, 3)), faults=tuple(faults))


def drift(dice: random.Random, plan: Plan) -> Plan:
    """Plan partitions that follow one another about when nodes are given up, some just when the list changes."""
    nodes = dice.randint(4, 7)
    faults, at = [], dice.uniform(5.0, 12.0)
    side = set(range(nodes)) - set(dice.sample(range(nodes), (nodes - 1) // 2))
    faults.append(_fault("split", at, sorted(side), dice.uniform(8.0, 20.0)))
    for _ in range(dice.randint(1, 2)):
        side = side - {dice.choice(sorted(side))} if len(side) > 1 else set(dice.sample(range(nodes), 2))
        if dice.random() < 0.6 and len(faults) == 1:
            moment = dice.choice(("changing", "changing", "losing", "leading"))
            faults.append(
                _fault(
                    "split", dice.choice((0.0, 0.0, 0.001, 0.01, 0.2)), sorted(side), dice.uniform(6.0, 25.0), moment
                )
            )
        else:
            at += dice.uniform(4.0, 9.0)
            faults.append(_fault("split", at, sorted(side), dice.uniform(6.0, 25.0)))
    active = dice.randint(1, nodes // 2)
    return replace(_long(dice, plan, at), nodes=nodes, active=active, candidates=3, faults=tuple(faults))


def unguarded(dice: random.Random, plan: Plan) -> Plan:
    """Plan a node that is cut off, and stands still in part or as a whole when its workers have to be killed."""
    at, node = dice.uniform(6.0, 12.0), dice.randrange(plan.active)
    both = ("freeze-agent", "freeze-daemon")
    kinds = dice.choice((both, both, ("freeze-agent",), ("freeze-daemon",), ("freeze-node",)))
    frozen_at, seconds = at + dice.uniform(2.5, 5.5), dice.uniform(2.0, 9.0)
    frozen = [_fault(kind, frozen_at, [node], seconds) for kind in kinds]
    cut = _fault(dice.choice(("cut-node", "cut-node", "cut-way")), at, [node], dice.uniform(7.0, 18.0))
    if cut.kind == "cut-way":
        cut = replace(cut, nodes=(IN_CHARGE, node))
    nodes = max(plan.nodes, plan.active + 1, 3)
    return replace(_long(dice, plan, at), nodes=nodes, stubborn=tuple(range(nodes)), faults=(cut, *frozen))


def stale_orders(dice: random.Random, plan: Plan) -> Plan:
    """Plan a node that stands still just when its Run is sent, and receives it when the world has moved on."""
    moment = dice.choice(("ordering", "promoting", "promoting"))
    faults = [
        _fault(dice.choice(("freeze-node", "freeze-node", "cut-node")), 0.0, [ACTOR], dice.uniform(3.0, 18.0), moment)
    ]
    if moment == "promoting":
        kind = dice.choice(("worker", "agent", "node", "cut-node"))
        seconds = dice.uniform(7.0, 12.0) if kind == "cut-node" else 0.0
        faults.append(_fault(kind, dice.uniform(6.0, 12.0), [dice.randrange(plan.active)], seconds))
    nodes = max(plan.nodes, plan.active + 1, 3)
    return replace(_long(dice, plan, 10.0), nodes=nodes, faults=tuple(faults))


def stutter(dice: random.Random, plan: Plan) -> Plan:
    """Plan an only candidate that stands still again and again, for less than the fence, and is cut off from others."""
    faults, at = [], dice.uniform(5.0, 12.0)
    for _ in range(dice.randint(2, 4)):
        seconds = dice.uniform(2.0, 4.9)
        faults.append(_fault("freeze-coordinator", at, [0], seconds))
        if dice.random() < 0.6:
            faults.append(
                _fault("cut-node", at - dice.uniform(0.0, 4.0), [dice.randrange(1, plan.nodes)], seconds + 2.0)
            )
        at += seconds + dice.uniform(0.0, 3.0)
    return replace(_long(dice, plan, at), candidates=1, fails=(), faults=tuple(faults))


def old_messages(dice: random.Random, plan: Plan) -> Plan:
    """Plan workers that fail when others have succeeded, and old messages that come again and again."""
    faults = [_fault("repeat", dice.uniform(2.0, 12.0), [IN_CHARGE], dice.randint(20, 60)) for _ in range(2)]
    faults.append(_fault("agent", dice.uniform(0.0, 0.6), [dice.randrange(plan.active)], moment="succeeding"))
    return replace(plan, work=round(dice.uniform(2.0, 6.0), 2), restarts=3, peers="independent", faults=tuple(faults))


def crashes(dice: random.Random, plan: Plan) -> Plan:
    """Plan workers that fail at the start of the first cycles, on all nodes or on all but one, and a loss meanwhile."""
    active = dice.randint(1, 3)
    failing = list(range(active))
    if active > 1 and dice.random() < 0.5:
        failing.remove(dice.randrange(active))
    fails = tuple((rank, n) for n in range(3) for rank in failing)
    kinds = ("node", "agent", "coordinator", "cut-node")
    faults = [_fault(dice.choice(kinds), dice.uniform(0.5, 8.0), [dice.randrange(active)], 3.0)]
    return replace(
        plan, nodes=active + 1, active=active, work=round(dice.uniform(0.1, 3.0), 2), restarts=5, fails=fails,
        policy="plain", peers="independent", gentle=False, faults=tuple(faults if dice.random() < 0.4 else ()),
    )  # fmt: skip


def too_few(dice: random.Random, plan: Plan) -> Plan:
    """Plan more deaths of nodes than there are spares, so that a policy can requeue the job."""
    at = dice.uniform(8.0, 14.0)
    faults = [_fault("node", at, [node]) for node in dice.sample(range(5), 2)]
    return replace(_long(dice, plan, at), nodes=5, active=4, policy="plain", gentle=False, faults=tuple(faults))


def endings(dice: random.Random, plan: Plan) -> Plan:
    """Plan faults of the coordinator and others at the job's end."""
    faults: list[Fault] = []
    for _ in range(dice.randint(1, 3)):
        moment = dice.choice(("closing", "closing", "recording", "closed", "succeeding"))
        kind = dice.choice(
            ("coordinator", "node", "freeze-coordinator", "cut-node", "freeze-node", "split", "files", "stranger")
        )
        nodes = [] if kind == "files" else [dice.choice((IN_CHARGE, ACTOR, dice.randrange(plan.nodes)))]
        at = dice.choice((0.0, dice.uniform(0.0, 0.05), dice.uniform(0.0, 2.0)))
        seconds = 0.0 if kind in ("coordinator", "node", "stranger") else dice.uniform(1.0, 15.0)
        if kind == "split":
            nodes = sorted({*nodes, *dice.sample(range(plan.nodes), plan.nodes // 2)})
        faults.append(_fault(kind, at, nodes, seconds, moment))
    return replace(plan, faults=tuple(faults))


def launched(dice: random.Random, plan: Plan) -> Plan:
    """Plan a job of `launch`, which gets signals while nodes die or are away."""
    faults: list[Fault] = []
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        kind = dice.choice(("launch-term", "launch-term", "launch-int", "launch-int", "cancel"))
        moment = dice.choice(("", "", "running", "closing", "recording", "closed"))
        faults.append(_fault(kind, dice.uniform(0.0, 2.0 if moment else plan.work + 8.0), moment=moment))
    for _ in range(dice.choice((0, 1, 1, 2))):
        kind = dice.choice(("node", "cut-node", "freeze-node", "files", "daemon", "coordinator"))
        seconds = 0.0 if kind in ("node", "daemon", "coordinator") else dice.uniform(1.0, 20.0)
        nodes = [] if kind == "files" else [dice.randrange(plan.nodes)]
        faults.append(_fault(kind, dice.uniform(0.0, plan.work + 8.0), nodes, seconds))
    if dice.random() < 0.2:  # srun ends before the verdict can be read: no daemon on the batch host has a copy
        faults.append(_fault("daemon", dice.uniform(0.0, plan.work), [0]))
        moment = dice.choice(("closing", "recording"))
        faults.append(_fault("files", 0.0, seconds=dice.uniform(1.0, 15.0), moment=moment))
    return replace(plan, launch=True, faults=tuple(faults))


def _long(dice: random.Random, plan: Plan, last: float) -> Plan:
    """Return the plan with work that outlasts the faults, and with enough restarts for them."""
    return replace(plan, work=round(last + dice.uniform(5.0, 20.0), 2), restarts=5, fails=())


def parking(dice: random.Random, plan: Plan) -> Plan:
    """Plan workers that are parked and called again or do not park, and nodes that are cut off at that time."""
    nodes = dice.randint(3, 5)
    faults, at = [], dice.uniform(5.0, 9.0)
    for _ in range(dice.randint(1, 3)):
        faults.append(_fault("worker", at, [dice.randrange(nodes)]))
        at += dice.uniform(3.0, 9.0)
    for _ in range(dice.choice((0, 1, 1, 2))):
        kind = dice.choice(("cut-node", "cut-node", "coordinator", "agent", "node", "freeze-node", "reset"))
        seconds = dice.uniform(5.0, 14.0) if kind in ("cut-node", "freeze-node") else 0.0
        moment = dice.choice(("", "stopping", "promoting", "returning", "returning"))
        late = dice.choice((0.0, dice.uniform(0.0, 0.1), dice.uniform(0.0, 3.0))) if moment else dice.uniform(5.0, at)
        faults.append(_fault(kind, late, [dice.choice((IN_CHARGE, dice.randrange(nodes)))], seconds, moment))
    habits = tuple((rank, dice.choice(HABITS)) for rank in range(nodes) if dice.random() < 0.6)
    fails = tuple((dice.randrange(nodes), n) for n in range(dice.randint(0, 2)))
    plan = replace(_long(dice, plan, at), nodes=nodes, active=dice.randint(1, nodes - 1), in_process=True)
    return replace(plan, fails=fails, habits=habits, peers=dice.choice(("crash", "hang")), faults=tuple(faults))


def renewed(dice: random.Random, plan: Plan) -> Plan:
    """Plan a node that is lost while its workers are parked, and comes back beside a cycle whose workers were all to be
    new processes. Then another node dies."""
    active = dice.randint(2, 4)
    first, away, dead = dice.choice((0, active)), *dice.sample(range(1, active), 1), active
    faults = [
        _fault("worker", dice.uniform(8.0, 12.0), [0]),
        _fault("cut-node", dice.uniform(2.1, 4.0), [away], dice.uniform(8.0, 12.0), "stopping"),
        _fault("worker", dice.uniform(0.1, 1.0), [first], moment="promoting"),
        _fault("node", dice.uniform(14.0, 22.0), [dead], moment="promoting"),
    ]
    habits = ((0, "never"), *((rank, dice.choice(("parks", "dies"))) for rank in range(1, active)))
    plan = replace(_long(dice, plan, 45.0), nodes=active + 1, active=active, in_process=True, policy="plain")
    return replace(plan, candidates=1, habits=habits, slow=0.05, faults=tuple(faults))


def agent_deaths(dice: random.Random, plan: Plan) -> Plan:
    """Plan agents that die or stand still while their daemons live; what a daemon said of one comes again later."""
    nodes = dice.randint(2, 5)
    faults, at = [], dice.uniform(5.0, 9.0)
    for _ in range(dice.randint(2, 4)):
        rank = dice.choice((IN_CHARGE, dice.randrange(nodes), dice.randrange(nodes)))
        kind = dice.choice(("agent", "agent", "freeze-agent"))
        moment = dice.choice(("", "", "joining", "ordering", "stopping", "promoting"))
        faults.append(_fault(kind, dice.uniform(0.0, 0.5) if moment else at, [rank], 20.0, moment))
        if dice.random() < 0.5:
            faults.append(_fault("agent", at + dice.uniform(0.1, 4.0), [rank]))
        if dice.random() < 0.3:
            more = dice.choice(("coordinator", "daemon", "cut-node", "node", "worker", "reset"))
            faults.append(_fault(more, at + dice.uniform(0.0, 3.0), [dice.choice((IN_CHARGE, rank))], 5.0))
        faults.append(_fault("repeat", at + dice.uniform(0.0, 6.0), [IN_CHARGE], float(dice.randint(3, 12))))
        at += dice.uniform(4.0, 12.0)
    return replace(_long(dice, plan, at), nodes=nodes, active=dice.randint(1, nodes - 1), faults=tuple(faults))


def hanging(dice: random.Random, plan: Plan) -> Plan:
    """Plan workers that hang, and something else while all are asked what their workers do."""
    nodes = dice.randint(3, 5)
    active = dice.randint(2, nodes - 1)
    faults, at = [], dice.uniform(6.0, 10.0)
    for _ in range(dice.randint(1, 2)):
        rank = dice.randrange(nodes)
        faults.append(_fault("hang", at, [rank]))
        if dice.random() < 0.3:
            faults.append(_fault("hang", at + dice.uniform(0.0, 4.0), [dice.randrange(nodes)]))
        if dice.random() < 0.7:
            kind = dice.choice(("coordinator", "cut-node", "freeze-node", "freeze-agent", "reset", "worker", "node"))
            seconds = dice.uniform(1.0, 9.0) if kind.startswith(("cut", "freeze")) else 0.0
            where = dice.choice((IN_CHARGE, rank, dice.randrange(nodes)))
            faults.append(_fault(kind, at + dice.uniform(0.0, 5.0), [where], seconds))
        at += dice.uniform(20.0, 30.0)
    return replace(_long(dice, plan, at), nodes=nodes, active=active, peers="hang", faults=tuple(faults))


def standing(dice: random.Random, plan: Plan) -> Plan:
    """Plan workers that do nothing for a while, or for ever, where that is watched, and something else meanwhile."""
    nodes = dice.randint(2, 5)
    active, auto = dice.randint(1, nodes), dice.choice(("restart", "restart", "notify"))
    faults, at = [], dice.uniform(6.0, 10.0)
    for _ in range(dice.randint(0, 2)):
        short, long = dice.uniform(0.3, 0.97) * AFTER, dice.uniform(1.0, 2.0) * AFTER
        seconds = dice.choice((short, long, 0.0 if auto == "restart" else long))
        faults.append(_fault("still", at, [dice.randrange(nodes)], seconds))
        if dice.random() < 0.4:
            kind = dice.choice(("coordinator", "cut-node", "freeze-node", "freeze-agent", "reset", "worker", "hang"))
            lasting = dice.uniform(1.0, 9.0) if kind.startswith(("cut", "freeze")) else 0.0
            where = dice.choice((IN_CHARGE, dice.randrange(nodes)))
            faults.append(_fault(kind, at + dice.uniform(0.0, AFTER + 5.0), [where], lasting))
        at += 2 * AFTER + dice.uniform(10.0, 15.0)
    peers = dice.choice(("hang", "hang", "independent"))
    return replace(_long(dice, plan, at), nodes=nodes, active=active, auto=auto, peers=peers, faults=tuple(faults))


THEMES: tuple[Theme, ...] = (
    gentle,
    see_saw,
    drift,
    unguarded,
    stale_orders,
    stutter,
    old_messages,
    endings,
    ailing,
    unable,
    crashes,
    parking,
    renewed,
    hanging,
    standing,
)
