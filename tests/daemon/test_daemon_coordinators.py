"""What a daemon does for its node's coordinator, and after it: replacements, journals, the job in Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest
from tests.daemon.daemon_harness import BOUND, Daemon, StartDaemon

from ft_slurm import environment
from ft_supervisor.core.protocol.model import Timeouts
from ft_supervisor.daemon import batch

UNTIL_DONE = """
verdict = begin.job.local_folder + "/done"
while not os.path.exists(verdict):
    link.send(Alive("active"))
    time.sleep(0.02)
done(Outcome.SUCCESS, "trained")
"""
PROMISED = "link.send(Remember(Memory(promise=3)))" + UNTIL_DONE
"""An agent of a node that has promised term 3 to somebody."""


def finish(daemon: Daemon) -> None:
    (Path(daemon.job.local_folder) / "done").touch()


def test_a_second_candidate_keeps_a_coordinator_once_its_node_has_promised(start_daemon: StartDaemon) -> None:
    coordinator = """
say(f"coordinator {begin.incarnation} {begin.memory.promise}")
link.send(Listening(20123))
while True:
    link.send(Alive("candidate"))
    time.sleep(0.05)
"""
    daemon = start_daemon(PROMISED, coordinator)
    assert daemon.said("coordinator") == ["1", "3"]
    address = Path(daemon.job.run_folder) / "addr" / "1"
    daemon.wait_until(address.exists, "the address file")
    assert json.loads(address.read_text()) == {"host": "127.0.0.1", "port": 20123}
    finish(daemon)
    assert daemon.exit_code() == 0  # it is not in charge, so nobody waits for it


def test_coordinators_that_crash_or_hang_are_replaced_and_the_agent_stays(start_daemon: StartDaemon) -> None:
    coordinator = """
say(f"coordinator-{begin.incarnation} {begin.memory.promise}")
if begin.incarnation == 1:
    os._exit(70)  # no port is free
link.send(Alive("candidate"))
if begin.incarnation == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    link.send(Alive("candidate"))
    time.sleep(0.05)
"""
    daemon = start_daemon(PROMISED, coordinator, infra_rank=0, timeouts=Timeouts(agent=2.0, heartbeat=0.1))
    assert daemon.said("coordinator-1") == ["-1"], "the first one starts before anything is promised"
    assert "exit code 70" in daemon.wait_for("event=coordinator_lost")
    assert daemon.said("coordinator-2") in (["3"], ["-1"])  # whichever is there first, it or the promise
    daemon.wait_for("event=coordinator_silent")
    assert daemon.said("coordinator-3") == ["3"]
    finish(daemon)
    assert daemon.exit_code() == 0
    assert not any("agent_lost" in line for line in daemon.lines)


def test_the_journal_is_copied_to_the_run(start_daemon: StartDaemon) -> None:
    daemon = start_daemon('done(Outcome.FAILED, "budget spent")')
    assert daemon.exit_code() == 1
    copy = Path(daemon.job.run_folder) / "journal" / "n1" / "journal-daemon.jsonl"
    header, *lines = map(json.loads, copy.read_text().splitlines())
    assert (header["machine"], header["begin"]["node"]["name"], header["begin"]["job"]["nonce"]) == (
        "daemon",
        "n1",
        "***",
    )
    assert lines[0]["event"] is None, "its start"
    assert lines[-1]["actions"][-1] == {
        "type": "Leave",
        "code": 1,
        "verdict": {"outcome": "failed", "reason": "budget spent", "again": "open", "ending": "unknown"},
        "reason": "budget spent",
    }


CONCLUDES = """
link.send(VerdictDecided(Verdict(Outcome.SUCCESS, "trained")))
link.send(VerdictDecided(Verdict(Outcome.SUCCESS, "trained"), {lost}))
done(Outcome.SUCCESS, "trained")
"""
AFTER_CLOSED = """
while open(folder + "/journal-daemon.jsonl").read().count('"VerdictDecided"') < 2:
    link.send(Alive("closing"))
    time.sleep(0.02)
done(Outcome.SUCCESS, "trained")
"""
"""An agent that leaves when the daemon has heard its coordinator."""
NO_SLURM = 'import os; os.environ["PATH"] = "/nonexistent"'


def test_the_last_deed_is_to_end_a_job_whose_batch_host_died(start_daemon: StartDaemon) -> None:
    coordinator = CONCLUDES.format(lost='"7,1"')
    daemon = start_daemon(AFTER_CLOSED, coordinator, infra_rank=0, batch_host="n1", before=NO_SLURM)
    assert daemon.exit_code() == 0
    said = daemon.wait_for("event=job_left_running")  # by the real thing, which finds no Slurm here
    assert "there is no scontrol in PATH" in said and "scancel 7" in said and "verdict_code=0" in said
    assert daemon.lines.index(said) > daemon.lines.index(daemon.wait_for("event=leaving"))


@pytest.mark.parametrize(("host", "lost"), [("n1", '""'), ("n0", '"1"'), ("login", '"0-1"'), (None, '"1"')])
def test_who_is_not_lost_ends_its_job_itself(start_daemon: StartDaemon, host: str | None, lost: str) -> None:
    daemon = start_daemon(
        AFTER_CLOSED,
        CONCLUDES.format(lost=lost),
        infra_rank=0,
        batch_host=host,
        before=NO_SLURM,
    )
    assert daemon.exit_code() == 0
    daemon.wait_for("event=leaving")
    assert not any("job_left_running" in line for line in daemon.lines)


def test_a_signal_ends_the_waiting_for_slurm(start_daemon: StartDaemon, tmp_path: Path) -> None:
    scontrol, pid = tmp_path / "scontrol", tmp_path / "pid"
    scontrol.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 600\n")
    scontrol.chmod(0o755)
    before = f'import os; os.environ["PATH"] = "{tmp_path}:{os.environ["PATH"]}"; last_deed.SIGNAL_BOUND = 0.1'
    daemon = start_daemon(
        AFTER_CLOSED,
        CONCLUDES.format(lost='"1"'),
        infra_rank=0,
        batch_host="n1",
        before=before,
    )
    daemon.wait_until(pid.exists, "scontrol's start")
    process = psutil.Process(int(pid.read_text()))
    daemon.process.terminate()
    assert daemon.exit_code() == 0
    daemon.wait_for("SIGTERM came")
    process.wait(BOUND)


STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_STEP_NODELIST": "b[3-4]",
    "SLURM_JOB_NODELIST": "b[2-4],a1",
    "SLURMD_NODENAME": "b4",
    "SLURM_NODEID": "1",
    "SLURM_SUBMIT_DIR": "/",
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, batch.BatchJob(17, 2, 1, "b2")),
        ({"FT_SUPERVISOR_LOCAL": "1"}, None),
        ({"SLURM_JOB_NODELIST": ""}, None),
        ({"SLURM_JOB_NODELIST": "b[2"}, None),
    ],
)
def test_the_batch_host_is_the_jobs_first_node(changed: dict[str, str], expected: batch.BatchJob | None) -> None:
    environ = {**STEP, **changed}
    assert batch.of_step(environment.read(environ), environ) == expected
