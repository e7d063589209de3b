"""Tests the policy's rules for one node: checks before a cycle, hangs, ignored failures, signals and graces."""

from __future__ import annotations

from dataclasses import replace

from tests.core.agent.play import Play, mail, memory_of, remember, run, standby, stopped
from tests.core.machines import BEAT, C0, C1, TIMEOUTS, job

from ft_supervisor.core.protocol import events, messages, orders
from ft_supervisor.core.protocol.actions import Leave, Send, Start, StopWorkers, Tell
from ft_supervisor.core.protocol.events import (
    CannotStart,
    CheckAnswered,
    Disconnected,
    PolicyDiffers,
    TurnedUnhealthy,
    WorkersExited,
)
from ft_supervisor.core.protocol.model import Failure, Job, Memory, Outcome, Problem, Verdict
from ft_supervisor.core.protocol.orders import AgentState
from ft_supervisor.core.protocol.settings import Check, Health, Interruption, Match, Response, Rule, When

BEFORE = Health(checks=(Check("net", ("ping",), when=(When.BEFORE_CYCLE,)),), min_free=None)
FULL = Problem("disk", "health check disk failed: full")
IGNORES = (Rule(Match(exit_codes=(3,)), Response.IGNORE), Rule())


def a_job(**settings: object) -> Job:
    plain = job()
    return replace(plain, settings=replace(plain.settings, **settings), per_node=2)  # type: ignore[arg-type]


def active(the_job: Job) -> Play:
    """Return a node of this job whose workers run."""
    play = Play(a_job=the_job)
    play.connect()
    play.feed(standby(None), mail(run()))
    return play


# -- health


def test_before_a_cycle_the_daemon_is_asked() -> None:
    play = Play(a_job=a_job(health=BEFORE))
    play.connect()
    play.feed(standby(None))
    assert play.feed(mail(run())) == [remember(C0), Tell(orders.Check("0.0"))]
    assert play.wait(3.0) == []
    assert play.feed(CheckAnswered("0.0", None)) == [Start(run())]


def test_a_node_that_fails_a_check_reports_it_and_runs_nothing() -> None:
    play = Play(a_job=a_job(health=BEFORE))
    play.connect()
    play.feed(standby(None), mail(run()))
    problem = Problem("net", "health check net failed: exit code 1")
    assert play.feed(CheckAnswered("0.0", problem)) == [
        Tell(orders.Remember(memory_of(C0, unhealthy=problem))),
        Send(messages.Unhealthy(0, 1, 1, problem)),
        stopped(),
    ]
    assert play.machine.running is None


def test_a_stop_while_checks_run() -> None:
    play = Play(a_job=a_job(health=BEFORE))
    play.connect()
    play.feed(standby(None), mail(run()))
    assert play.feed(mail(messages.Stop(0, C0, "0-2", 2.0))) == [
        Send(messages.Stopping(0, 1, 1, C0)),
        StopWorkers(C0, 2.0),
    ]
    assert play.feed(CheckAnswered("0.0", None)) == []  # too late
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]


def test_an_answer_for_another_cycle_starts_nothing() -> None:
    play = Play(a_job=a_job(health=BEFORE))
    play.connect()
    play.feed(standby(None), mail(run()))
    assert play.feed(CheckAnswered("0.7", None)) == []


def test_a_standby_that_turns_unhealthy_reports_it() -> None:
    play = Play()
    play.connect()
    play.feed(standby(None))
    assert play.feed(TurnedUnhealthy(FULL)) == [
        Tell(orders.Remember(memory_of(unhealthy=FULL))),
        Send(messages.Unhealthy(0, 1, 1, FULL)),
    ]
    later = Problem("gpu", "health check gpu failed: 7 of 8 GPUs")
    assert play.feed(TurnedUnhealthy(later)) == [Send(messages.Unhealthy(0, 1, 1, FULL))]  # the first one counts


READ_ONLY = "[Errno 30] Read-only file system: '/l/workers'"
CANNOT = Problem("workers", f"cannot start workers: {READ_ONLY}")


def test_a_node_that_cannot_start_its_workers_is_unhealthy_and_they_have_not_failed() -> None:
    play = active(a_job())
    assert play.feed(CannotStart(C0, READ_ONLY)) == [
        Tell(orders.Remember(memory_of(C0, unhealthy=CANNOT))),
        Send(messages.Unhealthy(0, 1, 1, CANNOT)),
        StopWorkers(C0, 0.0),  # some may run
    ]
    assert play.feed(mail(messages.Stop(0, C0, "0-2", 2.0))) == [Send(messages.Stopping(0, 1, 1, C0))]
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.machine.state is AgentState.STANDBY


def test_a_node_that_cannot_start_its_workers_does_not_try_it_again() -> None:
    """The coordinator may not have received the message, and may begin the next cycle with the node."""
    play = active(a_job())
    play.feed(CannotStart(C0, READ_ONLY))
    assert play.feed(events.WorkersGone(C0, 9)) == [stopped()]
    assert play.feed(mail(run(C1))) == [
        Tell(orders.Remember(memory_of(C1, unhealthy=CANNOT))),
        Send(messages.Unhealthy(0, 1, 1, CANNOT)),
        stopped(C1),
    ]
    assert play.machine.running is None


def test_a_node_that_could_not_start_a_former_cycle_is_unhealthy_as_well() -> None:
    play = active(a_job())
    play.feed(mail(messages.Stop(0, C0, "0-2", 2.0)), events.WorkersGone(C0, 9))
    assert Send(messages.Unhealthy(0, 1, 1, CANNOT)) in play.feed(CannotStart(C0, READ_ONLY))


# -- rules


def test_an_ignored_failure_leaves_the_other_workers_alone() -> None:
    play = active(a_job(rules=IGNORES))
    assert play.feed(WorkersExited(C0, (Failure(1, 0, exit_code=3),))) == []
    assert play.wait(2.0) == []
    done = play.feed(WorkersExited(C0, ()))
    assert Send(messages.WorkersSucceeded(0, 1, 1, C0)) in done


def test_of_two_failures_the_one_that_is_not_ignored_counts() -> None:
    play = active(a_job(rules=IGNORES))
    bad = Failure(1, 1, exit_code=4)
    done = play.feed(WorkersExited(C0, (Failure(1, 0, exit_code=3), bad)))
    assert Send(messages.WorkersFailed(0, 1, 1, C0, (bad,))) in done
    assert StopWorkers(C0, TIMEOUTS.restart_grace) in done


# -- the end


def test_an_interrupted_job_has_a_signal_and_a_grace_of_its_own() -> None:
    play = active(a_job(interruption=Interruption(signal="SIGUSR1", grace=77.0)))
    verdict = Verdict(Outcome.INTERRUPTED, "Slurm's time limit in 100 s")
    assert StopWorkers(C0, 77.0, "SIGUSR1") in play.feed(mail(messages.Close(0, verdict)))


def test_a_failed_job_has_the_usual_signal_and_grace() -> None:
    play = active(a_job(interruption=Interruption(signal="SIGUSR1", grace=77.0)))
    verdict = Verdict(Outcome.FAILED, "over")
    assert StopWorkers(C0, TIMEOUTS.stop_grace, "SIGTERM") in play.feed(mail(messages.Close(0, verdict)))


DIFFERS = "the configuration here (sha256 a) is not n0's (b): timeouts.join: 600 here, 60 there"


def test_another_configuration_is_refused() -> None:
    play = Play()
    assert play.feed(PolicyDiffers(DIFFERS)) == [Leave(2, None, DIFFERS)]


def test_a_store_of_another_configuration_that_anyone_may_have_made_is_refused_when_no_other_answers() -> None:
    play = Play()
    assert play.feed(PolicyDiffers(DIFFERS, certain=False)) == []
    early = play.wait(TIMEOUTS.takeover - BEAT)
    assert not [deed for deed in early if isinstance(deed, Leave)]
    assert play.feed(PolicyDiffers("again", certain=False)) == []
    assert Leave(2, None, DIFFERS) in play.wait(BEAT)


def test_a_store_of_another_configuration_is_a_strangers_once_one_with_ours_has_answered() -> None:
    play = Play()
    play.feed(PolicyDiffers(DIFFERS, certain=False))
    play.wait(TIMEOUTS.takeover / 2)
    play.connect()
    play.feed(standby(None))
    play.feed(Disconnected("gone", silent=False))
    play.connection = 0
    for certain in (False, True):
        assert play.feed(PolicyDiffers(DIFFERS, certain)) == []
    assert not [deed for deed in play.wait(TIMEOUTS.takeover - BEAT) if isinstance(deed, Leave)]


def test_an_unhealthy_node_stays_so() -> None:
    assert Memory(unhealthy=FULL).newer(Memory(promise=3)) == Memory(promise=3, unhealthy=FULL)
