"""Tests when an agent lets its workers park, and what it tells its coordinator of parked and returned workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.agent.play import (
    STOP,
    SUCCESS,
    goodbye,
    mail,
    memory_of,
    register,
    remember,
    run,
    running,
    standby,
    stopped,
)
from tests.core.machines import C0, C1, TIMEOUTS, job

from ft_supervisor.core.agent.lifecycle import ABANDON_MARGIN
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import EndWorkers, Leave, ReleaseWorkers, Send, Start, StopWorkers
from ft_supervisor.core.protocol.model import KILL_BOUND, Failure, Job
from ft_supervisor.core.protocol.settings import Match, Response, RestartMode, Rule

RAISES = Failure(1, 0, exception="ValueError", lives=True)
PARKS = StopWorkers(C0, TIMEOUTS.restart_grace, park=True)


def in_process(*rules: Rule) -> Job:
    plain = job()
    settings = replace(plain.settings, restart=RestartMode.IN_PROCESS, rules=(*rules, *plain.settings.rules))
    return replace(plain, settings=settings)


def parks(cycle: messages.Stop = STOP, *, progressed: bool = False) -> Send:
    return Send(messages.WorkersStopped(0, 1, 1, cycle.cycle, 33, 1, progressed))


@pytest.mark.parametrize(
    "event", [mail(STOP), standby(None), events.WorkersExited(C0, (RAISES,))], ids=["stop", "standby", "failure"]
)
def test_workers_may_park_when_a_new_cycle_waits_where_the_job_says_so(event: events.AgentEvent) -> None:
    assert PARKS in running(a_job=in_process()).feed(event)
    assert replace(PARKS, park=False) in running().feed(event)


def test_a_node_reports_how_many_workers_are_parked_and_starts_the_next_cycle() -> None:
    play = running(a_job=in_process())
    play.feed(mail(STOP))
    assert play.feed(events.WorkersGone(C0, 33, (0,))) == [parks()]
    again = replace(run(C1), fresh=False)
    assert play.feed(mail(again)) == [remember(C1), Start(again)]
    play.feed(mail(replace(STOP, cycle=C1)))
    assert play.feed(events.WorkersGone(C1, 33)) == [stopped(C1, 33)]


def test_the_fence_never_parks() -> None:
    play = running(a_job=in_process())
    play.lease = False
    assert [each for each in play.wait(6.0) if isinstance(each, StopWorkers)] == [StopWorkers(C0, 0.0)]


def test_the_fence_kills_at_once_workers_that_were_to_park() -> None:
    play = running(a_job=in_process())
    assert PARKS in play.feed(mail(STOP))
    play.lease = False
    assert [each for each in play.wait(6.0) if isinstance(each, StopWorkers)] == [StopWorkers(C0, 0.0)]


def test_a_node_that_closes_parks_nothing() -> None:
    play = running(a_job=in_process())
    assert StopWorkers(C0, TIMEOUTS.stop_grace) in play.feed(mail(messages.Close(0, SUCCESS)))


def test_a_node_that_closes_while_its_workers_park_kills_them_though_its_own_grace_is_longer() -> None:
    play = running(a_job=in_process())
    assert PARKS in play.feed(mail(STOP))
    assert StopWorkers(C0, TIMEOUTS.stop_grace) in play.feed(mail(messages.Close(0, SUCCESS)))


def test_a_node_that_closes_does_not_wait_for_parked_workers() -> None:
    play = running(a_job=in_process())
    play.feed(mail(STOP))
    play.feed(events.WorkersGone(C0, 33, (0,)))
    assert play.feed(mail(messages.Close(0, SUCCESS)))[-2:] == [goodbye(SUCCESS), Leave(0, SUCCESS, "over")]


def test_workers_that_cannot_be_started_are_not_parked() -> None:
    play = running(a_job=in_process())
    assert StopWorkers(C0, 0.0) in play.feed(events.CannotStart(C0, "no space"))


def test_the_agent_waits_for_the_time_to_park_before_it_leaves_its_workers_to_the_daemon() -> None:
    play = running(a_job=in_process())
    play.feed(mail(STOP))
    bound = TIMEOUTS.quiesce + KILL_BOUND + ABANDON_MARGIN
    assert not [each for each in play.wait(bound - 1.0) if isinstance(each, Leave)]
    assert [each for each in play.wait(2.0) if isinstance(each, Leave)]


# -- progress


@pytest.mark.parametrize("event", [events.WorkerProgressed(C0), events.Beat(0, "ready")], ids=["socket", "ready"])
def test_the_first_progress_is_kept_for_the_nodes_next_agent_and_reported(event: events.AgentEvent) -> None:
    play = running(a_job=in_process())
    assert play.feed(event) == [remember(C0, progressed=C0)]
    assert play.feed(event) == []
    play.feed(mail(STOP))
    assert play.feed(events.WorkersGone(C0, 33, (0,))) == [parks(progressed=True)]
    assert play.connect() == [register(2, None, memory_of(C0, progressed=C0))]


def test_a_heartbeat_is_no_progress_nor_is_anything_of_another_cycle_or_where_it_makes_no_difference() -> None:
    play = running(a_job=in_process())
    assert play.feed(events.Beat(0, "beat"), events.WorkerProgressed(C1)) == []
    assert running().feed(events.WorkerProgressed(C0)) == []


# -- the completion barrier


def test_returned_workers_are_reported_also_to_the_next_coordinator_and_released() -> None:
    play = running(a_job=in_process())
    assert play.feed(events.WorkersReturned(C0, 1)) == [Send(messages.WorkersCompleted(0, 1, 1, C0, 1))]
    answer = play.connect()[-1]
    assert isinstance(answer, Send) and isinstance(answer.message, messages.Register)
    assert answer.message.completed == 1
    assert play.feed(mail(messages.Complete(0, C0, 1))) == [ReleaseWorkers(C0, 1)]


def test_nothing_is_released_of_another_cycle_or_while_workers_are_stopped() -> None:
    play = running(a_job=in_process())
    assert play.feed(mail(messages.Complete(0, C1, 1))) == []
    play.feed(mail(STOP))
    assert play.feed(mail(messages.Complete(0, C0, 1))) == []
    assert play.feed(events.WorkersReturned(C0, 1)) == []


def test_a_worker_that_raises_and_is_ignored_by_a_rule_is_ended() -> None:
    ignores = Rule(Match(exceptions=("ValueError",)), Response.IGNORE)
    play = running(a_job=in_process(ignores))
    assert play.feed(events.WorkersExited(C0, (RAISES,))) == [EndWorkers(C0, (0,))]
