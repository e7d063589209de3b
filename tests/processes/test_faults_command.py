"""Run `ft-supervisor fault` against one job of `ft-supervisor local`: faults, their effects, and how they are undone.

The tests share the job: none of them ends a node, and each leaves both workers running.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.processes.faults import (
    ALLOWED,
    ENVIRON,
    SharedJob,
    Tool,
    acts,
    assert_refused,
    done,
    everything_recorded,
    fault,
    first_line,
    frozen,
    hand_line,
    recorded,
    state,
    words,
)
from tests.processes.harness import BOUND, until

from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.fault.messages import Hit, Target, Verb

shares = pytest.mark.xdist_group("shared")
"""Has one process of xdist run all tests of the shared job."""
LONG = "10m"
"""Longer than any test: a thaw within a test has another cause than the end of this time."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedJob]:
    """Run the job that tests share. At its end it must have restarted as often as they caused, and no more."""
    job = SharedJob(
        tmp_path_factory.mktemp("shared") / "job",
        nodes=3,
        active=2,
        worker=["family", "checkpoints"],
        policy=ALLOWED,
        max_restarts=100,
        job={"checkpoint": {"step_file": "step"}},
    )
    try:
        yield job
        job.finish()
        job.assert_end(0, "success", f"all workers of cycle 0.{job.restarts} exited with 0")
        assert not job.all("agent_lost") and not job.all("node_lost")
    finally:
        job.clean_up()


@pytest.fixture
def job(shared: SharedJob) -> SharedJob:
    """Return the shared job, with both workers running and no fault of this test recorded."""
    shared.workers()
    shared.wait("standby", "node2")
    shared.seen = len(everything_recorded(shared))
    return shared


@pytest.fixture
def undisturbed(job: SharedJob) -> Iterator[SharedJob]:
    """Return the shared job to a test that must not cause a restart, and check that it has not."""
    before = job.workers()
    yield job
    assert {int(line["pid"]) for line in before} <= set(job.processes()), job.output
    assert job.all("worker")[-2:] == sorted(before, key=lambda line: line.at), job.output


# -- kill


@shares
def test_a_worker_is_killed_by_its_rank(job: SharedJob) -> None:
    pid = job.workers()[1]["pid"]
    line = done(job, "kill", "worker", "--rank", "1")
    assert line.endswith(f"kill worker node=node1 rank=1 pid={pid}\n")
    job.restarted()
    assert "killed by SIGKILL" in job.all("restart")[-1]["reason"]
    (record,) = recorded(job)
    assert (record["act"], record["target"], record["rank"], record["pids"]) == ("kill", "worker", 1, [int(pid)])
    assert record["time"] in line


# -- freeze, and what undoes it


@shares
def test_worker_and_agent_are_frozen_for_a_while(undisturbed: SharedJob, tool: Tool) -> None:
    job = undisturbed
    pids = {"worker": int(job.workers()[1]["pid"]), "agent": job.pid("agent", "node1")}
    for target, pid in pids.items():
        process = tool(job, "freeze", target, "--node", "node1", "--for", "2s")
        assert f"freeze {target} node=node1" in first_line(process)
        assert state(pid) == "T"
        assert f"thaw {target} node=node1" in first_line(process)
        assert process.wait(BOUND) == 0 and state(pid) not in ("T", "")
    assert acts(job) == [(act, target, "node1") for target in pids for act in ("freeze", "thaw")]


@shares
def test_a_frozen_node_thaws_although_the_tool_was_killed(undisturbed: SharedJob, tool: Tool) -> None:
    job = undisturbed
    job.worker(1, job.restarts, kind="orphan")
    process = tool(job, "freeze", "node", "--node", "node1", "--for", "4s")
    assert "freeze node" in first_line(process)
    everything = job.processes("node1")
    assert frozen(everything) == set(everything) and len(everything) >= 5
    process.kill()
    until(lambda: not frozen(everything), "the thaw")
    until(lambda: acts(job) == [("freeze", "node", "node1"), ("thaw", "node", "node1")], "its record")


@shares
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_thaws(undisturbed: SharedJob, tool: Tool, number: signal.Signals) -> None:
    job = undisturbed
    worker = int(job.workers()[0]["pid"])
    process = tool(job, "freeze", "worker", "--rank", "0", "--for", LONG)
    first_line(process)
    assert state(worker) == "T"
    process.send_signal(number)
    out, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (130, "") and "thaw worker" in out
    assert state(worker) != "T"


@shares
def test_a_pipe_that_closes_thaws_and_a_disk_that_is_full(undisturbed: SharedJob) -> None:
    job = undisturbed
    worker = int(job.workers()[0]["pid"])
    reading, writing = os.pipe()
    os.close(reading)
    line = words(job, "freeze", "worker", "--rank", "0", "--for", LONG)
    for stdout, code, said in ((writing, 1, ""), (os.open("/dev/full", os.O_WRONLY), 2, "No space left")):
        told = subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=BOUND, env=ENVIRON)
        os.close(stdout)
        assert told.returncode == code and said in told.stderr and told.stderr.count("\n") == bool(said)
        assert state(worker) not in ("T", "")
    assert [act for act, _, _ in acts(job)] == ["freeze", "thaw"] * 2


@shares
def test_thaw_ends_a_freeze_and_says_when_there_is_none(undisturbed: SharedJob, tool: Tool) -> None:
    job = undisturbed
    assert_refused(fault(job, "thaw", "node", "--node", "node1"), 3, "no node of node1 is frozen")
    process = tool(job, "freeze", "node", "--node", "node1", "--for", LONG)
    first_line(process)
    everything = job.processes("node1")
    again = fault(job, "freeze", "node", "--node", "node1", "--for", "1s")
    assert_refused(again, 3, "frozen already", "fault thaw node")
    assert frozen(everything) == set(everything)
    assert "thaw node" in done(job, "thaw", "node", "--node", "node1")
    until(lambda: not frozen(everything), "the thaw")
    assert "thawed by somebody else" in first_line(process) and process.wait(BOUND) == 0


@shares
def test_the_hand_notices_a_thaw_that_comes_at_once(undisturbed: SharedJob) -> None:
    job = undisturbed
    worker = int(job.workers()[0]["pid"])
    hit = Hit(job.run_folder.name, "node0", Verb.FREEZE, Target.WORKER, 0, 600.0)
    line = hand_line(hit)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRON) as hand:
        assert json.loads(first_line(hand))["act"] == "freeze"
        os.kill(worker, signal.SIGCONT)
        thaw = json.loads(first_line(hand))
        assert (thaw["act"], thaw["note"], hand.wait(BOUND)) == ("thaw", "thawed by somebody else", 0)


@shares
def test_the_hand_thaws_when_its_step_is_cancelled_and_ends_with_the_last_of_its_victims(job: SharedJob) -> None:
    worker = int(job.workers()[0]["pid"])
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
    job.restarted()
    late = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND, env=ENVIRON)
    assert late.returncode == 75 and "nothing was done" in late.stdout
    assert len(recorded(job)) == 4


# -- later


@shares
def test_at_a_step(job: SharedJob, tool: Tool) -> None:
    worker = int(job.workers()[0]["pid"])
    (job.folder / "next-step").write_text("99")
    until((job.folder / "step").exists, "a checkpoint")
    told = fault(job, "kill", "worker", "--rank", "0", "--at-step", "100", "--wait", "1s")
    assert_refused(told, 75, "step 100 was not reached within 1 s", "step 99")
    process = tool(job, "kill", "worker", "--rank", "0", "--at-step", "100")
    assert state(worker) and process.poll() is None
    (job.folder / "next-step").write_text("101")
    assert f"pid={worker}" in first_line(process)
    job.restarted()


@shares
def test_a_schedule_is_the_seeds_and_is_played(job: SharedJob) -> None:
    often = ("--random", "--seed", "7", "--every", "1s", "--count", "3")
    first, again = (done(job, "kill", "worker", *often, "--dry-run") for _ in range(2))
    assert first == again and first.startswith("seed 7: 3 faults within ") and "; now that is worker" in first
    assert recorded(job) == [] and len(job.all("restart")) == job.restarts
    lines = done(job, "kill", "worker", *often).splitlines()
    assert [line.partition(";")[0] for line in first.splitlines()] == lines[:4]
    said = [line for line in lines[4:] if " kill worker node=" in line or line.startswith("nothing to kill")]
    assert len(said) == 3 and len(recorded(job)) >= 1
    assert {record["seed"] for record in recorded(job)} == {7}
    job.restarted(len(recorded(job)))


# -- refusals


@shares
def test_whom_it_does_not_find(undisturbed: SharedJob) -> None:
    job = undisturbed
    assert_refused(fault(job, "kill", "worker", "--rank", "5"), 3, "no worker of rank 5")
    assert_refused(fault(job, "kill", "worker", "--node", "node2"), 3, "no worker runs on node2")
    assert_refused(fault(job, "kill", "node", "--node", "node7"), 3, "node7", "node0, node1, node2")
    assert_refused(fault(job, "kill", "node"), 2, "which node?", "--node", "node0, node1, node2")
    assert_refused(fault(job, "cut", "node", "--node", "node1"), 4, "share this machine's network", "freeze node")
    assert recorded(job) == []


AS_NOBODY = """\
import os, sys
from ft_supervisor.fault import executor, request, shell
from ft_supervisor.fault.messages import Target, Verb
from ft_supervisor.run_folder import runs
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
if sys.argv[1] == "executor":
    executor.main(sys.argv[2:])
run = sys.argv[1]
sys.exit(shell.run(request.Request(Verb.KILL, Target.WORKER, runs.parse(run), run, rank=0), os.environ, print))
"""
"""The command, by another user, who may not be allowed to read this Python: it is loaded before."""


@shares
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_is_refused(undisturbed: SharedJob) -> None:
    job = undisturbed
    worker = int(job.workers()[0]["pid"])

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
