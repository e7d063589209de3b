"""Tests codec and machines with hostile messages: none raises an exception, and a refused one changes nothing.

`FT_MESSAGES=100000` tries that many of them. Each is made from a number, and is the same each time.
"""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.core.agent.play import STOP, Play, mail, memory_of, run, running, standby
from tests.core.machines import (
    C0,
    C1,
    Talk,
    failed,
    goodbye,
    in_process,
    node,
    stopped,
    stopping,
    succeeded,
    verdict_kept,
)
from tests.core.making import Maker, garbled, mutated
from tests.core.takeover import Takeover, ran

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import Announce, Dial, Mail, Send
from ft_supervisor.core.protocol.agent_facts import MailDropped
from ft_supervisor.core.protocol.codec import CodecError, decode, encode, to_plain
from ft_supervisor.core.protocol.coordinator_facts import MessageDropped
from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger, Spent
from ft_supervisor.core.protocol.messages import TO_AGENT, TO_COORDINATOR
from ft_supervisor.core.protocol.model import Accepted, Cycle, Failure, Job, Memory, Outcome, Problem, Roster, Verdict
from ft_supervisor.core.protocol.refusals import Refusals
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.core.protocol.signs import NodeSign, Sign
from ft_supervisor.journal.lines import event_line

MESSAGES = int(os.environ.get("FT_MESSAGES", "4000"))
IN_A_ROW = 30
"""Number of messages after which a machine begins anew. The effects of accepted messages stay until then."""
SUCCESS = Verdict(Outcome.SUCCESS, "over")
LEDGER = Ledger(3, 2, (Spent(0, 2, (1.5,), ((1, 2),), 1, (1.5,)),), 7, 1, 2, "3", C0)
MEMORY = Memory(
    *(1, Roster(1, 2, "0-3", "0-3"), LEDGER, C0, "0-2", None, (Failure(1, 0, 3),), Accepted(1, SUCCESS)),
    progressed=C0,
)
RAISES = Failure(1, 0, exception="ValueError", lives=True)
HUNG = Failure(1, 0, message="no heartbeat for 10 s", cause=Cause.HANG, silent=10.0)
DIGEST = Digest(0, "ab", "a.py:1", EvidenceSource.WORKER_SERVER, (Collective("0", 7, "all_reduce", "[3]"),), "step 7")
RETURNED = messages.WorkersCompleted(0, 1, 1, C0, 1)

FROM_NODES = (
    messages.Training(0, 1, 1, C0, NodeSign(Sign.BEAT, 3.0, 1.0)),
    messages.Register(node(1), 1, 2, 1, 9, None, MEMORY, 7),
    messages.Register(node(2), 2, 1, 1, 9, None, Memory(0), 1, "SIGTERM"),
    messages.Register(
        node(0), 1, 2, 1, 9, C0, ran(progressed=C0), 8, completed=1, hangs=(replace(HUNG, infra_rank=0),)
    ),
    *(failed(1), succeeded(1), stopping(1), stopped(1), verdict_kept(1), goodbye(2), goodbye(3, verdict=SUCCESS)),
    messages.RosterKept(1, 1, 1, (1, 2)),
    replace(stopped(1), parked=1, progressed=True),
    replace(failed(1), failures=(RAISES,)),
    messages.HangNoticed(0, 1, 1, C0, (HUNG,)),
    messages.StandsStill(0, 1, 1, C0, 600.0),
    messages.AtStep(0, 1, 1, C0, 1769),
    messages.Evidence(0, 1, 1, C0, 1, (DIGEST,), ((0, (0,)),), ((0, "step 7"),), ((0, 1.5),)),
    RETURNED,
    messages.AgentGone(0, 1, 1, C0, (Failure(1, -1, message="killed by SIGKILL"),), progressed=True),
    messages.Unhealthy(0, 1, 1, Problem("disk", "a disk")),
    messages.ToldToEnd(0, 1, 1, "SIGTERM"),
)
FROM_COORDINATORS = (
    messages.Prepare(1),
    messages.Members(0, Roster(0, 1, "0-3", "0-3")),
    messages.Standby(0, C0, LEDGER, 0.0),
    messages.Continue(0, C0, EMPTY, 0.5),
    messages.Stop(0, C0, "0-2", 2.0),
    messages.Complete(0, C0, 1),
    messages.TakeEvidence(0, C0, 1),
    messages.Propose(0, SUCCESS),
    messages.Close(0, SUCCESS),
    run(),
    run(C1),
    replace(run(C1, ledger=LEDGER), fresh=False),
)


def _coordinators() -> Iterable[Talk]:
    yield Talk()
    yield _led()
    stops = _led()
    stops.hear(failed(1))
    yield stops
    again = _led()
    for infra_rank in range(3):
        again.hear(failed(infra_rank) if infra_rank == 1 else stopping(infra_rank))
        again.hear(stopped(infra_rank))
    assert again.machine.cycle == C1
    yield again
    closes = _led()
    for infra_rank in range(3):
        closes.hear(succeeded(infra_rank))
    assert closes.machine.state.commit.proposal is not None
    yield closes
    ended = _led()
    ended.settle_from_outside(SUCCESS)
    yield ended
    yield Takeover()
    prepares = Takeover()
    prepares.come(0, 2, 4)
    yield prepares
    leads = Takeover()
    leads.take(0, 1, 2, 3)
    assert leads.machine.term == 1
    yield leads
    yield from _parking_coordinators()


def _parking_coordinators() -> Iterable[Talk]:
    """Yield coordinators whose nodes' workers have returned, are parked, or go on."""
    returns = _led(in_process())
    returns.hear(RETURNED)
    yield returns
    released = _led(in_process())
    for infra_rank in range(3):
        released.hear(replace(RETURNED, infra_rank=infra_rank))
    yield released
    for progressed in (False, True):
        parks = _led(in_process())
        parks.hear(failed(1))
        for infra_rank in range(3):
            parks.hear(replace(stopped(infra_rank), parked=1, progressed=progressed))
        assert parks.machine.cycle == C1 and (parks.machine.state.cycles.ledger.fresh is None) == progressed
        yield parks


def _led(a_job: Job | None = None) -> Talk:
    talk = Talk(a_job=a_job)
    talk.begin()
    assert talk.machine.cycle == C0
    return talk


def _agents() -> Iterable[Play]:
    joins = Play()
    joins.connect()
    yield joins
    waits = Play()
    waits.connect()
    waits.feed(standby(None))
    yield waits
    yield running()
    stops = running()
    stops.feed(mail(run(C1)))
    yield stops
    succeeds = running()
    succeeds.feed(events.WorkersExited(C0, ()))
    yield succeeds
    closes = running()
    closes.feed(mail(messages.Close(0, SUCCESS)))
    yield closes
    promised = Play(memory_of(C0, promise=2, ledger=LEDGER))
    promised.connect()
    yield promised
    yield from _parking_agents()


def _parking_agents() -> Iterable[Play]:
    """Yield agents whose workers have returned, are about to be parked, or are."""
    returns = running(a_job=in_process())
    returns.feed(events.WorkerProgressed(C0), events.WorkersReturned(C0, 1))
    yield returns
    stops = running(a_job=in_process())
    stops.feed(mail(STOP))
    yield stops
    parked = running(a_job=in_process())
    parked.feed(mail(STOP), events.WorkersGone(C0, 33, (0,)))
    yield parked


Machine = CoordinatorMachine | AgentMachine


class Hostile:
    """Makes messages from numbers: real ones with wrong values, and random ones of the right types."""

    def __init__(self, kinds: tuple[type, ...], real: tuple[object, ...]) -> None:
        self._kinds = kinds
        self._real = real
        assert {type(message) for message in real} == set(kinds)

    def data(self, random: Random) -> bytes:
        """Return the bytes that a machine's shell reads from the store."""
        if random.random() < 0.3:
            message = Maker(random).value(random.choice(self._kinds))
        else:
            message = random.choice(self._real)
        plain = {"type": type(message).__name__, **to_plain(message)}
        for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
            plain = mutated(plain, random)
        data = json.dumps(plain).encode()
        return garbled(data, random) if random.random() < 0.15 else data


def _refuses(action: object) -> bool:
    """Whether the action refuses a message. A Run without a lease, or beside live workers, is accepted: the answer is a
    new connection or a Register."""
    return isinstance(action, Announce) and isinstance(action.fact, MessageDropped | MailDropped)


def _state(machine: Machine) -> bytes:
    """Return the machine's whole state, without its last actions and its count of logged refusals."""
    machine._actions = []
    refuser = machine._follower if isinstance(machine, AgentMachine) else machine
    refuser._refusals = Refusals()
    return pickle.dumps(machine)


def _throw(
    base: Callable[[], list[tuple[Machine, float]]],
    hostile: Hostile,
    kinds: tuple[type, ...],
    event: Callable[[Any], Any],
    seed: str,
) -> Counter[str]:
    """Send all messages, one after another; return how many the codec refused, the machine refused, or accepted."""
    found: Counter[str] = Counter()
    states = [(_state(machine), now) for machine, now in base()]
    for number in range(MESSAGES):
        random = Random(f"{seed} {number}")
        if number % IN_A_ROW == 0:
            state, now = states[number // IN_A_ROW % len(states)]
            machine: Machine = pickle.loads(state)
            state = _state(machine)
        try:
            message = decode(hostile.data(random), kinds)
        except CodecError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
            found["codec"] += 1
            continue
        happened = event(message)
        actions = machine.handle(happened, now)
        event_line(now, happened, actions, 0, "0.0")  # the journal takes it
        after = _state(machine)
        if any(_refuses(action) for action in actions):
            assert len(actions) == 1 and after == state, (number, message)
            found["machine"] += 1
            continue
        found["believed"] += 1
        state = after
        if any(isinstance(action, Dial) for action in actions):  # no mail comes without a connection
            machine = pickle.loads(states[number // IN_A_ROW % len(states)][0])
            state = _state(machine)
        for action in actions:  # other processes must accept the messages that it sends after that
            if isinstance(action, Mail):
                assert decode(encode(action.message), TO_AGENT) == action.message, (number, message)
            elif isinstance(action, Send):
                assert decode(encode(action.message), TO_COORDINATOR) == action.message, (number, message)
        if number % 3 == 0:
            now += 0.3
            machine.handle(events.Tick(), now)
            state = _state(machine)
    return found


def test_no_message_breaks_a_coordinator() -> None:
    def base() -> list[tuple[Machine, float]]:
        return [(talk.machine, talk.now) for talk in _coordinators()]

    hostile = Hostile(TO_COORDINATOR, FROM_NODES)
    found = _throw(base, hostile, TO_COORDINATOR, events.Received, "coordinator")
    assert min(found[what] for what in ("codec", "machine", "believed")) > MESSAGES / 50, found


def test_no_message_breaks_an_agent() -> None:
    def base() -> list[tuple[Machine, float]]:
        return [(play.machine, play.now) for play in _agents()]

    hostile = Hostile(TO_AGENT, FROM_COORDINATORS)
    found = _throw(base, hostile, TO_AGENT, events.Mailed, "agent")
    assert min(found[what] for what in ("codec", "machine", "believed")) > MESSAGES / 50, found


REGISTER = messages.Register(node(1), 1, 2, 1, 9, C0, ran(), 8)


@pytest.mark.parametrize(
    "message",
    [
        replace(REGISTER, node=replace(node(1), name="n2")),
        replace(REGISTER, node=replace(node(1), addr="attacker.example")),
        replace(REGISTER, memory=ran(newest=C1, group="0,2"), running=None),
        replace(REGISTER, memory=ran(promise=10**15)),
        replace(REGISTER, memory=ran(newest=replace(C0, n=10**9)), running=None),
        replace(REGISTER, memory=ran(ledger=Ledger(10**9))),
        replace(REGISTER, memory=ran(ledger=replace(LEDGER, fresh=Cycle(1, 0)))),
        replace(REGISTER, memory=ran(ledger=replace(LEDGER, fresh=Cycle(0, 10**9)))),
        replace(REGISTER, memory=ran(ledger=Ledger(3, 2, (Spent(0, 2, in_process=3),)))),
        replace(REGISTER, memory=ran(progressed=C1)),
        replace(stopped(1), parked=2),
        replace(RETURNED, cycle=Cycle(7, 0)),
        messages.WorkersSucceeded(0, 9, 1, C0),
        failed(1, replace(C0, term=7)),
    ],
)
def test_a_coordinator_refuses_what_cannot_be(message: messages.ToCoordinator) -> None:
    talk = _led()
    before = _state(talk.machine)
    (said,) = talk.machine.handle(events.Received(message), talk.now)
    assert isinstance(said, Announce) and isinstance(said.fact, MessageDropped) and said.fact.reason
    assert _state(talk.machine) == before


@pytest.mark.parametrize(
    "message",
    [
        replace(run(C1), master_addr="attacker.example"),
        replace(run(C1), group_rank=0),
        replace(run(C1), group="0,2-3"),
        messages.Stop(0, C0, "0-2", 1e6),
        messages.Stop(0, C0, "0,2", 2.0),
        messages.Prepare(10**15),
        messages.Continue(0, replace(C0, term=7), EMPTY, 0.5),
        messages.Members(0, Roster(0, 1, "0-9")),
        messages.Complete(0, Cycle(7, 0), 1),
        messages.Standby(0, C0, replace(LEDGER, fresh=Cycle(1, 0)), 0.5),
        messages.Continue(0, C0, replace(LEDGER, fresh=Cycle(0, 10**9)), 0.5),
        run(C1, ledger=replace(LEDGER, fresh=Cycle(1, 0))),
    ],
)
def test_an_agent_refuses_what_cannot_be(message: messages.ToAgent) -> None:
    play = running()
    before = _state(play.machine)
    (said,) = play.machine.handle(events.Mailed(message), play.now)
    assert isinstance(said, Announce) and isinstance(said.fact, MailDropped) and said.fact.reason
    assert _state(play.machine) == before
