"""`report` of a real job, while it runs and after its end."""

import json
import os
import subprocess
from typing import Any

from tests.processes.harness import BOUND, COMMAND, PYTHONPATH, QUICK, Job, StartJob, until

from ft_supervisor.core.protocol.cost import LOST, Part

EQUAL = 0.003
"""Seconds: each part is rounded to milliseconds."""


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


def only_run(job: Job) -> dict[str, Any]:
    """Its only run, as far as it is known; {} while nothing is."""
    done = report(job, "--json")
    if done.returncode != 0:
        assert done.returncode == 4, done
        return {}
    (run,) = json.loads(done.stdout)["runs"]
    assert run["run_id"] == job.run_folder.name
    found: dict[str, Any] = run
    return found


def cycles(job: Job) -> list[dict[str, Any]]:
    """Of its only run, as far as they are known."""
    found: list[dict[str, Any]] = only_run(job).get("cycles", [])
    return found


def trains_again(job: Job) -> dict[str, Any] | None:
    """Return its run once the report has a second of the second cycle's training: all nodes have told it by then."""
    run = only_run(job)
    up = [cycle["workers_up"] for cycle in run.get("cycles", [])]
    return run if len(up) == 2 and up[1] is not None and run["until"] - up[1] > 1.0 else None


def status_after(job: Job, whole: float) -> dict[str, Any] | None:
    """Return the account in its status, once that is of more than so many seconds."""
    cost: dict[str, Any] = json.loads((job.run_folder / "status.json").read_text())["cost"]
    return cost if sum(cost[part] for part in Part) > whole else None


def test_a_job_is_told_while_it_runs_and_after_its_end(start: StartJob) -> None:
    job = start(nodes=2, active=2, worker=["beats"])
    workers = [job.worker(rank) for rank in range(2)]
    job.fail(workers[1])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    # Only what the coordinator has copied of its journal is there by now.
    live = until(lambda: trains_again(job), "a second cycle that trains, in the report")
    first, second = live["cycles"]
    assert (first["ended"], first["cause"], second["ended"]) == ("failed", "exit", "running")
    assert first["loss"]["stop"] is not None and first["loss"]["worker_start"] is not None
    assert live["cost"]["exact"] and live["cost"]["starting"] > 0
    shown = until(lambda: status_after(job, live["cost"]["whole"]), "the same in status")
    job.finish()
    job.assert_end(0, "success")

    over = only_run(job)
    before, after = live["cost"], over["cost"]
    for part in ("first_start", *LOST):  # the same to the millisecond in the report and in status, live and afterwards
        assert abs(after[part] - before[part]) < EQUAL and abs(after[part] - shown[part]) < EQUAL, (part, before, after)
    passed = after["whole"] - before["whole"]
    more = after["training"] + after["end"] - before["training"] - before["end"]
    assert 0 < passed < BOUND and abs(more - passed) < EQUAL and after["exact"]
    verdict = json.loads((job.run_folder / "verdict.json").read_text())
    lost = round(after["lost"])
    assert (f" {lost} s lost" in verdict["summary"]) == (lost > 0), verdict["summary"]
    assert abs(over["cost"]["whole"] - (over["ended"] - over["start"])) < 0.05
    first, second = over["cycles"]
    assert (first["ended"], second["ended"]) == ("failed", "success")
    assert first["failures"][0]["node"] == "node1" and first["failures"][0]["exit_code"] == 1
    parts = {part: seconds for part, seconds in first["loss"].items() if part not in ("at", "resumed", "total")}
    assert None not in parts.values(), "agents' journals are there now, and workers send heartbeats"
    assert abs(sum(parts.values()) - first["loss"]["total"]) < 0.1
    assert second["workers_up"] == first["loss"]["resumed"]

    done = report(job)
    assert done.returncode == 0
    assert f"run {job.run_folder.name}: success" in done.stdout
    assert f"cycle {first['number']}: rank 1 (node1, local 0) exited with 1" in done.stdout
    assert f"logs/{first['number']}/rank1.log" in done.stdout and "| event=worker restart=0 rank=1" in done.stdout


def test_a_game_day_is_told_as_one_and_a_peer_s_failure_as_its_consequence(start: StartJob) -> None:
    job = start(nodes=3, active=2, policy={"faults": {"allow": True}}, timeouts=QUICK)
    workers = [job.worker(rank) for rank in range(2)]
    line = [*COMMAND, "fault", "kill", "node", "--node", "node1", "--job", job.run_folder.name]
    with subprocess.Popen(line, env={**os.environ, "PYTHONPATH": PYTHONPATH}, stdout=subprocess.DEVNULL) as fault:
        until(lambda: not job.processes("node1"), "the end of node1")
        job.fail(workers[0])  # as a collective does whose peer is gone
        assert fault.wait(BOUND) == 0
    assert job.worker(1, restart=1).said == "node2"
    job.finish()
    job.assert_end(0, "success", dead=["node1"])

    (run,) = json.loads(report(job, "--json").stdout)["runs"]
    (told,) = run["faults"]
    first = run["cycles"][0]
    assert (told["act"], told["target"], told["node"], told["cycle"]) == ("kill", "node", "node1", first["number"])
    assert (first["cause"], [each["node"] for each in first["lost"]]) == ("lost_node", ["node1"])
    assert first["failures"][0]["node"] == run["first_failure"]["node"] == "node0"
    assert run["first_failure"]["consequence_of"] == first["reason"] and "node1 was not heard" in first["reason"]
    shown = report(job).stdout
    assert "a game day: ft-supervisor fault has hit it once" in shown and "A node was lost first: node1 was" in shown
