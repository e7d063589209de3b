"""A job with --requeue=expedite ends for good before its verdict is final, by the daemon whose coordinator closed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.daemon.daemon_harness import Daemon, StartDaemon
from tests.daemon.test_accounting import CLOSES, FIRST_JOB, JOB_ID
from tests.daemon.test_daemon_coordinators import AFTER_CLOSED
from tests.ft_slurm.fake_comment import FakeComment

from ft_slurm.errors import SlurmError
from ft_supervisor.core.protocol.model import EXIT_CODES, NEVER_AGAIN
from ft_supervisor.daemon import expedited

ENDS = {"SUCCESS": 0, "FAILED": 1, "INTERRUPTED": 75}


@pytest.fixture
def slurm(tmp_path: Path) -> FakeComment:
    return FakeComment(tmp_path / "slurm", JOB_ID, release="26.05", case="expedited")


def closing(start_daemon: StartDaemon, slurm: FakeComment, outcome: str = "FAILED", lost: str = "") -> Daemon:
    coordinator = CLOSES.replace("Outcome.SUCCESS", f"Outcome.{outcome}").replace(
        '"trained"), "",', f'"trained"), "{lost}",'
    )
    agent, before = AFTER_CLOSED.replace("SUCCESS", outcome), FIRST_JOB.format(bin=slurm.bin)
    return start_daemon(agent, coordinator, infra_rank=0, batch_host="n1" if lost else "n0", before=before)


@pytest.mark.parametrize("outcome", ENDS)
def test_final_verdicts_end_the_job(start_daemon: StartDaemon, slurm: FakeComment, outcome: str) -> None:
    """Where trying again may help, Slurm may."""
    daemon = closing(start_daemon, slurm, outcome)
    assert daemon.exit_code() == ENDS[outcome]
    again = outcome == "INTERRUPTED"
    assert slurm.requeue == again
    assert any("event=requeue_forbidden" in line for line in daemon.lines) != again


def test_it_is_done_before_the_job_of_a_dead_batch_host_is_completed(
    start_daemon: StartDaemon, slurm: FakeComment
) -> None:
    daemon = closing(start_daemon, slurm, lost="1")
    waiting = daemon.wait_for("event=waiting_to_complete_job")
    daemon.process.terminate()
    assert daemon.exit_code() == 1
    assert not slurm.requeue
    assert daemon.lines.index(daemon.wait_for("event=requeue_forbidden")) < daemon.lines.index(waiting)


def test_what_slurm_refuses_is_told_with_the_command_that_does_it(
    start_daemon: StartDaemon, slurm: FakeComment
) -> None:
    slurm.says("refused", "Access/permission denied for job 7\n")
    daemon = closing(start_daemon, slurm)
    assert daemon.exit_code() == 1
    said = daemon.wait_for("event=requeue_not_forbidden")
    assert " warning " in said and "permission denied" in said and "scontrol update jobid=7 requeue=0" in said


def test_a_job_that_slurm_has_ended_itself_costs_no_line(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    slurm.says("refused", "Job has already finished for job 7\n")
    daemon = closing(start_daemon, slurm)
    assert daemon.exit_code() == 1
    assert slurm.updates("requeue") == 1
    assert not any("requeue" in line for line in daemon.lines)


@pytest.mark.parametrize("code", [*EXIT_CODES.values(), NEVER_AGAIN])
def test_codes(slurm: FakeComment, code: int) -> None:
    told = expedited.forbid(JOB_ID, 0, code, {"PATH": f"{slurm.bin}:/usr/bin:/bin"})
    assert (told, slurm.requeue) == ((False, True) if code == 75 else (True, False))


def test_a_slurm_that_hangs(slurm: FakeComment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expedited, "BOUND", 0.2)
    slurm.says("hang")
    with pytest.raises(SlurmError, match="has not answered within"):
        expedited.forbid(JOB_ID, 0, 1, {"PATH": f"{slurm.bin}:/usr/bin:/bin"})
