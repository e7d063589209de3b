"""Tests Cycles without a coordinator: calls in, steps out."""

from __future__ import annotations

from dataclasses import replace

from tests.core.machines import C0, C1, failed, job, mailed, node, stopped, stopping, succeeded

from ft_supervisor.core.coordinator.cycle_step import Phase, Standing, Step
from ft_supervisor.core.coordinator.cycles import Cycles
from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Mail
from ft_supervisor.core.protocol.model import Cycle, Memory, Outcome, Verdict
from ft_supervisor.core.quorum.members import Members

STANDING = Standing(now=0.0, wall=1000.0, age=0.0, eligible=frozenset(range(3)))


class Training:
    """The cycles of three nodes, of which two train, in term 0. `last` is the last result of `step`."""

    def __init__(self, max_restarts: int = 3) -> None:
        self.standing = STANDING
        self.members = Members()
        self.cycles = Cycles(job(3, 2, max_restarts), self.members, 0, 0.0)
        self.last = Step()

    def register(
        self, infra_rank: int, memory: Memory | None = None, running: Cycle | None = None, serial: int = 1
    ) -> Step:
        message = messages.Register(node(infra_rank), 1, 1, 0, 100 + infra_rank, running, memory or Memory(0), serial)
        member = self.members.register(message, self.standing.now)
        assert member is not None
        self.last = self.cycles.welcome(message, member, self.standing)
        return self.last

    def hear(self, *told: messages.OfWorkers) -> Step:
        for message in told:
            self.last = self.cycles.hear(message, self.members[message.infra_rank], self.standing)
        return self.last

    def begin(self) -> Step:
        self.last = self.cycles.begin(self.standing)
        return self.last

    def later(self, seconds: float) -> None:
        self.standing = replace(self.standing, now=self.standing.now + seconds)


def running(max_restarts: int = 3) -> Training:
    training = Training(max_restarts)
    for infra_rank in range(3):
        training.register(infra_rank)
    training.begin()
    return training


def test_a_cycle_waits_for_the_permission_to_begin() -> None:
    training = Training()
    assert [training.register(infra_rank).ready for infra_rank in range(3)] == [False, False, True]
    assert (training.cycles.phase,) == (Phase.JOINING,)
    assert not mailed(training.last.actions, messages.Run)
    runs = mailed(training.begin().actions, messages.Run)
    assert sorted(runs) == [0, 1] and training.cycles.phase is Phase.RUNNING
    assert not training.last.ready and training.last.verdict is None


def test_without_eligible_nodes_no_cycle_is_ready() -> None:
    training = Training()
    training.standing = replace(STANDING, eligible=frozenset({0}))
    assert [training.register(infra_rank).ready for infra_rank in range(3)] == [False, False, False]


def test_the_success_of_all_is_returned_as_a_verdict_and_not_acted_on() -> None:
    training = running()
    assert training.hear(succeeded(0)).verdict is None
    verdict = Verdict(Outcome.SUCCESS, "all workers of cycle 0.0 exited with 0")
    assert training.hear(succeeded(1)) == Step([], verdict)


def test_a_failure_stops_the_others_and_leads_to_a_cycle_once_all_have_stopped() -> None:
    training = running()
    assert list(mailed(training.hear(failed(0)).actions, messages.Stop)) == [0, 1]
    assert training.cycles.phase is Phase.STOPPING
    assert not training.hear(stopped(0), stopping(1)).ready
    assert training.hear(stopped(1)).ready
    runs = mailed(training.begin().actions, messages.Run)
    assert [(rank, run.cycle) for rank, run in runs.items() if isinstance(run, messages.Run)] == [(0, C1), (1, C1)]


def test_a_spent_budget_is_returned_as_a_verdict_once_every_node_has_answered() -> None:
    training = running(max_restarts=0)
    training.hear(failed(0), stopped(0))
    training.later(training.cycles.job.timeouts.probe)
    assert training.cycles.advance(training.standing) == Step()
    (step,) = (training.hear(stopping(1), stopped(1)),)
    assert step.verdict is not None and step.verdict.outcome is Outcome.FAILED
    assert not step.ready


def test_the_age_of_the_proof_goes_with_what_nodes_may_run() -> None:
    training = running()
    training.standing = replace(STANDING, age=1.25)
    memory = Memory(0, newest=C0, group="0-1")
    (action,) = training.register(0, memory, C0, serial=2).actions
    assert isinstance(action, Mail) and isinstance(action.message, messages.Continue)
    assert action.message.age == 1.25
