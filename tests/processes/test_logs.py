"""What workers print, in files and in the job's output, and what the job's output says of a failure."""

import json
import os
import re
import signal
from pathlib import Path

from tests.processes.harness import Job, StartJob, until

COMPLAINT = "NVRM: Xid 48, uncorrectable ECC error"
"""What worker.py says at SIGUSR2, before it exits with 7."""


def file_of(job: Job, rank: int, restart: int = 0) -> Path:
    return job.run_folder / "logs" / f"0.{restart}" / f"rank{rank}.log"


def logged(job: Job, rank: int, restart: int = 0) -> dict[str, str]:
    """What the worker's file says of it, once it runs."""

    def look() -> dict[str, str] | None:
        path = file_of(job, rank, restart) if list(job.folder.glob("runs/*/*/local.json")) else None
        found = dict(re.findall(r"(\w+)=(\S+)", path.read_text())) if path and path.exists() else {}
        return found if found.get("rank") == str(rank) and "pid" in found else None

    return until(look, f"the file of rank {rank}")


def fail(job: Job, rank: int, restart: int = 0) -> None:
    """It complains, and exits with 7."""
    os.kill(int(logged(job, rank, restart)["pid"]), signal.SIGUSR2)


def said(job: Job) -> list[str]:
    """What the nodes have printed that is no line of our own log."""
    texts = [text.rstrip("\n").split("| ", 1) for text in job.texts if not text.startswith("local|")]
    return [text for _, text in texts if not re.match(r'20\d\d-|\{"time"', text)]


def test_files_by_cycle_and_rank_and_the_first_failure_once(start: StartJob) -> None:
    job = start(nodes=2, active=2)
    for rank in (0, 1):
        assert int(job.worker(rank)["pid"]) == int(logged(job, rank)["pid"])
    fail(job, 1)
    pids = {rank: job.worker(rank, restart=1)["pid"] for rank in (0, 1)}
    assert {rank: logged(job, rank, 1)["pid"] for rank in (0, 1)} == pids
    first = job.wait("first_failure")
    job.finish()
    job.assert_end(0, "success")
    assert first["rank"] == "1" and first["failure"].startswith("rank 1 (node1, local 0) exited with 7: ")
    assert first["log"] == str(file_of(job, 1)) and first.level == "warning"
    complaint = file_of(job, 1).read_text().splitlines()
    assert len(complaint) == 2 and complaint[1] == COMPLAINT
    assert [text for text in said(job) if text.startswith("    | ")] == [f"    | {text}" for text in complaint]
    at = job.texts.index(f"{first.text}\n")
    assert [text.split("| ", 1)[1] for text in job.texts[at + 1 : at + 3]] == [f"    | {line}\n" for line in complaint]
    assert len(job.all("first_failure")) == len(job.all("worker_failed")) == 1 and said(job).count(COMPLAINT) == 1
    assert file_of(job, 0).read_text().count("\n") == file_of(job, 1, 1).read_text().count("\n") == 1
    assert sorted(path.name for path in (job.run_folder / "logs").iterdir()) == ["0.0", "0.1"]


def test_rank_0_alone_with_its_prefix(start: StartJob) -> None:
    job = start(nodes=1, active=1, per_node=2, policy={"logs": {"tee": "rank0", "prefix": True}})
    for rank in (0, 1):
        logged(job, rank)
    expected = [f"[rank 0 node0] {file_of(job, 0).read_text().strip()}"]
    until(lambda: said(job) == expected, "rank 0's line")
    job.finish()
    job.assert_end(0, "success")
    assert said(job) == expected


def test_the_failed_alone(start: StartJob) -> None:
    job = start(nodes=1, active=1, per_node=2, policy={"logs": {"tee": "failed"}})
    fail(job, 1)
    job.wait("first_failure")
    for rank in (0, 1):
        logged(job, rank, 1)
    job.finish()
    job.assert_end(0, "success")
    lines = file_of(job, 1).read_text().splitlines()
    assert lines[-1] == COMPLAINT
    shown = said(job)
    assert [text for text in shown if text.startswith("[")] == [f"[rank 1 node0] {line}" for line in lines]
    assert [text for text in shown if not text.startswith("[")] == [f"    | {line}" for line in lines]


def test_json_is_all_there_is_where_nothing_else_is_wanted(start: StartJob) -> None:
    job = start(nodes=2, active=2, policy={"logs": {"tee": "none", "format": "json"}})
    fail(job, 0)
    for rank in (0, 1):
        logged(job, rank, 1)
    until(lambda: any("in charge: node0" in text for text in job.texts), "local has read the lines")
    job.finish()
    assert job.end() == {"node0": 0, "node1": 0}
    lines = [text.split("| ", 1) for text in job.texts if not text.startswith("local|")]
    told = [json.loads(text) | {"said": node} for node, text in lines]
    assert all({"time", "level", "event", "writer", "proc", "fields"} <= set(line) for line in told)
    assert all(line["writer"] == line["said"] for line in told)
    assert {line["proc"] for line in told} == {"daemon", "agent", "coordinator"}
    (first,) = (line for line in told if line["event"] == "first_failure")
    assert first["fields"]["last_lines"] == file_of(job, 0).read_text().rstrip("\n")
    assert first["fields"]["node"] == "node0" and first["fields"]["rank"] == 0


def test_what_a_worker_said_before_its_agent_was_killed_is_in_its_file(start: StartJob) -> None:
    job = start(nodes=1, active=1)
    before = logged(job, 0)
    agent = job.pid("agent", "node0")
    os.kill(agent, signal.SIGKILL)
    after = logged(job, 0, 1)
    assert after["pid"] != before["pid"]
    assert logged(job, 0) == before
    job.finish()
    job.assert_end(0, "success")


def test_files_that_hang_or_fail_are_no_trouble_for_the_training(start: StartJob) -> None:
    job = start(nodes=2, active=2)
    for rank in (0, 1):
        logged(job, rank)
    (job.run_folder / "logs" / "0.1").mkdir()
    os.mkfifo(file_of(job, 0, 1))
    file_of(job, 1, 1).mkdir()
    fail(job, 1)
    for rank in (0, 1):
        job.worker(rank, restart=1)
    assert job.wait("worker_logs_fail", "node1")["error"] == "Is a directory"
    job.finish()
    job.assert_end(0, "success")
    assert len(job.all("worker_logs_fail")) == 1
    lost = {line.said: line for event in ("worker_logs_dropped", "worker_logs_unwritten") for line in job.all(event)}
    assert {node: line.event for node, line in lost.items()} == {
        "node0": "worker_logs_unwritten",
        "node1": "worker_logs_dropped",
    }
    assert all(int(line["bytes"]) > 30 for line in lost.values())


def test_old_parts_are_kept_as_told(start: StartJob) -> None:
    script = "for i in $(seq 0 2999); do printf '%09d\\n' $i; done; touch finish"
    command = {"per_node": 1, "command": ["bash", "-c", script]}
    logs = {"tee": "none", "max_size": "10KiB", "keep": 1}
    job = start(nodes=1, active=1, policy={"logs": logs}, job={"workers": command})
    job.assert_end(0, "success")
    parts = [Path(f"{file_of(job, 0)}{suffix}") for suffix in (".1", "")]
    assert sorted(file_of(job, 0).parent.iterdir()) == sorted(parts)
    assert [part.stat().st_size for part in parts] == [10_240, 30_000 - 2 * 10_240]
    text = b"".join(part.read_bytes() for part in parts)
    assert text == b"".join(b"%09d\n" % n for n in range(1024, 3000))
