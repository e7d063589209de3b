"""Tests the failing workers' last lines: the coordinator gets them, and logs those of the first failure once."""

from dataclasses import replace

import pytest
from tests.core.agent.play import Play, mail, run, standby
from tests.core.machines import C0, C1, TIMEOUTS, Talk, failed, job, stopped, stopping

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.actions import Announce, Send
from ft_supervisor.core.protocol.codec import MAX_BYTES, encode
from ft_supervisor.core.protocol.coordinator_facts import Decided, FailuresExplained, FirstFailure
from ft_supervisor.core.protocol.events import CoordinatorEvent, WorkersExited
from ft_supervisor.core.protocol.model import AGENT_RANK, Cycle, Failure, Job
from ft_supervisor.core.protocol.settings import Budget, Cause, Match, Response, Rule
from ft_supervisor.process.log_lines import render

SIGBUS = Rule(Match(signals=("SIGBUS",)), Response.REPLACE_NODE)
LINES = "Traceback (most recent call last):\n  File x\nValueError: bad"


def a_job(per_node: int = 8, **settings: object) -> Job:
    plain = job()
    settings = {"rules": (SIGBUS, Rule(budget=Budget(max=3)))} | settings
    return replace(plain, settings=replace(plain.settings, **settings), per_node=per_node)  # type: ignore[arg-type]


def first_failures(coordinator: Talk, kind: type = FirstFailure) -> list[dict[str, object]]:
    """Return a list to which the fields of each fact of this kind are added that the coordinator announces from now
    on."""
    found: list[dict[str, object]] = []
    handle = coordinator.machine.handle

    def watched(event: CoordinatorEvent, now: float) -> list[object]:
        actions = handle(event, now)
        found.extend(
            dict(render(action.fact, coordinator.machine.job).fields)
            for action in actions
            if isinstance(action, Announce) and isinstance(action.fact, kind)
        )
        return list(actions)

    coordinator.machine.handle = watched  # type: ignore[method-assign, assignment]
    return found


def talk(the_job: Job | None = None) -> tuple[Talk, list[dict[str, object]]]:
    coordinator = Talk(a_job=the_job or a_job())
    coordinator.begin()
    return coordinator, first_failures(coordinator)


def failures_of(infra_rank: int, *failures: Failure, cycle: Cycle = C0) -> messages.WorkersFailed:
    return messages.WorkersFailed(0, infra_rank, 1, cycle, failures)


def test_the_first_failure_is_logged_once_when_all_have_stopped() -> None:
    coordinator, found = talk()
    failure = Failure(1, 3, exit_code=1, message="ValueError: bad", last_lines=LINES, rank=11)
    coordinator.hear(failures_of(1, failure, Failure(1, 4, exit_code=1, last_lines="a peer's")))
    coordinator.hear(failures_of(2, Failure(2, 0, signal="SIGABRT", last_lines="connection reset")))
    assert found == []
    for infra_rank in range(3):
        coordinator.hear(stopped(infra_rank))
    assert found == [
        {
            "cycle": C0,
            "rank": 11,
            "node": "n1",
            "failure": "rank 11 (n1, local 3): ValueError: bad",
            "log": "/r/logs/0.0/rank11.log",
            "last_lines": LINES,
        }
    ]
    assert coordinator.logged[-3:].count("cycle_started") == 1


def test_the_first_failure_is_the_one_that_decides_and_not_the_first_to_arrive() -> None:
    coordinator, found = talk()
    coordinator.hear(failures_of(0, Failure(0, 0, exit_code=1, last_lines="connection reset by peer")))
    coordinator.hear(
        failures_of(1, Failure(1, 0, exit_code=1), Failure(1, 7, signal="SIGBUS", last_lines="bad memory"))
    )
    for infra_rank in range(3):
        coordinator.hear(stopped(infra_rank))
    assert [(one["rank"], one["last_lines"]) for one in found] == [(15, "bad memory")]


def test_the_coordinator_does_not_log_each_workers_failure_again() -> None:
    coordinator, _ = talk()
    coordinator.hear(failures_of(1, *(Failure(1, rank, exit_code=1) for rank in range(8))))
    assert coordinator.logged[-2:] == ["failures_heard", "cycle_failed"] and "worker_failed" not in coordinator.logged


def test_the_first_failure_is_logged_before_the_job_ends() -> None:
    coordinator, found = talk(a_job(rules=(Rule(budget=Budget(max=0)),)))
    coordinator.hear(failed(1))
    for infra_rank in range(3):
        coordinator.hear(stopping(infra_rank))
    coordinator.wait(TIMEOUTS.probe + 1.0)
    assert [(one["rank"], one["node"], "last_lines" in one) for one in found] == [(8, "n1", False)]
    assert coordinator.logged.index("gives_up") > coordinator.logged.index("first_failure")


def test_a_failure_of_no_worker_has_no_rank() -> None:
    coordinator, found = talk()
    coordinator.hear(failures_of(1, Failure(1, AGENT_RANK, cause=Cause.HANG)))
    for infra_rank in range(3):
        coordinator.hear(stopped(infra_rank))
    assert [(one["node"], "rank" in one or "log" in one) for one in found] == [("n1", False)]


def test_a_lost_node_has_no_last_lines() -> None:
    coordinator, found = talk()
    coordinator.silent = {1}
    coordinator.wait(2 * TIMEOUTS.node_lost)
    for infra_rank in (0, 2):
        coordinator.hear(stopped(infra_rank))
    assert coordinator.machine.cycle == C1 and found == []


# -- the agent


def active(the_job: Job) -> Play:
    play = Play(a_job=the_job)
    play.connect()
    play.feed(standby(None), mail(run()))
    return play


def sent(play: Play, *failures: Failure) -> messages.WorkersFailed:
    found = [action.message for action in play.feed(WorkersExited(C0, failures)) if isinstance(action, Send)]
    (message,) = (message for message in found if isinstance(message, messages.WorkersFailed))
    return message


@pytest.mark.parametrize("workers", [8, 128])
def test_all_workers_failing_at_once_fit_into_a_message(workers: int) -> None:
    def worst(local_rank: int) -> Failure:
        text = "\x7f" * 400 if local_rank else "x" * 2048
        lines = text if len(text) == 2048 else "é" * 341
        path = f"/tmp/ft-1000/123456.0.0/n1/workers/{'y' * 60}/attempt_0/{local_rank}/error.json"
        name = "torch.distributed.elastic.DistBackendError"
        return Failure(1, local_rank, 1, None, path, "é" * 500, 1.8e9 + 0.123456, Cause.EXIT, name, (0, 1), lines)

    message = sent(active(a_job(per_node=workers)), *map(worst, range(workers)))
    assert len(encode(message)) <= MAX_BYTES - 4096
    assert sum(bool(failure.last_lines) for failure in message.failures) == 8
    assert len(message.failures) == min(workers, 32)


def test_the_failures_that_decide_come_first() -> None:
    failures = [Failure(1, rank, exit_code=1, last_lines="x") for rank in range(100)]
    bus = Failure(1, 100, signal="SIGBUS", last_lines="bad memory")
    assert sent(active(a_job(per_node=101)), *failures, bus).failures[:3] == (bus, failures[0], failures[1])


def test_a_worker_that_lost_its_peer_gives_way_to_one_that_failed_by_itself() -> None:
    """Whose report comes first depends on the nodes' load."""
    coordinator, found = talk()
    decided = first_failures(coordinator, Decided)
    peer = Failure(0, 0, exit_code=1, message="RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:2003")
    coordinator.hear(failures_of(0, peer))
    coordinator.hear(failures_of(1, Failure(1, 3, exit_code=1, message="ValueError: loss is nan", rank=11)))
    coordinator.hear(failures_of(2, replace(peer, infra_rank=2)))
    for rank in range(3):
        coordinator.hear(stopped(rank))
    words = "rank 11 (n1, local 3): ValueError: loss is nan"
    assert [each["failure"] for each in found] == [words]
    assert [(each["reason"], each["budget"]) for each in decided] == [(words, "1 of 3")]


def test_after_a_nodes_loss_its_peers_failures_are_called_consequences() -> None:
    coordinator, found = talk()
    explained = first_failures(coordinator, FailuresExplained)
    coordinator.silent = {1}
    coordinator.hear(failures_of(0, *(Failure(0, rank, exit_code=1) for rank in range(3))))
    coordinator.hear(failures_of(2, Failure(2, 0, exit_code=1)))
    for rank in (0, 2):
        coordinator.hear(stopped(rank))
    coordinator.wait(TIMEOUTS.node_lost)
    reason = "n1 was lost; the 4 tracebacks above are consequences"
    assert explained == [{"cycle": C0, "node": "n1", "failures": 4, "reason": reason}] and found == []


def test_a_failure_before_a_nodes_loss_is_no_consequence() -> None:
    coordinator, _ = talk()
    explained = first_failures(coordinator, FailuresExplained)
    coordinator.hear(failures_of(0, Failure(0, 0, exit_code=1)))
    coordinator.wait(TIMEOUTS.heartbeat)  # n1 answers once more, and never again
    coordinator.silent = {1}
    for rank in (0, 2):
        coordinator.hear(stopped(rank))
    coordinator.wait(TIMEOUTS.node_lost + TIMEOUTS.heartbeat)
    assert coordinator.logged.count("node_lost") == 1 and explained == []
