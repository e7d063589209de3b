"""Kill or freeze the coordinator, alone or with its node: another one takes charge, and the job goes on."""

import json
import os
import signal
from datetime import timedelta
from functools import partial

import pytest
from tests.processes.harness import BOUND, CALM, QUICK, Job, StartJob, until
from tests.processes.lines import Line
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.core.protocol.messages import WorkersFailed
from ft_supervisor.core.protocol.model import Cycle, Failure
from ft_supervisor.store.keys import Keys

HASTY = {"coordinator": "2s", "fence": "15s", "node_lost": "25s", "agent": "20s"}
"""For tests that wait for the coordinator to be called silent, and for nothing else."""
LOADED = 15.0
"""Seconds that a loaded machine may take for a step that takes next to none otherwise."""


@pytest.fixture
def start(start: StartJob) -> StartJob:
    """Return start(nodes=, active=, ...), which starts a Job with three candidates unless the test says otherwise."""
    return partial(start, candidates=3)


def in_place(job: Job, active: int) -> list[Line]:
    """Wait until all workers run, the others stand by and all candidates listen; return the workers' lines by rank."""
    workers = [job.worker(rank) for rank in range(active)]
    for node in job.nodes[active:]:
        job.wait("standby", node)
    until(lambda: len(job.all("coordinator_listens")) >= job.candidates, "a listening coordinator of each candidate")
    return workers


def in_charge(job: Job, above: int = 0) -> Line:
    """Wait for a coordinator in charge in a later term than `above`; return its line."""
    return until(
        lambda: next((line for line in job.all("in_charge") if int(line["term"]) > above), None),
        f"a coordinator in charge in a term above {above}",
    )


def assert_untouched(job: Job, workers: list[Line]) -> None:
    """Check that these workers, and no others, have been started, and still run."""
    pids = {int(line["pid"]) for line in workers}
    assert pids <= set(job.processes()), job.output
    assert len(job.all("worker")) == len(workers), job.output


def test_numbers_that_cannot_be_make_nobody_deaf(start: StartJob) -> None:
    """One message of a stranger, by torch's plain client, into the inbox of a job that trains."""
    job = start(nodes=2, active=2)
    workers = in_place(job, 2)
    file = job.run_folder / "addr" / "0"
    address = json.loads(until(lambda: file.read_text() if file.exists() else None, "node0's address"))
    bound = timedelta(seconds=BOUND)
    stranger = TCPStore(address["host"], address["port"], wait_for_workers=False, timeout=bound)
    failure = Failure(0, 0, exit_code=1, time=4.5)
    real = encode(WorkersFailed(0, 0, 1, Cycle(0, 0), (failure,)))
    stranger.queue_push(Keys(job.run_folder.name).inbox, real.replace(b"4.5", b"1" + b"0" * 400))
    job.wait("message_dropped", "node0")
    assert_untouched(job, workers)
    job.fail(workers[1])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.1 exited with 0")
    assert not job.all("coordinator_lost") and not job.all("coordinator_failed")


def test_a_killed_coordinator_and_then_its_successor_disturb_nobody(start: StartJob) -> None:
    job = start(nodes=3, active=2)
    workers = in_place(job, 2)
    assert "survives" in job.wait("job", "node0").text
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    first = in_charge(job)
    for node in job.nodes:
        job.wait("promised", node, term=first["term"])
    assert_untouched(job, workers)
    job.wait("coordinator_lost", "node0")
    until(lambda: len(job.all("coordinator_listens", "node0")) == 2, "the first one's return")
    os.kill(job.pid("coordinator", first.said), signal.SIGKILL)
    second = in_charge(job, above=int(first["term"]))
    for node in job.nodes:
        job.wait("promised", node, term=second["term"])
    assert_untouched(job, workers)
    # And it decides: a failure means a new cycle, in its term.
    job.fail(workers[1])
    for rank in (0, 1):
        job.worker(rank, restart=1)
    assert job.wait("restart", used=1)["reason"].startswith("rank 1 (node1, local 0) exited with 1")
    job.finish()
    job.assert_end(0, "success", f"all workers of cycle {second['term']}.1 exited with 0")
    assert not job.all("fenced") and not job.all("node_lost") and not job.all("agent_lost")


def test_killed_while_it_waits_for_workers_to_stop(start: StartJob) -> None:
    job = start(nodes=3, active=2, worker=["deaf", "family"], timeouts=CALM | {"restart_grace": "8s"})
    workers = in_place(job, 2)
    former = {int(line["pid"]) for kind in ("worker", "child", "orphan") for line in job.all(kind)}
    assert len(former) == 6
    job.fail(workers[1])
    job.wait("deaf", "node0")
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    successor = in_charge(job)
    for rank in (0, 1):
        assert job.worker(rank, restart=1).said == f"node{rank}"
        assert not former & set(job.processes()), job.output
    job.finish()
    job.assert_end(0, "success", f"all workers of cycle {successor['term']}.1 exited with 0")


@pytest.mark.parametrize(
    "moment",
    [pytest.param("before_anybody_came", marks=pytest.mark.slow("one_is_missing, and simulation")), "one_is_missing"],
)
def test_killed_while_nodes_are_joining(start: StartJob, moment: str) -> None:
    job = start(nodes=3, active=2)
    late = job.pid("agent", "node2")
    os.kill(late, signal.SIGSTOP)  # it has not even loaded what it needs
    coordinator = job.pid("coordinator", "node0")
    if moment == "one_is_missing":
        for rank in (0, 1):
            job.wait("registered", infra_rank=rank)
    os.kill(coordinator, signal.SIGKILL)
    job.wait("coordinator_lost", "node0")
    os.kill(late, signal.SIGCONT)
    workers = [job.worker(rank) for rank in (0, 1)]
    assert len({line.said for line in workers}) == 2
    job.wait("in_charge", takeover=True)
    job.finish()
    job.assert_end(0, "success", "exited with 0")
    assert len(job.all("worker")) == 2 and not job.all("restart")


def test_a_frozen_coordinator_that_goes_on_later_harms_nothing(start: StartJob) -> None:
    job = start(nodes=3, active=2, timeouts=HASTY)
    workers = in_place(job, 2)
    frozen = job.pid("coordinator", "node0")
    os.kill(frozen, signal.SIGSTOP)
    successor = in_charge(job)
    for node in job.nodes:
        job.wait("promised", node, term=successor["term"])
    os.kill(frozen, signal.SIGCONT)
    assert successor.said != "node0"
    # It knows from its own clock, or from nobody's answers, that it may decide nothing.
    until(
        lambda: job.all("majority_lost", "node0") or job.all("stepped_down", "node0"),
        "that the former coordinator sees that it is alone",
    )
    assert_untouched(job, workers)
    job.fail(workers[0])
    for rank in (0, 1):
        assert job.worker(rank, restart=1).said == f"node{rank}"
    job.finish()
    job.assert_end(0, "success", "exited with 0")
    assert len(job.all("worker")) == 4 and len(job.all("cycle_started", "node0")) == 1


@pytest.mark.slow("test_daemon_coordinators.py::test_coordinators_that_crash_or_hang_are_replaced_and_the_agent_stays")
def test_a_coordinator_that_stays_frozen_is_replaced_by_its_daemon(start: StartJob) -> None:
    job = start(nodes=2, active=1, timeouts=CALM | {"agent": "3s"}, candidates=1)
    workers = in_place(job, 1)
    os.kill(job.pid("coordinator", "node0"), signal.SIGSTOP)
    job.wait("coordinator_silent", "node0")
    assert job.wait("coordinator_lost", "node0")["status"] == "killed by SIGKILL"
    assert in_charge(job).said == "node0"  # the only candidate
    assert_untouched(job, workers)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 0.0 exited with 0")


def test_the_first_node_dies_and_a_spare_takes_its_place(start: StartJob) -> None:
    job = start(nodes=3, active=2, worker=["family"], timeouts=QUICK)
    in_place(job, 2)
    survivor = int(job.worker(1)["pid"])
    job.kill_nodes("node0")
    successor = in_charge(job)
    lost = job.wait("node_lost", node="node0")
    assert job.wait("promoted", node="node2")["instead_of"] == "node0"
    assert job.worker(0, restart=1).said == "node2"
    assert job.worker(1, restart=1).said == "node1"
    assert survivor not in job.processes()
    assert job.worker(0, restart=1).at - lost.at < LOADED
    assert lost.said == successor.said
    until(lambda: job.all("members", members="1-2"), "a list of members without the dead one")
    job.finish()
    job.assert_end(0, "success", f"all workers of cycle {successor['term']}.1 exited with 0", dead=["node0"])


def test_the_coordinators_node_dies_as_a_standby_and_training_goes_on(start: StartJob) -> None:
    job = start(nodes=3, active=2, timeouts=QUICK, candidates=[2, 0, 1])
    workers = in_place(job, 2)
    job.kill_nodes("node2")
    assert in_charge(job, above=2).said != "node2"
    job.wait("node_lost", node="node2")
    assert_untouched(job, workers)
    job.finish()
    job.assert_end(0, "success", "all workers of cycle 2.0 exited with 0", dead=["node2"])
    assert len(job.all("worker")) == 2


def test_two_of_three_candidates_die_at_once(start: StartJob) -> None:
    job = start(nodes=5, active=3, timeouts=QUICK)
    in_place(job, 3)
    job.kill_nodes("node0", "node1")
    assert in_charge(job).said == "node2"
    workers = [job.worker(rank, restart=1) for rank in range(3)]
    assert {line.said for line in workers} == {"node2", "node3", "node4"}
    assert workers[2].said == "node2"  # survivors keep their rank
    job.finish()
    job.assert_end(0, "success", "exited with 0", dead=["node0", "node1"])


def test_without_a_majority_all_leave_with_75_and_no_verdict(start: StartJob) -> None:
    """The first of four and another one: half of them are left, without the first."""
    job = start(nodes=4, active=3, worker=["deaf"], timeouts=QUICK | {"takeover": "14s"})
    in_place(job, 3)
    job.kill_nodes("node0", "node3")
    fenced = [job.wait("fenced", node) for node in ("node1", "node2")]
    job.assert_end(75, None, dead=["node0", "node3"])
    left = [line for line in job.all("leaving", proc="daemon") if line.said in ("node1", "node2")]
    assert {line["reason"] for line in left} == {"no coordinator with a majority for 14 s"}
    # From the last lease: the fence first, and the end as soon as nobody can come any more.
    assert max(line.at for line in left) - min(line.at for line in fenced) < 14 - 8 + LOADED
    assert len(job.all("worker")) == 3 and len(job.all("in_charge")) == 1


SUCCESS = ("success", 0, "all workers of cycle 0.0 exited with 0")
FAILED = ("failed", 1, "no restarts allowed: rank 0 (node0, local 0) exited with 1")
elsewhere = pytest.mark.slow("the same with the other verdict")


@pytest.mark.parametrize(
    ("outcome", "code", "reason", "kept"),
    [
        pytest.param(*SUCCESS, "by_one", marks=elsewhere),
        (*SUCCESS, "by_who_knows"),
        (*FAILED, "by_one"),
        pytest.param(*FAILED, "by_who_knows", marks=elsewhere),
    ],
)
def test_killed_between_its_proposal_and_the_end(
    start: StartJob, outcome: str, code: int, reason: str, kept: str
) -> None:
    """With agents that cannot accept the proposal, and with ones that may just have."""
    job = start(nodes=3, active=1, max_restarts=0)
    (worker,) = in_place(job, 1)
    others = [job.pid("agent", node) for node in ("node1", "node2")] if kept == "by_one" else []
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    if outcome == "success":
        job.finish()
    else:
        job.fail(worker)
    job.wait("proposed", "node0", outcome=outcome)
    os.kill(job.pid("coordinator", "node0"), signal.SIGKILL)
    job.thaw(others)
    job.assert_end(code, outcome, reason)
    if kept == "by_one":
        assert int(in_charge(job)["term"]) > 0
    assert len(job.all("worker")) == 1


@pytest.mark.parametrize("node", ["node0", pytest.param("node1", marks=pytest.mark.slow("node0"))])
def test_a_frozen_node_comes_back_as_a_standby(start: StartJob, node: str) -> None:
    """Longer than node_lost; with the coordinator, and without."""
    job = start(nodes=3, active=2, worker=["family"], timeouts=QUICK)
    in_place(job, 2)
    former = {int(line["pid"]) for kind in ("worker", "child", "orphan") for line in job.all(kind, node)}
    assert len(former) == 3
    frozen = job.freeze(node)
    lost = job.wait("node_lost", node=node)
    workers = [job.worker(rank, restart=1) for rank in (0, 1)]
    assert {line.said for line in workers} == {"node0", "node1", "node2"} - {node}
    job.thaw(frozen)
    until(lambda: not former & set(job.processes(node)), "the end of the frozen node's workers")
    until(lambda: [line for line in job.all("standby", node) if line.at > lost.at], f"{node} standing by")
    until(lambda: [line for line in job.all("registered", node=node) if line.at > lost.at], f"{node} being a member")
    assert {int(line["pid"]) for line in workers} <= set(job.processes())
    job.finish()
    job.assert_end(0, "success", "exited with 0")
    assert len(job.all("worker")) == 4 and len(job.all("worker", node)) == 1
