"""Tests that the messages of a job of ten thousand nodes, half of which get lost, fit into their bound."""

import random
from dataclasses import replace

from tests.core.agent.play import Play
from tests.core.machines import C1, Talk, job

from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import Send, Tell
from ft_supervisor.core.protocol.codec import MAX_BYTES, encode
from ft_supervisor.core.protocol.ledger import Ledger, Spent
from ft_supervisor.core.protocol.model import Failure, Memory, Outcome, Roster, Verdict
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.core.protocol.settings import Cause
from ft_supervisor.process.link import Link, pair

NODES, ACTIVE = 10_000, 4_500
FAILED = Verdict(Outcome.FAILED, "over")


def survivors() -> tuple[list[int], list[int]]:
    """Return the nodes that are left after a random quarter was lost, and those after another one."""
    chance = random.Random(1)
    first = sorted(chance.sample(range(NODES), NODES * 3 // 4))
    return first, sorted(chance.sample(first, NODES // 2))


def memory() -> Memory:
    """Return the largest memory of a node: all nodes keep the roster after the first loss, and the second one has just
    been proposed."""
    first, left = survivors()
    lost = sorted(set(range(ACTIVE)) - set(left))
    spares = iter(sorted(set(left) - set(range(ACTIVE))))
    group = [rank if rank in set(left) else next(spares) for rank in range(ACTIVE)]
    failures = tuple(
        Failure(1, rank, 1, None, "/tmp/" + "y" * 100, "é" * 500, 1.7e9, Cause.EXIT, "ValueError", (0,), "x" * 2048)
        for rank in range(8)
    )
    spent = Spent(0, 100, tuple(1.7e9 + 0.123456 * at for at in range(100)))
    ledger = Ledger(200, 100, (spent,), 7, excluded=format_ranks(lost[:50]))
    return Memory(
        3, Roster(3, 4, format_ranks(left), format_ranks(first)), ledger, C1, format_ranks(group), failures=failures
    )


def test_a_verdict_with_every_other_node_lost_fits_into_an_order() -> None:
    talk = Talk(NODES, ACTIVE)
    for infra_rank in range(0, NODES, 2):
        talk.register(infra_rank)
    (tell, _) = talk.held(FAILED)
    assert isinstance(tell, Tell) and isinstance(tell.order, orders.VerdictDecided)
    decided = tell.order
    assert parse_ranks(decided.lost) == tuple(range(1, NODES, 2))
    assert len(encode(decided)) <= MAX_BYTES
    ours, theirs = map(Link, pair())
    try:
        theirs.send(decided)
        assert ours.receive(10.0) == decided
    finally:
        ours.close()
        theirs.close()


def test_a_node_with_the_largest_memory_can_register() -> None:
    play = Play(memory(), a_job=job(NODES, ACTIVE))
    sent = [deed.message for deed in play.connect() if isinstance(deed, Send)]
    (register,) = sent
    assert isinstance(register, messages.Register)
    assert len(encode(register)) <= MAX_BYTES
    assert register.memory == replace(play.machine.memory, failures=play.machine.memory.failures[:1])


def test_the_coordinators_messages_about_it_fit_into_their_bound() -> None:
    largest = memory()
    assert largest.roster is not None and largest.newest is not None
    run = messages.Run(3, C1, largest.group, 7, ACTIVE, 5, 10, "a" * 253, 65535, largest.ledger, 0.123456)
    sent: list[messages.ToAgent] = [messages.Members(3, largest.roster), messages.Stop(3, C1, largest.group, 2.0), run]
    sent += [messages.Standby(3, C1, largest.ledger, 0.123456), messages.Continue(3, C1, largest.ledger, 0.123456)]
    for message in sent:
        assert len(encode(message)) <= MAX_BYTES
