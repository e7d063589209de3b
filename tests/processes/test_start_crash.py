"""A job whose script is not there ends after two cycles, and says why."""

import sys

from tests.processes.harness import StartJob


def test_a_script_that_is_not_there_ends_the_job_after_two_cycles(start: StartJob) -> None:
    command = [sys.executable, "-I", "-S", "trian.py"]
    job = start(nodes=2, active=2, job={"workers": {"per_node": 2, "command": command}})
    reason = (
        f"fails at once, the same way, on all nodes: {sys.executable}: can't open file '{job.folder}/trian.py': "
        "[Errno 2] No such file or directory"
    )
    job.assert_end(93, "failed", reason)
    verdict = job.verdict()
    assert verdict is not None and verdict["again"] == "never"
    assert len(job.all("cycle_started")) == 2 and len(job.all("restart")) == 1


def test_with_fail_fast_off_the_budget_is_spent(start: StartJob) -> None:
    job = start(
        nodes=1,
        active=1,
        max_restarts=3,
        job={"workers": {"per_node": 1, "command": [sys.executable, "-I", "-S", "-c", "raise SystemExit(7)"]}},
        policy={"fail_fast": False},
    )
    job.assert_end(1, "failed")
    assert len(job.all("cycle_started")) == 4
