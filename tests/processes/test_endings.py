"""Jobs that people end: by signals, by the key `permanent_close`; and jobs that cannot begin."""

import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from tests.processes.harness import CALM, COMMAND, PYTHONPATH, QUICK, Job, StartJob
from torch.distributed import TCPStore  # type: ignore[attr-defined] # torch's stubs lag behind its binding

from ft_supervisor.local import environment
from ft_supervisor.process.ports import free_port

GRACES = {"stop_grace": "1s"}


def started(start: StartJob, *, worker: list[str], timeouts: dict[str, str] = CALM) -> Job:
    """Two active nodes and one standby, all in place."""
    job = start(nodes=3, active=2, worker=worker, timeouts=timeouts)
    for rank in (0, 1):
        job.worker(rank)
    job.wait("standby", "node2")
    return job


@pytest.mark.parametrize(
    "node",
    [
        "node0",
        pytest.param("node1", marks=pytest.mark.slow("node0, which has workers, too")),
        pytest.param(
            "node2", marks=pytest.mark.slow("test_coordinator_end.py::test_a_signal_to_a_node_cancels_the_job")
        ),
    ],
)
def test_sigterm_to_all_processes_of_a_node_twice(start: StartJob, node: str) -> None:
    """As Slurm does it: with the coordinator among them, with workers alone, and on a standby."""
    job = started(start, worker=["family"])
    processes = job.processes(node)
    for _ in range(2):
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    job.assert_end(130, "cancelled", f"{node} was told to end: SIGTERM")


def test_ctrl_c_ends_deaf_workers_too(start: StartJob) -> None:
    job = started(start, worker=["deaf", "family"], timeouts=CALM | GRACES)
    job.local.send_signal(signal.SIGINT)
    job.assert_end(130, "cancelled", "Ctrl-C (SIGINT on node")
    assert {line.said for line in job.all("deaf")} == {"node0", "node1"}


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        pytest.param(
            "success",
            0,
            marks=pytest.mark.slow("test_coordinator_process.py::test_anybody_may_end_the_job_by_permanent_close"),
        ),
        ("failed", 1),
    ],
)
def test_anybody_may_close_the_job_through_the_store(start: StartJob, outcome: str, code: int) -> None:
    job = started(start, worker=[])
    address = json.loads((job.run_folder / "addr" / "0").read_text())
    store = TCPStore(address["host"], address["port"], wait_for_workers=False, timeout=timedelta(seconds=60))
    verdict = json.dumps({"outcome": outcome, "reason": "said from outside"})
    store.set(f"ft/{job.run_folder.name}/permanent_close", verdict)
    job.assert_end(code, outcome, "said from outside")


def take_ports(taken: ExitStack, count: int) -> int:
    """Listen on so many ports in a row, without ever saying a word; the first of them."""
    while True:
        port = free_port()
        with ExitStack() as these, suppress(OSError):
            for number in range(port, port + count):
                these.enter_context(socket.create_server(("127.0.0.1", number)))
            taken.push(these.pop_all())
            return port


def test_two_jobs_at_once_with_a_port_that_is_taken(start: StartJob) -> None:
    """Both want the same ports, the first of which is taken."""
    with ExitStack() as taken:
        port = take_ports(taken, 1)
        jobs = [start(nodes=2, active=1, port=port, timeouts=CALM | {"coordinator": "1500ms"}) for _ in range(2)]
        for job in jobs:
            job.worker(0)
            job.wait("standby", "node1")
        ports = {int(job.wait("listening")["port"]) for job in jobs}
        assert len(ports) == 2 and ports < set(range(port + 1, port + 8))
        jobs[0].finish()
        jobs[0].assert_end(0, "success")
        assert not jobs[1].all("closing")
        jobs[1].fail(jobs[1].worker(0))
        jobs[1].worker(0, restart=1)
        jobs[1].finish()
        jobs[1].assert_end(0, "success", "all workers of cycle 0.1 exited with 0")


@pytest.mark.slow("test_coordinator_process.py::test_no_free_port_is_no_verdict")
def test_all_ports_of_the_first_candidate_taken_means_that_another_is_in_charge(start: StartJob) -> None:
    with ExitStack() as taken:
        port = take_ports(taken, 8)
        job = start(nodes=3, active=2, port=port, timeouts=QUICK, candidates=2)
        refused = job.wait("cannot_listen", "node0", proc="coordinator")["error"]
        assert refused.startswith(f"all ports are taken on 127.0.0.1: {port}, ")
        for rank in (0, 1):
            job.worker(rank)
        assert job.wait("in_charge").said != "node0"
        job.finish()
        job.assert_end(0, "success", "exited with 0")


@pytest.mark.slow("test_agent_wire.py::test_without_a_lease_for_long_the_node_ends")
def test_all_ports_of_the_only_candidate_taken_is_no_endless_wait(start: StartJob) -> None:
    with ExitStack() as taken:
        port = take_ports(taken, 8)
        job = start(nodes=2, active=1, port=port, timeouts=QUICK | {"join": "15s"})
        job.wait("cannot_listen", "node0", proc="coordinator")
        job.assert_end(75, None)
        left = job.all("leaving", proc="daemon")
        assert {line["reason"] for line in left} == {"no coordinator with a majority for 15 s"}
        assert not job.all("worker")


@pytest.mark.parametrize(
    ("job", "wrong"),
    [
        ("workers: {per_node: 1, comand: [x]}\nnodes: {active: 1}", "job.yaml:1: workers.comand: unknown key"),
        ("nodes: {active: 3}\nworkers: {per_node: 1, command: [x]}\ncluster: none", "job.yaml:1: nodes.active"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_code_2(tmp_path: Path, job: str, wrong: str) -> None:
    (tmp_path / "job.yaml").write_text(job)
    environ = environment.of_node(os.environ, 7, 2, 1, tmp_path, "") | {"PYTHONPATH": PYTHONPATH}
    for command, environ_of_it in ((["local", "-N", "2"], {**os.environ, "PYTHONPATH": PYTHONPATH}), ([], environ)):
        done = subprocess.run(
            [*COMMAND, *command, "--config", "job.yaml"],
            cwd=tmp_path,
            env=environ_of_it,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.count("\n") == 1 and wrong in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
