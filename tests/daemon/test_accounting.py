"""The job's end in its comment: by the daemon whose coordinator has closed the job, bounded, once, before it leaves."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.daemon.daemon_harness import Daemon, StartDaemon
from tests.daemon.test_daemon_coordinators import AFTER_CLOSED
from tests.ft_slurm.fake_comment import FakeComment

from ft_slurm.errors import JobOver, NoCommands, Unanswered
from ft_supervisor.daemon import accounting
from ft_supervisor.run_folder import verdict_file

JOB_ID = 7
CLOSES = """
from ft_supervisor.core.protocol.model import Again
from ft_supervisor.core.protocol.summary import Summary
closed = VerdictDecided(Verdict(Outcome.SUCCESS, "trained"), "", Summary(3, 1, 0, ("n3",), 42.2))
link.send(closed)
link.send(closed)
done(Outcome.SUCCESS, "trained")
"""
TEXT = "success, 3 cycles, 1 node replaced (n3), 42 s lost"
FIRST_JOB = 'import os; os.environ["PATH"] = "{bin}:/usr/bin:/bin"; from ft_supervisor.daemon import accounting; '


@pytest.fixture
def slurm(tmp_path: Path) -> FakeComment:
    return FakeComment(tmp_path / "slurm", JOB_ID)


def closing(start_daemon: StartDaemon, slurm: FakeComment, before: str = "") -> Daemon:
    before = FIRST_JOB.format(bin=slurm.bin) + before
    return start_daemon(AFTER_CLOSED, CLOSES, infra_rank=0, batch_host="n0", before=before)


def test_it_is_written_beside_what_the_user_wrote(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    slurm.comment = "my own words"
    daemon = closing(start_daemon, slurm)
    assert daemon.exit_code() == 0
    assert slurm.comment == f"my own words [ft: {TEXT}]"
    assert slurm.updates() == 1
    said = daemon.wait_for("event=comment_written")
    assert daemon.lines.index(said) > daemon.lines.index(daemon.wait_for("event=leaving"))


def test_what_this_run_has_said_already_stays(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    slurm.comment = "[ft: success, 4 cycles, coordinator replaced]"
    assert closing(start_daemon, slurm).exit_code() == 0
    assert slurm.comment == "[ft: success, 4 cycles, coordinator replaced]"


def test_the_policy_may_forbid_it(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    before = (
        "from dataclasses import replace; from ft_supervisor.core.protocol.settings import Accounting; "
        "supervise = shell.supervise; shell.supervise = lambda job, *a, **k: supervise("
        "replace(job, settings=replace(job.settings, accounting=Accounting(comment=False))), *a, **k)"
    )
    daemon = closing(start_daemon, slurm, before)
    assert daemon.exit_code() == 0
    assert slurm.updates() == 0
    assert not any("comment" in line for line in daemon.lines)


@pytest.mark.parametrize(
    ("state", "answer", "said"),
    [
        ("away", "", "warning event=comment_not_written .*Unable to contact slurm controller"),
        ("refused", "Access/permission denied for job 7\n", "warning event=comment_not_written .*denied"),
        ("refused", "Job has already finished for job 7\n", "info event=comment_not_written .*already finished"),
    ],
)
def test_what_slurm_does_not_take_is_told_once(
    start_daemon: StartDaemon, slurm: FakeComment, state: str, answer: str, said: str
) -> None:
    slurm.says(state, answer)
    daemon = closing(start_daemon, slurm)
    assert daemon.exit_code() == 0
    (line,) = (line for line in daemon.lines if "comment" in line)
    assert re.search(said, line)
    assert slurm.comment == "(null)"


def test_a_slurm_that_hangs_is_waited_for_no_longer_than_the_bound(
    start_daemon: StartDaemon, slurm: FakeComment
) -> None:
    slurm.says("hang")
    daemon = closing(start_daemon, slurm, "accounting.BOUND = 0.2")
    daemon.wait_for("event=leaving")
    began = time.monotonic()
    assert daemon.exit_code() == 0
    assert time.monotonic() - began < 15
    assert "has not answered within" in daemon.wait_for("event=comment_not_written")


def test_too_long_a_comment_is_told(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    slurm.comment = "x" * 1024
    daemon = closing(start_daemon, slurm)
    assert daemon.exit_code() == 0
    assert "leaves no room" in daemon.wait_for("event=comment_not_written")
    assert slurm.comment == "x" * 1024


def test_without_commands_launch_is_left_to_do_it(start_daemon: StartDaemon, tmp_path: Path) -> None:
    before = f'import os; os.environ["PATH"] = "{tmp_path}"'
    daemon = start_daemon(AFTER_CLOSED, CLOSES, infra_rank=0, batch_host="n0", before=before)
    assert daemon.exit_code() == 0
    assert " info event=comment_not_written " in daemon.wait_for("there is no scontrol in PATH")


def test_a_daemon_whose_coordinator_died_writes_the_summary_too(start_daemon: StartDaemon, slurm: FakeComment) -> None:
    coordinator = CLOSES.replace('done(Outcome.SUCCESS, "trained")', "os.kill(os.getpid(), signal.SIGKILL)")
    agent = """
while not os.path.exists(begin.job.run_folder + "/verdict.json"):
    link.send(Alive("closing"))
    time.sleep(0.02)
done(Outcome.SUCCESS, "trained")
"""
    before = FIRST_JOB.format(bin=slurm.bin)
    daemon = start_daemon(agent, coordinator, infra_rank=0, batch_host="n0", before=before)
    assert daemon.exit_code() == 0
    for folder in (daemon.job.run_folder, daemon.job.local_folder):
        content = verdict_file.read_all(Path(folder))
        assert content is not None and content.summary == TEXT
    assert slurm.comment == f"[ft: {TEXT}]"


def test_what_can_go_wrong_has_its_own_errors(slurm: FakeComment, tmp_path: Path) -> None:
    environ = {"PATH": f"{slurm.bin}:/usr/bin:/bin"}
    accounting.write(JOB_ID, "one", "one", environ)
    assert slurm.comment == "[ft: one]"
    slurm.says("refused", "Job has already finished for job 7\n")
    with pytest.raises(JobOver):
        accounting.write(JOB_ID, "two", "two", environ)
    slurm.says("away")
    with pytest.raises(Unanswered):
        accounting.write(JOB_ID, "two", "two", environ)
    with pytest.raises(NoCommands):
        accounting.write(JOB_ID, "two", "two", {"PATH": str(tmp_path)})
