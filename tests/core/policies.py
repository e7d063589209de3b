"""A coordinator with rules of a cluster's policy, and what the tests of these share."""

from __future__ import annotations

from dataclasses import replace

from tests.core.machines import C0, Talk, job, mailed, stopped

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.messages import Propose, Run
from ft_supervisor.core.protocol.model import Cycle, Failure, Verdict
from ft_supervisor.core.protocol.settings import Budget, Rule

ANY = Rule(budget=Budget(max=3))


def talk(*rules: Rule, nodes: int = 4, active: int = 3, domains: str = "", **settings: object) -> Talk:
    """Return the coordinator of a job with these rules, and one for any failure. All nodes have registered."""
    plain = job(nodes, active)
    the_job = replace(plain, settings=replace(plain.settings, rules=(*rules, ANY), **settings))  # type: ignore[arg-type]
    coordinator = Talk(a_job=the_job, domains=domains)
    coordinator.begin()
    return coordinator


def failed(infra_rank: int, cycle: Cycle = C0, **how: object) -> messages.WorkersFailed:
    """Return the message that worker 0 of the node has failed in this way."""
    return messages.WorkersFailed(0, infra_rank, 1, cycle, (Failure(infra_rank, 0, **how),))  # type: ignore[arg-type]


def proposed(answers: list[object]) -> Verdict | None:
    """Return the proposed verdict, None if there is none."""
    verdicts = [message.verdict for message in mailed(answers, Propose).values() if isinstance(message, Propose)]
    assert len(set(verdicts)) <= 1
    return verdicts[0] if verdicts else None


def all_stop(coordinator: Talk, cycle: Cycle = C0) -> dict[int, Run]:
    """Let all nodes that still run workers report that these have stopped; return the Runs that follow, by node."""
    answers: list[object] = []
    for infra_rank in sorted(coordinator.machine.members.running()):
        answers += coordinator.hear(stopped(infra_rank, cycle))
    return {rank: run for rank, run in mailed(answers, Run).items() if isinstance(run, Run)}


def group(coordinator: Talk) -> tuple[int, ...]:
    return coordinator.machine.state.cycles.group
