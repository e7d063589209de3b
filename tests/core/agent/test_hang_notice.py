"""Tests a node's part in a hang: it notices, gives evidence, and stops the workers itself if no coordinator does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.agent.play import EPOCH, Play, mail, memory_of, run, standby
from tests.core.machines import BEAT, C0, C1, TIMEOUTS, job

from ft_supervisor.core.agent.hang_notice import OWN, PATIENCE
from ft_supervisor.core.protocol import messages, orders
from ft_supervisor.core.protocol.actions import GatherEvidence, Send, StopWorkers, Tell
from ft_supervisor.core.protocol.codec import MAX_BYTES, encode
from ft_supervisor.core.protocol.events import Beat, Disconnected, EvidenceTaken, WorkersExited
from ft_supervisor.core.protocol.evidence import Collective, Digest, EvidenceSource
from ft_supervisor.core.protocol.model import Failure, Job
from ft_supervisor.core.protocol.settings import Cause, Hang, Match, Response, Rule

WANTED = messages.TakeEvidence(0, C0, 1)
DIGESTS = (Digest(0, "ab", "train.py:7 in main", EvidenceSource.PY_SPY), Digest(1, "cd"))
TAKEN = EvidenceTaken(C0, 1, DIGESTS, ((0, (2,)),), ((0, "step 7"),))
OURS = replace(TAKEN, number=OWN)
IGNORING = (Rule(Match(causes=(Cause.HANG,)), Response.IGNORE), Rule())


def a_job(**settings: object) -> Job:
    plain = job()
    settings = {"hang": Hang(after=10.0, first=30.0), **settings}
    return replace(plain, settings=replace(plain.settings, **settings), per_node=2)  # type: ignore[arg-type]


def active(the_job: Job | None = None) -> Play:
    play = Play(a_job=the_job or a_job())
    play.connect()
    play.feed(standby(None), mail(run()))
    return play


def hung(play: Play, local_rank: int = 0, silent: float = 10.0) -> Failure:
    """What is noticed just now."""
    text = f"no heartbeat for {silent:g} s" + ("" if silent == 10.0 else " after its start")
    return Failure(
        1, local_rank, message=text, time=EPOCH + play.now, cause=Cause.HANG, silent=silent, rank=2 + local_rank
    )


def notice(*failures: Failure) -> Send:
    return Send(messages.HangNoticed(0, 1, 1, C0, failures))


def silenced(play: Play) -> Failure:
    """Let worker 0 fall silent; return what is noticed."""
    play.feed(Beat(0, "beat"), Beat(1, "beat"))
    play.wait(10.0 - BEAT)
    play.feed(Beat(1, "beat"))
    done, failure = play.wait(BEAT), hung(play)
    assert done == [notice(failure)]
    return failure


def sent(done: list[object], kind: type) -> list[object]:
    return [deed.message for deed in done if isinstance(deed, Send) and isinstance(deed.message, kind)]


def test_a_worker_that_goes_silent_is_told_of_and_runs_on() -> None:
    play = active()
    silenced(play)
    assert play.feed(mail(WANTED)) == [GatherEvidence(C0, 1)]
    (evidence,) = sent(play.feed(TAKEN), messages.Evidence)
    assert evidence == messages.Evidence(
        0, 1, 1, C0, 1, DIGESTS, ((0, (2,)),), ((0, "step 7"),), ((0, 10.0), (1, BEAT))
    )
    assert play.machine.running == C0
    stop = messages.Stop(0, C0, "0-2", TIMEOUTS.restart_grace)
    assert StopWorkers(C0, TIMEOUTS.restart_grace) in play.feed(mail(stop))


def test_a_node_where_nothing_hangs_gives_evidence_too() -> None:
    play = active()
    play.feed(mail(WANTED))
    (evidence,) = sent(play.feed(TAKEN), messages.Evidence)
    assert isinstance(evidence, messages.Evidence)
    assert evidence.digests == DIGESTS
    assert not sent(play.wait(5.0), messages.HangNoticed)


def test_evidence_is_taken_once_and_told_as_often_as_it_is_wanted() -> None:
    play = active()
    assert play.feed(mail(WANTED), mail(WANTED)) == [GatherEvidence(C0, 1)]
    first = play.feed(TAKEN)
    assert play.feed(mail(WANTED)) == first
    assert play.feed(mail(replace(WANTED, number=2))) == [GatherEvidence(C0, 2)]
    assert play.feed(TAKEN) == []  # of the round before
    assert len(sent(play.feed(replace(TAKEN, number=2)), messages.Evidence)) == 1


@pytest.mark.parametrize("wanted", [replace(WANTED, term=1), replace(WANTED, cycle=C1)])
def test_no_evidence_is_taken_for_another_cycle_or_term(wanted: messages.TakeEvidence) -> None:
    assert active().feed(mail(wanted)) == []


def test_a_node_that_does_not_train_takes_no_evidence() -> None:
    play = Play(a_job=a_job())
    play.connect()
    play.feed(standby(None))
    assert play.feed(mail(WANTED)) == []
    play = active()
    play.feed(mail(messages.Stop(0, C0, "0-2", 2.0)))
    assert play.feed(mail(WANTED), TAKEN) == []


def test_without_an_answer_the_agent_takes_evidence_itself_and_reports_a_failure() -> None:
    play = active()
    play.feed(Beat(1, "beat", 0.0))
    failure = silenced_first(play)
    assert play.wait(PATIENCE - BEAT) == []
    assert play.wait(BEAT) == [GatherEvidence(C0, OWN)]
    assert play.wait(3.0) == []  # it takes a while
    failure = replace(failure, rules=(2,), last_lines="step 7")
    assert play.feed(OURS) == [
        Tell(orders.Remember(memory_of(C0, failures=(failure,)))),
        Send(messages.WorkersFailed(0, 1, 1, C0, (failure,))),
        StopWorkers(C0, TIMEOUTS.restart_grace),
    ]


def silenced_first(play: Play) -> Failure:
    """Let worker 0 say nothing at all from its start; return what is noticed."""
    assert play.wait(30.0 - BEAT) == []
    done, failure = play.wait(BEAT), hung(play, silent=30.0)
    assert done == [notice(failure)]
    return failure


def test_without_a_stop_the_agent_reports_a_failure_with_the_evidence_that_it_has() -> None:
    play = active()
    play.feed(Beat(1, "beat", 0.0))
    failure = replace(silenced_first(play), rules=(2,), last_lines="step 7")
    play.feed(mail(WANTED), TAKEN)
    assert play.wait(PATIENCE - BEAT) == []
    assert Send(messages.WorkersFailed(0, 1, 1, C0, (failure,))) in play.wait(BEAT)


def test_the_next_coordinator_learns_of_it_from_the_register() -> None:
    play = active()
    failure = silenced(play)
    play.feed(Disconnected("gone", False))
    (register,) = sent(play.connect(), messages.Register)
    assert isinstance(register, messages.Register)
    assert register.hangs == (failure,)
    play.feed(mail(messages.Continue(0, C0, play.machine.memory.ledger, 0.0)), mail(WANTED))
    play.feed(mail(messages.Stop(0, C0, "0-2", 2.0)))
    (register,) = sent(play.connect(), messages.Register)
    assert isinstance(register, messages.Register)
    assert register.hangs == ()


def test_a_worker_that_exits_meanwhile_has_failed_at_once() -> None:
    play = active()
    silenced(play)
    died = Failure(1, 1, exit_code=3)
    done = play.feed(WorkersExited(C0, (died,)))
    assert Send(messages.WorkersFailed(0, 1, 1, C0, (died,))) in done
    assert StopWorkers(C0, TIMEOUTS.restart_grace) in done
    assert play.feed(TAKEN, OURS) == []


def test_the_fence_ends_the_workers_meanwhile() -> None:
    play = active()
    silenced(play)
    play.lease = False
    done = play.wait(TIMEOUTS.fence + BEAT)
    assert any(isinstance(deed, StopWorkers) and deed.grace == 0.0 for deed in done)
    assert not [deed for deed in play.wait(PATIENCE) if isinstance(deed, GatherEvidence)]


def test_a_worker_that_sends_no_heartbeat_at_all_hangs() -> None:
    play = active()
    assert play.wait(30.0 - BEAT) == []
    assert play.wait(BEAT) == [notice(hung(play, 0, 30.0), hung(play, 1, 30.0))]


def test_a_worker_that_falls_silent_later_is_not_told_of() -> None:
    play = active()
    silenced(play)
    assert not sent(play.wait(PATIENCE - BEAT), messages.HangNoticed)


def test_a_worker_that_has_exited_does_not_hang() -> None:
    play = active()
    play.feed(Beat(0, "stopping"))
    assert play.wait(30.0) == [notice(hung(play, 1, 30.0))]


def test_without_a_hang_setting_missing_heartbeats_do_not_matter() -> None:
    play = active(a_job(hang=None))
    play.feed(Beat(0, "beat"))
    assert play.wait(100.0) == []


def test_an_ignored_hang_is_looked_at_and_left_alone_and_the_others_are_looked_at() -> None:
    play = active(a_job(rules=IGNORING))
    play.feed(Beat(0, "beat"), Beat(1, "beat"))
    play.wait(2.0)
    play.feed(Beat(1, "beat"))
    assert len(sent(play.wait(8.0), messages.HangNoticed)) == 1
    play.feed(mail(WANTED))
    assert len(play.feed(TAKEN)) == 1
    later = play.wait(4.0)
    assert [message.failures[0].local_rank for message in sent(later, messages.HangNoticed)] == [1]  # type: ignore[attr-defined]
    play.feed(mail(replace(WANTED, number=2)), replace(TAKEN, number=2))
    assert play.wait(100.0) == []


def test_a_hang_that_the_agent_has_looked_at_itself_is_ignored_too() -> None:
    play = active(a_job(rules=IGNORING))
    assert play.wait(30.0)
    assert play.wait(PATIENCE) == [GatherEvidence(C0, OWN)]
    assert play.feed(OURS) == []
    assert play.wait(100.0) == []


def test_time_in_which_the_agent_stood_still_is_no_silence_of_its_workers() -> None:
    play = active(a_job(hang=Hang(after=10.0, first=10.0)))
    play.wait(1.0)
    play.now += 3.0
    assert play.wait(7.0) == []  # 11 seconds after their start


@pytest.mark.parametrize("workers", [8, 16, 64, 1000])
def test_evidence_of_many_workers_fits_into_one_message(workers: int) -> None:
    rank = 400 * "x"
    collectives = tuple(Collective(str(n), 1, rank[:100], rank[:100]) for n in range(4))
    digests = tuple(Digest(n, "ab", rank, EvidenceSource.PY_SPY, collectives, rank) for n in range(workers))
    assert all(len(encode(digest)) <= 2048 for digest in digests)
    lines = tuple((n, 2000 * "\x80") for n in range(workers))
    play = active(replace(a_job(), per_node=workers))
    play.feed(mail(WANTED))
    (evidence,) = sent(play.feed(EvidenceTaken(C0, 1, digests, (), lines)), messages.Evidence)
    assert len(encode(evidence)) <= MAX_BYTES
