"""What a cluster's policy says, done by real processes: rules, health checks, hangs, sizes."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.processes.harness import BOUND, CALM, QUICK, Job, StartJob, until
from tests.processes.lines import Line

from ft_supervisor.daemon.identity import local_folder

ANY = {"match": "any", "action": "restart", "budget": {"max": 5}}
SICK = ["bash", "-c", "! test -e sick-$FT_SUPERVISOR_NODE || { echo no link on mlx5_0; exit 4; }"]


def rules(*first: dict[str, Any]) -> dict[str, Any]:
    """A policy with these rules, and one for any failure."""
    return {"failures": [*first, ANY]}


def checks(*when: str, on_fail: str = "exclude") -> dict[str, Any]:
    """A policy whose check fails on nodes for which there is a file."""
    check = {"name": "link", "command": SICK, "timeout": "60s", "when": list(when), "on_fail": on_fail}
    return {"health": {"interval": "500ms", "checks": [check]}}


def hit(worker: Line, number: signal.Signals) -> None:
    os.kill(int(worker["pid"]), number)


def nodes_of(job: Job, restart: int) -> list[str]:
    """Where both workers of this cycle run, by rank."""
    return [job.worker(rank, restart).said for rank in (0, 1)]


def step_of(job: Job) -> str:
    """What the newest checkpoint's file says."""
    path = job.folder / "step"
    return path.read_text() if path.exists() else ""


# -- rules


def test_a_failure_after_which_the_job_is_not_to_run_again(start: StartJob) -> None:
    rule = {"match": {"exit_code": 7}, "action": "fail", "reason": "bad hyper-parameters"}
    job = start(nodes=1, active=1, policy=rules(rule))
    hit(job.worker(0), signal.SIGUSR2)
    reason = "bad hyper-parameters: rank 0 (node0, local 0) exited with 7"
    job.assert_end(93, "failed", reason)
    verdict = job.verdict()
    assert verdict is not None and verdict["again"] == "never"


def test_a_node_is_replaced_for_what_its_worker_printed(start: StartJob) -> None:
    rule = {"match": {"log": "uncorrectable ECC"}, "action": "replace_node"}
    tell = ["sh", "-c", "cat >> notices; echo >> notices"]
    job = start(nodes=3, active=2, policy=rules(rule), job={"notify": [{"command": tell}]})
    job.worker(0)
    hit(job.worker(1), signal.SIGUSR2)
    assert nodes_of(job, 1) == ["node0", "node2"]
    replaced = job.wait("replace_node", replaced="node1")
    assert "(rule 1)" in replaced["rule"] and "exited with 7" in replaced["reason"]
    assert "NVRM: Xid 48" in job.output  # and passed on
    told = job.folder / "notices"
    until(lambda: told.exists() and "spares_low" in told.read_text(), "the notice of the last spare")
    job.finish()
    job.assert_end(0, "success")
    notices = [json.loads(line) for line in told.read_text().splitlines()]
    assert [notice["kind"] for notice in notices] == ["restart", "spares_low", "verdict"]
    assert "rank 1 (node1, local 0) exited with 7" in notices[0]["text"] and notices[2]["exit_code"] == 0


@pytest.mark.slow("test_cluster_policy.py::test_an_excluded_node_is_never_chosen_again_and_all_runs_name_it")
def test_a_node_is_replaced_for_a_signal_and_never_chosen_again(start: StartJob) -> None:
    rule = {"match": {"signal": "SIGBUS"}, "action": "replace_node"}
    job = start(nodes=3, active=2, policy=rules(rule) | {"spares": {"on_exhausted": "requeue"}}, timeouts=QUICK)
    job.worker(0)
    hit(job.worker(1), signal.SIGBUS)
    hit(job.worker(1, restart=1), signal.SIGBUS)
    job.assert_end(75, "interrupted", "too few nodes")
    verdict = job.verdict()
    assert verdict is not None and verdict["again"] == "requeue"


def test_an_ignored_failure_disturbs_nobody(start: StartJob) -> None:
    rule = {"match": {"exit_code": 7, "node": "node1"}, "action": "ignore"}
    job = start(nodes=2, active=2, policy=rules(rule))
    zero = job.worker(0)
    hit(job.worker(1), signal.SIGUSR2)
    job.wait("failure_ignored", "node1")
    job.wait("succeeded", "node1")
    assert int(zero["pid"]) in job.processes("node0")
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.0 exited with 0")


@pytest.mark.slow("core/test_cluster_policy.py::test_a_job_that_makes_no_progress_fails")
def test_a_job_without_progress_fails(start: StartJob) -> None:
    rule = {"match": {"exit_code": 1}, "action": "restart", "budget": {"max": 9, "no_progress": 1}}
    step = {"checkpoint": {"step_file": "step"}}
    job = start(nodes=1, active=1, worker=["checkpoints"], policy=rules(rule), job=step)
    for restart, number in enumerate(("100", "200")):
        worker = job.worker(0, restart=restart)
        (job.folder / "next-step").write_text(number)
        until(lambda number=number: step_of(job) == number, "a checkpoint")  # type: ignore[misc]
        job.fail(worker)
    job.fail(job.worker(0, restart=2))
    job.assert_end(1, "failed", "1 restart in a row without a newer checkpoint (step 200)")


# -- health


def test_a_node_that_is_not_well_at_the_start_is_not_chosen(start: StartJob, tmp_path: Path) -> None:
    (tmp_path / "job0").mkdir()
    (tmp_path / "job0" / "sick-node0").touch()
    job = start(nodes=3, active=2, policy=checks("start"))
    assert nodes_of(job, 0) == ["node1", "node2"]
    told = job.wait("health", "node0")
    assert told["reason"] == "health check link failed: exit code 4: no link on mlx5_0"
    job.finish()
    job.assert_end(0, "success")


@pytest.mark.slow("test_cluster_policy.py::test_an_unhealthy_standby_is_never_promoted")
def test_a_standby_that_turns_unhealthy_is_never_promoted(start: StartJob) -> None:
    job = start(nodes=4, active=2, policy=checks("standby"), timeouts=QUICK)
    for rank in (0, 1):
        job.worker(rank)
    (job.folder / "sick-node2").touch()
    job.wait("unhealthy", "node2", proc="agent")
    job.kill_nodes("node1")
    assert nodes_of(job, 1) == ["node0", "node3"]
    job.finish()
    job.assert_end(0, "success", dead=["node1"])


def test_a_check_before_each_cycle(start: StartJob) -> None:
    job = start(nodes=3, active=2, policy=checks("before_cycle"))
    job.worker(0)
    one = job.worker(1)
    (job.folder / "sick-node1").touch()
    job.fail(one)
    job.wait("unhealthy", "node1", proc="agent")
    assert nodes_of(job, 2) == ["node0", "node2"]
    job.finish()
    job.assert_end(0, "success")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As the kernel makes a file system whose disk fails."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_node_that_cannot_start_workers_is_replaced_and_costs_no_restart(start: StartJob) -> None:
    job = start(nodes=4, active=3, max_restarts=1)
    workers = [job.worker(rank) for rank in range(3)]
    assert [worker.said for worker in workers] == ["node0", "node1", "node2"]
    with read_only(local_folder(job.run_folder.name) / "node1"):
        job.fail(workers[0])
        job.wait("unhealthy", "node1", proc="agent")
        assert [job.worker(rank, restart=2).said for rank in range(3)] == ["node0", "node3", "node2"]
    told = job.wait("unhealthy", "node0", proc="coordinator", node="node1")["reason"]
    assert told.startswith("cannot start workers: [Errno 30] Read-only file system: ")
    first, second = job.all("restart")
    assert (first["used"], first["budget"], second["cause"]) == ("1", "1 of 1", "health")
    assert "used" not in dict(second.fields) and "budget" not in dict(second.fields), "no rule is charged"
    assert not job.all("worker_failed", "node1") and not job.all("agent_lost")
    job.finish()
    job.assert_end(0, "success")


@pytest.mark.slow("core/test_health.py::test_a_warning_and_its_end_are_reported_once")
def test_a_warning_changes_nothing(start: StartJob, tmp_path: Path) -> None:
    (tmp_path / "job0").mkdir()
    (tmp_path / "job0" / "sick-node0").touch()
    job = start(nodes=1, active=1, policy=checks("start", on_fail="warn"))
    job.wait("health", "node0", effect="warn")
    job.worker(0)
    job.finish()
    job.assert_end(0, "success")


# -- hangs


def test_a_worker_that_goes_silent_is_restarted_and_its_stacks_are_kept(start: StartJob) -> None:
    hang = {"hang": {"after": "3s", "first": f"{BOUND:g}s"}}
    job = start(nodes=2, active=2, worker=["beats"], job=hang, timeouts=CALM)
    for rank in (0, 1):
        job.worker(rank)
    (job.folder / "silent-1").touch()
    job.wait("worker_hangs", "node1")
    (job.folder / "silent-1").unlink()
    job.worker(1, restart=1)
    reason = job.wait("restart")["reason"]
    assert reason.startswith("rank 1 (node1, local 0) hangs: it alone sent no heartbeat")
    (stacks,) = (job.run_folder / "stacks").glob("*/1.txt")
    assert "worker.py" in stacks.read_text()
    job.finish()
    job.assert_end(0, "success")


def test_workers_that_do_nothing_any_more_are_noticed_without_heartbeats(start: StartJob) -> None:
    job = start(nodes=2, active=2, job={"hang": {"auto": True, "after": "4s"}}, timeouts=CALM)
    for rank in (0, 1):
        job.worker(rank)
    explained = job.wait("hang_explained")
    assert explained["reason"].startswith("no worker has done anything for 4")
    for rank in (0, 1):
        job.worker(rank, 1)
    job.finish()
    job.assert_end(0, "success")


# -- sizes


def test_an_elastic_job_goes_on_with_fewer_nodes(start: StartJob) -> None:
    sizes = {"nodes": {"active": {"min": 1, "max": 3}}}
    job = start(nodes=3, active=3, job=sizes, policy={"spares": {"on_exhausted": "shrink"}}, timeouts=QUICK)
    for rank in range(3):
        assert job.worker(rank)["world"] == "3"
    job.kill_nodes("node1")
    for rank in (0, 1):
        assert job.worker(rank, restart=1)["world"] == "2"
    job.finish()
    job.assert_end(0, "success", dead=["node1"])
