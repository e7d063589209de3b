"""`ft-supervisor fault` against jobs of `ft-supervisor local`: what is hit, what comes of it, what is undone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.processes.harness import BOUND, CALM, COMMAND, PYTHONPATH, QUICK, Job, StartJob, until

from ft_supervisor.core.codec import encode
from ft_supervisor.fault.messages import Hit, Target, Verb

ALLOWED = {"faults": {"allow": True}}
ENVIRON = {**os.environ, "PYTHONPATH": PYTHONPATH}
LONG = "10m"
"""Longer than any test: what is frozen for so long was thawed by something else."""


def words(job: Job, *rest: str) -> list[str]:
    return [*COMMAND, "fault", *rest, "--job", job.run_folder.name]


def fault(job: Job, *rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(job, *rest), capture_output=True, text=True, timeout=BOUND, env=ENVIRON)


def done(job: Job, *rest: str) -> str:
    """What it printed, having done it."""
    told = fault(job, *rest)
    assert (told.returncode, told.stderr) == (0, ""), told
    return told.stdout


def assert_refused(told: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert (told.returncode, told.stdout) == (code, ""), told
    (line,) = told.stderr.splitlines()
    assert line.startswith("ft-supervisor: ") and all(part in line for part in parts), line


def recorded(job: Job) -> list[dict[str, Any]]:
    path = job.run_folder / "faults.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def acts(job: Job) -> list[tuple[str, str, str]]:
    return [(each["act"], each["target"], each["node"]) for each in recorded(job)]


def state(pid: int) -> str:
    """As in proc_pid_stat(5); "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def frozen(pids: dict[int, str]) -> set[int]:
    return {pid for pid in pids if state(pid) == "T"}


@pytest.fixture
def tool() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """tool(job, ...): one that is under way, with its output in pipes; killed when the test is over."""
    started: list[subprocess.Popen[str]] = []

    def begin(job: Job, *rest: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words(job, *rest), env=ENVIRON, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=BOUND)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


Tool = Callable[..., subprocess.Popen[str]]


# -- kill


def test_a_worker_is_killed_by_its_rank(start: StartJob) -> None:
    job = start(nodes=2, active=2, policy=ALLOWED)
    pid = job.worker(1)["pid"]
    job.worker(0)
    line = done(job, "kill", "worker", "--rank", "1")
    assert line.endswith(f"kill worker node=node1 rank=1 pid={pid}\n")
    assert "killed by SIGKILL" in job.wait("restart", used=1)["reason"]
    job.worker(1, restart=1)
    job.finish()
    job.assert_end(0, "success")
    (record,) = recorded(job)
    assert (record["act"], record["target"], record["rank"], record["pids"]) == ("kill", "worker", 1, [int(pid)])
    assert record["time"] in line


def test_agent_and_daemon_are_killed(start: StartJob) -> None:
    job = start(nodes=3, active=2, policy=ALLOWED, timeouts=QUICK)
    for rank in (0, 1):
        job.worker(rank)
    agent = job.pid("agent", "node1", 1)
    assert f"kill agent node=node1 pid={agent}\n" in done(job, "kill", "agent", "--node", "node1")
    job.wait("agent_lost", "node1")
    for rank in (0, 1):
        job.worker(rank, restart=1)
    daemon = job.pid("daemon", "node1")
    assert f"kill daemon node=node1 pid={daemon}\n" in done(job, "kill", "daemon", "--node", "node1")
    assert job.worker(1, restart=2).said == "node2"
    job.finish()
    job.assert_end(0, "success", dead=["node1"])


def test_the_coordinator_in_charge_is_killed_and_the_training_goes_on(start: StartJob) -> None:
    job = start(nodes=3, active=3, policy=ALLOWED)
    before = [job.worker(rank)["pid"] for rank in (0, 1, 2)]
    for node in ("node1", "node2"):
        job.wait("listening", node)
    pid = job.pid("coordinator", "node0")
    assert f"kill coordinator node=node0 pid={pid}\n" in done(job, "kill", "coordinator")
    charge = job.wait("in_charge", takeover=True)
    second = job.pid("coordinator", charge.said)
    until(lambda: f"node={charge.said} pid={second}" in done(job, "kill", "coordinator", "--dry-run"), "its turn")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")
    assert [job.worker(rank)["pid"] for rank in (0, 1, 2)] == before


def test_a_node_is_killed_with_all_that_its_workers_have_started(start: StartJob) -> None:
    job = start(nodes=3, active=2, worker=["family"], policy=ALLOWED, timeouts=QUICK)
    for kind in ("worker", "child", "orphan"):
        job.worker(1, kind=kind)
    before = job.processes("node1")
    line = done(job, "kill", "node", "--node", "node1")
    assert not job.processes("node1")
    (record,) = recorded(job)
    assert set(before) <= set(record["pids"]) and record["pids"][0] == job.pid("daemon", "node1")
    assert "kill node node=node1 pid=" in line
    job.worker(1, restart=1)
    job.finish()
    job.assert_end(0, "success", dead=["node1"])


# -- freeze, and what undoes it


def test_worker_and_agent_are_frozen_for_a_while(start: StartJob, tool: Tool) -> None:
    job = start(nodes=2, active=2, policy=ALLOWED, timeouts=CALM)
    pids = {"worker": int(job.worker(1)["pid"]), "agent": job.pid("agent", "node1")}
    for target, pid in pids.items():
        process = tool(job, "freeze", target, "--node", "node1", "--for", "2s")
        assert f"freeze {target} node=node1" in first_line(process)
        assert state(pid) == "T"
        assert f"thaw {target} node=node1" in first_line(process)
        assert process.wait(BOUND) == 0 and state(pid) not in ("T", "")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")
    assert acts(job) == [(act, target, "node1") for target in pids for act in ("freeze", "thaw")]


def test_a_frozen_node_thaws_although_the_tool_was_killed(start: StartJob, tool: Tool) -> None:
    job = start(nodes=2, active=2, worker=["family"], policy=ALLOWED, timeouts=CALM)
    job.worker(1, kind="orphan")
    job.worker(1)
    process = tool(job, "freeze", "node", "--node", "node1", "--for", "4s")
    assert "freeze node" in first_line(process)
    everything = job.processes("node1")
    assert frozen(everything) == set(everything) and len(everything) >= 5
    process.kill()
    until(lambda: not frozen(everything), "the thaw")
    until(lambda: acts(job) == [("freeze", "node", "node1"), ("thaw", "node", "node1")], "its record")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_thaws(start: StartJob, tool: Tool, number: signal.Signals) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED, timeouts=CALM)
    worker = int(job.worker(0)["pid"])
    process = tool(job, "freeze", "worker", "--rank", "0", "--for", LONG)
    first_line(process)
    assert state(worker) == "T"
    process.send_signal(number)
    out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (130, "") and "thaw worker" in out
    assert state(worker) != "T"
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")


def test_a_pipe_that_closes_thaws_and_a_disk_that_is_full(start: StartJob) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED, timeouts=CALM)
    worker = int(job.worker(0)["pid"])
    reading, writing = os.pipe()
    os.close(reading)
    line = words(job, "freeze", "worker", "--rank", "0", "--for", LONG)
    for stdout, code, said in ((writing, 1, ""), (os.open("/dev/full", os.O_WRONLY), 2, "No space left")):
        told = subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=BOUND, env=ENVIRON)
        os.close(stdout)
        assert told.returncode == code and said in told.stderr and told.stderr.count("\n") == bool(said)
        assert state(worker) not in ("T", "")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")
    assert [act for act, _, _ in acts(job)] == ["freeze", "thaw"] * 2


def test_thaw_ends_a_freeze_and_says_when_there_is_none(start: StartJob, tool: Tool) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED, timeouts=CALM)
    job.worker(0)
    assert_refused(fault(job, "thaw", "node", "--node", "node0"), 3, "no node of node0 is frozen")
    process = tool(job, "freeze", "node", "--node", "node0", "--for", LONG)
    first_line(process)
    everything = job.processes("node0")
    again = fault(job, "freeze", "node", "--node", "node0", "--for", "1s")
    assert_refused(again, 3, "frozen already", "fault thaw node")
    assert frozen(everything) == set(everything)
    assert "thaw node" in done(job, "thaw", "node", "--node", "node0")
    until(lambda: not frozen(everything), "the thaw")
    assert "thawed by somebody else" in first_line(process) and process.wait(BOUND) == 0
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")


def hand_line(hit: Hit) -> list[str]:
    """The command of an executor, without the tool that starts it."""
    return [sys.executable, "-P", "-m", "ft_supervisor.fault.executor", encode(hit).decode()]


def test_the_hand_notices_a_thaw_that_comes_at_once(start: StartJob) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED, timeouts=CALM)
    worker = int(job.worker(0)["pid"])
    hit = Hit(job.run_folder.name, "node0", Verb.FREEZE, Target.WORKER, 0, 600.0)
    line = hand_line(hit)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRON) as hand:
        assert json.loads(first_line(hand))["act"] == "freeze"
        os.kill(worker, signal.SIGCONT)
        thaw = json.loads(first_line(hand))
        assert (thaw["act"], thaw["note"], hand.wait(BOUND)) == ("thaw", "thawed by somebody else", 0)
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")


def test_the_hand_thaws_when_its_step_is_cancelled_and_ends_with_the_last_of_its_victims(start: StartJob) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED, timeouts=CALM)
    worker = int(job.worker(0)["pid"])
    hit = Hit(job.run_folder.name, "node0", Verb.FREEZE, Target.WORKER, 0, 600.0)
    line = hand_line(hit)
    for end in (lambda hand: hand.terminate(), lambda _: os.kill(worker, signal.SIGKILL)):
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRON) as hand:
            assert json.loads(first_line(hand))["act"] == "freeze"
            assert state(worker) == "T"
            end(hand)
            thaw = json.loads(first_line(hand))
            assert (thaw["act"], hand.wait(BOUND)) == ("thaw", 0)
    assert thaw["note"] == "all are dead"
    job.worker(0, restart=1)
    late = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND, env=ENVIRON)
    assert late.returncode == 75 and "nothing was done" in late.stdout
    assert len(recorded(job)) == 4
    job.finish()
    job.assert_end(0, "success")


# -- later


def test_at_a_step(start: StartJob, tool: Tool) -> None:
    job = start(nodes=1, active=1, worker=["checkpoints"], policy=ALLOWED, job={"checkpoint": {"step_file": "step"}})
    worker = int(job.worker(0)["pid"])
    (job.folder / "next-step").write_text("99")
    until((job.folder / "step").exists, "a checkpoint")
    told = fault(job, "kill", "worker", "--rank", "0", "--at-step", "100", "--wait", "1s")
    assert_refused(told, 75, "step 100 was not reached within 1 s", "step 99")
    process = tool(job, "kill", "worker", "--rank", "0", "--at-step", "100")
    assert state(worker) and process.poll() is None
    (job.folder / "next-step").write_text("101")
    assert f"pid={worker}" in first_line(process)
    job.worker(0, restart=1)
    process = tool(job, "kill", "worker", "--rank", "0", "--at-step", "1000")
    job.finish()
    job.assert_end(0, "success")
    assert process.wait(BOUND) == 3
    assert process.stderr is not None and "has ended" in process.stderr.read()


def test_a_schedule_is_the_seeds_and_is_played(start: StartJob) -> None:
    job = start(nodes=2, active=2, policy=ALLOWED)
    for rank in (0, 1):
        job.worker(rank)
    often = ("--random", "--seed", "7", "--every", "1s", "--count", "3")
    first, again = (done(job, "kill", "worker", *often, "--dry-run") for _ in range(2))
    assert first == again and first.startswith("seed 7: 3 faults within ") and "; now that is worker" in first
    assert recorded(job) == [] and not job.all("restart")
    lines = done(job, "kill", "worker", *often).splitlines()
    assert [line.partition(";")[0] for line in first.splitlines()] == lines[:4]
    said = [line for line in lines[4:] if " kill worker node=" in line or line.startswith("nothing to kill")]
    assert len(said) == 3 and len(recorded(job)) >= 1
    assert {record["seed"] for record in recorded(job)} == {7}
    job.wait("restart", used=len(recorded(job)))
    job.finish()
    job.assert_end(0, "success")


# -- refusals


def test_what_the_policy_does_not_allow_is_not_done(start: StartJob) -> None:
    job = start(nodes=1, active=1)
    worker = int(job.worker(0)["pid"])
    # The file is not what the daemon runs by.
    (job.folder / "job.yaml").write_text((job.folder / "job.yaml").read_text().replace("{}", json.dumps(ALLOWED)))
    for deed in ("kill", "freeze", "thaw"):
        assert_refused(fault(job, deed, "worker", "--rank", "0"), 4, "faults.allow: false", job.run_folder.name)
    hit = Hit(job.run_folder.name, "node0", Verb.KILL, Target.WORKER, 0)
    line = hand_line(hit)
    hand = subprocess.run(line, capture_output=True, text=True, timeout=BOUND, env=ENVIRON)
    assert hand.returncode == 4 and "faults.allow: false" in hand.stdout
    assert state(worker) not in ("T", "Z", "")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")
    assert recorded(job) == []


def test_whom_it_does_not_find(start: StartJob) -> None:
    job = start(nodes=2, active=1, policy=ALLOWED, timeouts=QUICK)
    job.worker(0)
    until(lambda: job.pid("agent", "node1"), "the standby")
    assert_refused(fault(job, "kill", "worker", "--rank", "5"), 3, "no worker of rank 5")
    assert_refused(fault(job, "kill", "worker", "--node", "node1"), 3, "no worker runs on node1")
    assert_refused(fault(job, "kill", "node", "--node", "node7"), 3, "node7", "node0, node1")
    assert_refused(fault(job, "kill", "node"), 2, "which node?", "--node", "node0, node1")
    assert_refused(fault(job, "cut", "node", "--node", "node1"), 4, "share this machine's network", "freeze node")
    job.kill_nodes("node1")
    assert_refused(fault(job, "kill", "daemon", "--node", "node1"), 3, "no daemon lives on node1; there are node0")
    job.finish()
    job.assert_end(0, "success", dead=["node1"])
    assert_refused(fault(job, "kill", "worker", "--rank", "0"), 3, "has ended", "success")


AS_NOBODY = """\
import os, sys
from ft_supervisor.fault import executor, request, shell
from ft_supervisor.fault.messages import Target, Verb
from ft_supervisor.observe import runs
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
if sys.argv[1] == "executor":
    executor.main(sys.argv[2:])
run = sys.argv[1]
sys.exit(shell.run(request.Request(Verb.KILL, Target.WORKER, runs.parse(run), run, rank=0), os.environ, print))
"""
"""The command, by another user, who may not be allowed to read this Python: it is loaded before."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_is_refused(start: StartJob) -> None:
    job = start(nodes=1, active=1, policy=ALLOWED)
    worker = int(job.worker(0)["pid"])

    def as_nobody(*rest: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-P", "-c", AS_NOBODY, *rest]
        return subprocess.run(line, capture_output=True, text=True, timeout=BOUND, env=ENVIRON, cwd="/")

    told = as_nobody(job.run_folder.name)
    if told.returncode == 4:  # where others may look into our folder in /tmp
        assert_refused(told, 4, "belongs to uid 0, not to you (uid 65534)")
    else:
        assert_refused(told, 3, "no job", "of yours")
    told = as_nobody("executor", encode(Hit(job.run_folder.name, "node0", Verb.KILL, Target.WORKER, 0)).decode())
    assert told.returncode == 3 and "no daemon of run" in told.stdout
    assert state(worker) not in ("T", "Z", "")
    job.finish()
    job.assert_end(0, "success", "cycle 0.0")
