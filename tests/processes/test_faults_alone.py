"""Run `ft-supervisor fault` against jobs of their own: kills that end a node, and a policy that allows no faults."""

import json
import subprocess

from tests.processes.faults import ALLOWED, ENVIRON, Tool, assert_refused, done, fault, hand_line, recorded, state
from tests.processes.harness import BOUND, QUICK, StartJob, until

from ft_supervisor.fault.messages import Hit, Target, Verb


def test_agent_node_and_daemon_are_killed(start: StartJob, tool: Tool) -> None:
    steps = {"checkpoint": {"step_file": "step"}}
    job = start(nodes=4, active=2, worker=["family", "checkpoints"], policy=ALLOWED, timeouts=QUICK, job=steps)
    for rank in (0, 1):
        job.worker(rank)
    agent = job.pid("agent", "node1", 1)
    assert f"kill agent node=node1 pid={agent}\n" in done(job, "kill", "agent", "--node", "node1")
    job.wait("agent_lost", "node1")
    for rank in (0, 1):
        for kind in ("worker", "child", "orphan"):
            job.worker(rank, restart=1, kind=kind)
    first = job.worker(1, restart=1).said  # another than node1, where the machine was too slow for its new agent
    before = job.processes(first)
    assert f"kill node node={first} pid=" in done(job, "kill", "node", "--node", first)
    assert not job.processes(first)
    record = recorded(job)[-1]
    assert set(before) <= set(record["pids"]) and record["pids"][0] == job.pid("daemon", first)
    taken = job.worker(1, restart=2).said
    spares = {"node1", "node2", "node3"} - {first}
    assert taken in spares
    daemon = job.pid("daemon", taken)
    assert f"kill daemon node={taken} pid={daemon}\n" in done(job, "kill", "daemon", "--node", taken)
    (left,) = spares - {taken}
    assert job.worker(1, restart=3).said == left
    gone = fault(job, "kill", "daemon", "--node", first)
    assert_refused(gone, 3, f"no daemon lives on {first}; there are node0, {left}")
    late = tool(job, "kill", "worker", "--rank", "0", "--at-step", "1000")
    job.finish()
    job.assert_end(0, "success", dead=[first, taken])
    assert late.wait(BOUND) == 3
    assert late.stderr is not None and "has ended" in late.stderr.read()
    assert_refused(fault(job, "kill", "worker", "--rank", "0"), 3, "has ended", "success")


def test_the_coordinator_in_charge_is_killed_and_the_training_goes_on(start: StartJob) -> None:
    job = start(nodes=3, active=3, policy=ALLOWED, candidates=3)
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
