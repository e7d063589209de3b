"""Tests when an agent lets its workers park, and what it tells its coordinator of parked and returned workers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.agent.play import (
    STOP,
    SUCCESS,
    Play,
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
from tests.core.machines import C0, C1, C2, TIMEOUTS, in_process

from ft_supervisor.core.agent.lifecycle import ABANDON_MARGIN
from ft_supervisor.core.protocol import events, messages
from ft_supervisor.core.protocol.actions import DropParked, EndWorkers, Leave, ReleaseWorkers, Send, Start, StopWorkers
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger
from ft_supervisor.core.protocol.model import KILL_BOUND, Cycle, Failure, Problem
from ft_supervisor.core.protocol.settings import Match, Response, Rule

RAISES = Failure(1, 0, exception="ValueError", lives=True)
PARKS = StopWorkers(C0, TIMEOUTS.restart_grace, park=True)


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


def test_the_fence_stops_nothing_any_more_once_all_workers_are_known_to_be_gone() -> None:
    play = running(a_job=in_process())
    play.feed(mail(STOP))
    play.now += 6.0
    assert play.feed(events.WorkersGone(C0, 33, (0,))) == [parks()]
    assert play.machine.running is None


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


# -- fresh cycles elsewhere

FRESH = replace(EMPTY, fresh=C1)


def parked_standby() -> Play:
    """Return a node whose workers are parked."""
    play = running(a_job=in_process())
    play.feed(mail(STOP))
    play.feed(events.WorkersGone(C0, 33, (0,)))
    return play


def test_a_standby_drops_its_parked_workers_once_it_learns_of_a_fresh_cycle_of_others() -> None:
    play = parked_standby()
    told = mail(messages.Standby(0, C1, FRESH, 0.0))
    assert play.feed(told) == [remember(C0, ledger=FRESH), DropParked()]
    assert play.feed(told) == []
    assert play.feed(mail(replace(STOP, cycle=C1)))[-1] == stopped(C1, 33)


def test_a_node_that_comes_back_learns_of_a_fresh_cycle_with_the_orders_for_a_later_one() -> None:
    play = parked_standby()
    later = replace(run(C2, ledger=FRESH), fresh=False)
    known = remember(C0, ledger=FRESH)
    assert play.feed(mail(later)) == [known, DropParked(), remember(C2, ledger=FRESH), Start(later)]


def test_workers_that_run_when_a_fresh_cycle_is_told_are_not_parked_any_more() -> None:
    play = running(a_job=in_process())
    assert DropParked() in play.feed(mail(messages.Standby(0, C1, FRESH, 0.0)))


def test_an_older_ledger_takes_no_fresh_cycle_back() -> None:
    play = parked_standby()
    play.feed(mail(messages.Standby(0, C1, FRESH, 0.0)))
    more = Ledger(7, 1)
    assert play.feed(mail(messages.Standby(0, C1, more, 0.0))) == [remember(C0, ledger=replace(more, fresh=C1))]


def test_a_fresh_cycle_of_a_term_to_come_is_refused() -> None:
    play = parked_standby()
    hostile = replace(EMPTY, fresh=Cycle(1, 1))
    assert play.feed(mail(messages.Standby(0, C1, hostile, 0.0))) == []


@pytest.mark.parametrize(
    ("event", "runs"),
    [
        (mail(messages.Standby(0, C0, Ledger(1, 1, excluded="0,2"), 0.0)), True),
        (mail(messages.Standby(0, C0, Ledger(2, 2, excluded="0-2"), 0.0)), False),
        (events.TurnedUnhealthy(Problem("disk", "full")), False),
        (mail(run(C1)), False),
    ],
    ids=["others are excluded", "excluded", "unhealthy", "active"],
)
def test_only_a_standby_that_may_be_chosen_runs_the_script_ahead(event: events.AgentEvent, runs: bool) -> None:
    play = Play(a_job=in_process())
    play.connect()
    before = play.machine.spare
    play.feed(standby(C0))
    waits = play.machine.spare
    play.feed(event)
    assert (before, waits, play.machine.spare) == (False, True, runs)


def test_a_node_between_two_cycles_of_its_own_is_no_spare() -> None:
    play = running(a_job=in_process())
    play.feed(mail(STOP), events.WorkersGone(C0, 33))
    between = play.machine.spare
    play.feed(standby(C1))
    assert (between, play.machine.spare) == (False, True)


# -- progress


@pytest.mark.parametrize("event", [events.WorkerProgressed(C0), events.Beat(0, "ready")], ids=["socket", "ready"])
def test_the_first_progress_is_kept_for_the_nodes_next_agent_and_reported(event: events.AgentEvent) -> None:
    play = running(a_job=in_process())
    assert play.feed(event)[0] == remember(C0, progressed=C0)
    assert play.feed(event) == []
    play.feed(mail(STOP))
    assert play.feed(events.WorkersGone(C0, 33, (0,))) == [parks(progressed=True)]
    assert play.connect() == [register(2, None, memory_of(C0, progressed=C0))]


def test_a_heartbeat_is_no_progress_nor_is_anything_of_another_cycle_or_where_it_makes_no_difference() -> None:
    play = running(a_job=in_process())
    (sign,) = play.feed(events.Beat(0, "beat"), events.WorkerProgressed(C1))
    assert isinstance(sign, Send) and isinstance(sign.message, messages.Training)
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
    play = running(a_job=in_process(4, ignores))
    assert play.feed(events.WorkersExited(C0, (RAISES,))) == [EndWorkers(C0, (0,))]
