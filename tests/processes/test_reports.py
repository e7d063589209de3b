"""`report` of a real job, while it runs and after its end."""

import json
import os
import subprocess
from typing import Any

from tests.processes.harness import BOUND, COMMAND, PYTHONPATH, Job, StartJob, until


def report(job: Job, *options: str) -> subprocess.CompletedProcess[str]:
    """From where the job was started; without Slurm."""
    (folder,) = job.folder.glob("runs/*")
    done = subprocess.run(
        [*COMMAND, "report", "--run-dir", str(folder), *options],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PATH": "/nothing"},
        cwd=job.folder,
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert not done.stderr
    return done


def cycles(job: Job) -> list[dict[str, Any]]:
    """Of its only run, as far as they are known."""
    done = report(job, "--json")
    if done.returncode != 0:
        assert done.returncode == 4, done
        return []
    (run,) = json.loads(done.stdout)["runs"]
    assert run["run_id"] == job.run_folder.name
    found: list[dict[str, Any]] = run["cycles"]
    return found


def test_a_job_is_told_while_it_runs_and_after_its_end(start: StartJob) -> None:
    job = start(nodes=3, active=2, worker=["beats"])
    workers = [job.worker(rank) for rank in range(2)]
    job.fail(workers[1])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    # Only what the coordinator has copied of its journal is there by now.
    first, second = until(lambda: found if len(found := cycles(job)) == 2 else None, "a second cycle in the report")
    assert (first["ended"], first["cause"], second["ended"]) == ("failed", "exit", "running")
    assert first["loss"]["stop"] is not None and first["loss"]["worker_start"] is None
    job.finish()
    job.assert_end(0, "success")

    first, second = cycles(job)
    assert (first["ended"], second["ended"]) == ("failed", "success")
    assert first["failures"][0]["node"] == "node1" and first["failures"][0]["exit_code"] == 1
    parts = {part: seconds for part, seconds in first["loss"].items() if part not in ("at", "resumed", "total")}
    assert None not in parts.values(), "agents' journals are there now, and workers send heartbeats"
    assert abs(sum(parts.values()) - first["loss"]["total"]) < 0.1
    assert second["workers_up"] == first["loss"]["resumed"]

    done = report(job)
    assert done.returncode == 0
    assert f"run {job.run_folder.name}: success" in done.stdout
    assert f"rank 1 on node1, cycle {first['number']}: worker 0 of node 1: exit code 1" in done.stdout
    assert f"logs/{first['number']}/rank1.log" in done.stdout and "| event=worker restart=0 rank=1" in done.stdout
