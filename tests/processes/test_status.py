"""What `status` says of a real job: while it runs, after a failure, over a takeover, and at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.processes.harness import BOUND, COMMAND, PYTHONPATH, QUICK, Job, StartJob, until
from tests.processes.test_takeover import in_charge, in_place

from ft_supervisor.journal.replay import replay


def ask(job: Job, *words: str) -> tuple[int, str]:
    """Exit code and output of `status`, asked where the job was started."""
    done = subprocess.run(
        [*COMMAND, "status", "--config", "job.yaml", *words],
        cwd=job.folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def from_elsewhere(job: Job, verb: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a command that is given the job's id alone, in another folder."""
    number = job.run_folder.name.split(".")[0]
    done = subprocess.run(
        [*COMMAND, verb, number],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=BOUND,
    )
    return done.returncode, done.stdout + done.stderr


def told(job: Job) -> dict[str, Any]:
    """The document; it must be fresh and sound."""
    code, text = ask(job, "--json")
    found: dict[str, Any] = json.loads(text)
    assert code == 0 and found["notes"] == [], text
    return found


def when(job: Job, what: str, **wanted: object) -> dict[str, Any]:
    """The first status in which these fields have these values. `cycle` is its name, `term` the coordinator's."""

    def look() -> dict[str, Any] | None:
        code, text = ask(job, "--json")
        status = json.loads(text)["status"] if code == 0 else None
        if status is None:
            return None
        flat = {
            **status,
            "cycle": status["cycle"] and status["cycle"]["name"],
            "term": status["coordinator"]["term"],
            "roles": {node["name"]: node["role"] for node in status["nodes"]},
        }
        return status if all(flat[key] == value for key, value in wanted.items()) else None

    return until(look, what)


def test_from_the_first_cycle_to_the_end(start: StartJob, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    job = start(nodes=3, active=2, timeouts=QUICK, candidates=3, worker=["beats"])
    workers = in_place(job, 2)
    roles = {"node0": "active", "node1": "active", "node2": "standby"}
    status = when(job, "a running job", phase="running", cycle="0.0", roles=roles)
    assert status["job"] == "test" and status["coordinator"]["node"] == "node0"
    assert (status["spares"], status["members"], status["survives"]) == (1, 3, 1)
    assert [(budget["left"], budget["max"]) for budget in status["budgets"]] == [(10, 10)]
    assert all(node["heartbeat_age"] < 9 for node in status["nodes"])
    assert until(lambda: told(job)["status"]["step"], "the training's step")["step"] == 1769
    code, text = ask(job)
    assert "Training      step 1769" in text, text
    assert code == 0 and "2 active, 1 standby" in text and max(map(len, text.splitlines())) <= 80

    job.fail(workers[1])
    job.worker(1, restart=1)
    status = when(job, "a restart", phase="running", cycle="0.1")
    assert status["decision"]["what"] == "restart" and status["decision"]["rule"].endswith("(rule 1)")
    assert status["decision"]["reason"].startswith("rank 1 (node1, local 0) exited with 1")
    assert status["budgets"][0]["left"] == 9

    agent = job.pid("agent", "node2")
    os.kill(agent, signal.SIGKILL)
    until(
        lambda: next((n for n in told(job)["status"]["nodes"] if n["name"] == "node2" and n["restarts"] == 1), None),
        "a spare whose agent was replaced",
    )

    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    found = told(job)
    assert found["state"] == "ended" and found["verdict"]["outcome"] == "success"
    assert found["status"]["phase"] == "closing" and found["status"]["verdict"]["final"]
    assert {node["role"] for node in found["status"]["nodes"]} == {"left"}
    code, text = ask(job)
    assert code == 0 and "ended: success (exit code 0): all workers of cycle 0.1" in " ".join(text.split())
    for verb in ("status", "report", "verdict"):
        code, text = from_elsewhere(job, verb, elsewhere)
        assert code == 0 and "success" in text, (verb, text)


def test_over_a_takeover(start: StartJob) -> None:
    job = start(nodes=3, active=2, timeouts=QUICK, candidates=3)
    workers = in_place(job, 2)
    job.fail(workers[0])
    job.worker(0, restart=1)
    before = when(job, "a restart", phase="running", cycle="0.1")
    copy = job.run_folder / "journal" / "node0" / "journal-coordinator-1.jsonl"
    until(lambda: "WorkersFailed" in copy.read_text(), "a copy of the coordinator's journal")
    job.kill_nodes("node0")
    term = int(in_charge(job)["term"])
    roles = {"node0": "lost", "node1": "active", "node2": "active"}
    status = when(job, "the successor's status", term=term, phase="running", roles=roles)
    assert status["coordinator"]["node"] != "node0"
    assert status["cycle"]["name"] == f"{term}.2" and status["spares"] == status["survives"] == 0
    assert "node0 was not heard" in status["decision"]["reason"]
    assert status["budgets"][0]["used"] == before["budgets"][0]["used"] == 1

    assert replay(copy).difference is None  # whole but for the last seconds
    job.finish()
    job.assert_end(0, "success", "exited with 0", dead=["node0"])
    journals = {str(path.relative_to(job.run_folder / "journal")) for path in job.run_folder.glob("journal/*/*")}
    assert "node0/journal-coordinator-1.jsonl" in journals
    assert f"{status['coordinator']['node']}/journal-daemon.jsonl" in journals
    for path in job.run_folder.glob("journal/*/*.jsonl"):
        assert replay(path).difference is None, path
    assert not [path.name for path in job.run_folder.iterdir() if path.name.startswith(".status.json")]


def test_a_successor_keeps_the_last_decision(start: StartJob) -> None:
    job = start(nodes=3, active=2, candidates=3)
    workers = in_place(job, 2)
    job.fail(workers[0])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    before = when(job, "a restart", phase="running", cycle="0.1")
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    term = int(in_charge(job)["term"])
    status = when(job, "the successor's status", term=term, phase="running")
    for part, moment in (("decision", "time"), ("cycle", "started")):
        # each snapshot makes its times anew from two clocks, which are read one after the other
        assert status[part] == before[part] | {moment: pytest.approx(before[part][moment], abs=0.01)}
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")


@pytest.mark.slow("cli/test_status.py")
def test_a_job_that_was_killed_is_stale(start: StartJob) -> None:
    job = start(nodes=2, active=1)
    in_place(job, 1)
    when(job, "a running job", phase="running")
    for node in job.nodes:
        os.kill(job.pid("daemon", node), signal.SIGKILL)
    job.end()

    def stale() -> str | None:
        code, text = ask(job)
        return text if code == 4 else None

    text = until(stale, "that it is called stale")
    assert "this is what was then" in text and "its coordinator is lost" in text
