"""Tests a check's name on its whole way: from the node's health checks to the rule that matches, and to the ledger.

The daemon's, the agent's and the coordinator's machines are connected by their own orders and messages, encoded and
decoded as on the real links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.core.agent.play import Play, mail, run, standby
from tests.core.machines import C0, Talk, deeds, job, node
from tests.core.test_cluster_policy import all_stop

from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.protocol import codec, orders
from ft_supervisor.core.protocol.actions import RunChecks, Send, Tell
from ft_supervisor.core.protocol.events import CheckAnswered, ChecksDone, Ordered, TurnedUnhealthy
from ft_supervisor.core.protocol.health_types import CheckOutcome, Result
from ft_supervisor.core.protocol.messages import TO_COORDINATOR, Unhealthy
from ft_supervisor.core.protocol.model import Cycle, Job, Memory
from ft_supervisor.core.protocol.settings import Budget, Check, Health, Match, Response, Rule, When

NAMES = ("scratch", "ib: port 1", "scratch failed", "health check scratch", "failed 2 times:")
RETRIES = (0, 1, 10)
OTHERS = ("ib", "scratch", "1")
"""Names of checks that pass; rules for these come first, and must not answer."""


def a_job(name: str, retries: int) -> Job:
    """Return a job of four nodes, three of them active, with a rule for each check and a last rule for any failure."""
    checks = [Check(other, ("x",), when=(When.BEFORE_CYCLE,)) for other in OTHERS if other != name]
    checks.append(Check(name, ("x",), retries=retries, when=(When.BEFORE_CYCLE,)))
    rules = [Rule(Match(check=check.name), Response.RESTART, Budget(max=9)) for check in checks]
    plain = job()
    health = Health(checks=tuple(checks), min_free=None)
    return replace(plain, settings=replace(plain.settings, rules=(*rules, Rule()), health=health))


def failed_check(machine: DaemonMachine, todo: Sequence[object], name: str, attempts: int) -> list[orders.Order]:
    """Run the checks, of which the named one fails; return the orders that the agent gets over the link."""
    (round_,) = (deed.round for deed in todo if isinstance(deed, RunChecks))
    outcomes = [
        CheckOutcome(check.name, Result.FAILED, "exit code 1: a: b", attempts)
        if check.name == name
        else CheckOutcome(check.name, Result.PASSED)
        for check in round_.checks
    ]
    done = deeds(machine.handle(ChecksDone(round_.number, tuple(outcomes)), 1.0))
    sent = [deed.order for deed in done if isinstance(deed, Tell)]
    return [codec.decode(codec.encode(order), orders.ORDERS) for order in sent]


def handled(play: Play, received: Sequence[orders.Order]) -> tuple[Unhealthy, Memory]:
    """Let the agent handle these orders; return its message as the coordinator gets it, and its daemon's memory."""
    done: list[object] = []
    for order in received:
        match order:
            case orders.Sick(problem):
                done += play.feed(TurnedUnhealthy(problem))
            case orders.Checked(cycle, problem):
                done += play.feed(CheckAnswered(cycle, problem))
    sent = [deed.message for deed in done if isinstance(deed, Send) and isinstance(deed.message, Unhealthy)]
    kept = [deed.order for deed in done if isinstance(deed, Tell) and isinstance(deed.order, orders.Remember)]
    remembered: orders.Remember = codec.decode(codec.encode(kept[-1]), orders.ORDERS)
    return codec.decode(codec.encode(sent[-1]), TO_COORDINATOR), remembered.memory


def before_a_cycle(the_job: Job, name: str, attempts: int) -> tuple[Unhealthy, Memory]:
    """Let node 1's check fail before cycle 0.0."""
    daemon = DaemonMachine(the_job, node(1), 0.0)
    daemon.start(0.0)
    play = Play(a_job=the_job)
    play.connect()
    play.feed(standby(None))
    asked = [deed.order for deed in play.feed(mail(run())) if isinstance(deed, Tell)]
    assert orders.Check("0.0") in asked
    todo = daemon.handle(Ordered("agent", orders.Check("0.0")), 0.5)
    return handled(play, failed_check(daemon, todo, name, attempts))


def answered_by(coordinator: Talk) -> list[str]:
    """Return the checks whose rules the ledger has charged."""
    rules = coordinator.job.settings.rules
    return [rules[spent.rule].match.check for spent in coordinator.machine.state.cycles.ledger.spent]


@pytest.mark.parametrize("retries", RETRIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_checks_own_rule_answers_it(name: str, retries: int) -> None:
    the_job = a_job(name, retries)
    message, _ = before_a_cycle(the_job, name, 1 + retries)
    coordinator = Talk(a_job=the_job)
    coordinator.begin()
    coordinator.hear(message)
    assert set(all_stop(coordinator)) == {0, 3, 2}
    assert answered_by(coordinator) == [name]
    assert coordinator.machine.state.cycles.announcements.last is not None
    times = f" {1 + retries} times" if retries else ""
    sentence = f"n1: health check {name} failed{times}: exit code 1: a: b"
    assert coordinator.machine.state.cycles.announcements.last.fact.reason.startswith(sentence)


@pytest.mark.parametrize("running", [None, C0], ids=["stopped", "still stopping"])
@pytest.mark.parametrize("name", NAMES)
def test_a_coordinator_that_gets_only_the_nodes_memory_charges_the_checks_rule_too(
    name: str, running: Cycle | None
) -> None:
    """The message was lost with the former coordinator, or with the connection."""
    the_job = a_job(name, 1)
    _, memory = before_a_cycle(the_job, name, 2)
    coordinator = Talk(a_job=the_job)
    coordinator.begin()
    coordinator.register(1, connection=2, memory=memory, running=running)
    assert set(all_stop(coordinator)) == {0, 3, 2}
    assert answered_by(coordinator) == [name]
