"""Clusters' policies on a real Slurm: its own events, its topology, sick nodes, hangs; and what sacct says then."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm_lab.conftest import QUICK_REQUEUE, STANDARD
from tests.slurm_lab.jobs import EATS, JOB, STEPS, TRAPS, submit

from slurm_lab import LAB_USER, Lab, Parameters

PREEMPTION = replace(
    STANDARD,
    conf_lines=(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *QUICK_REQUEUE,
        "PartitionName=low Nodes=ALL PriorityTier=1 GraceTime=60",
        "PartitionName=high Nodes=ALL PriorityTier=10",
    ),
)
CGROUP = Path(f"/sys/fs/cgroup/memory/ft-lab-out-of-memory-{os.getpid()}")  # two releases may be at it


def policy(text: str, **job: str) -> str:
    """The usual job.yaml with further keys, and this policy."""
    keys = "".join(f"{key}: {value}\n" for key, value in job.items())
    return f"{JOB}{keys}policy:\n" + "".join(f"  {line}\n" for line in text.splitlines())


@pytest.fixture
def up(release_lab: Lab) -> Lab:
    """For tests that need a cluster of their own."""
    return release_lab


def bring(lab: Lab, parameters: Parameters) -> Lab:
    lab.renew(parameters)
    return lab


# -- Slurm's own events


def test_a_preempted_job_is_requeued_and_resumes(up: Lab) -> None:
    lab = bring(up, PREEMPTION)
    config = policy("interruption: {requeue: true, grace: 20s, before_end: 0s}")
    options = ("--partition=low", "--exclusive", "--requeue")
    job = submit(lab, "preempted", config=config, options=options, first=0.25)
    job.train(steps=6)
    high = lab.submit(
        "#!/bin/sh\nsleep 5\n", "--partition=high", "--exclusive", "-N4", "--output=/dev/null", user=LAB_USER
    )
    job.wait("the verdict", job.verdict)
    verdict = job.verdict() or {}
    assert (verdict["outcome"], verdict["again"]) == ("interrupted", "requeue")
    assert verdict["reason"] == "preempted by Slurm"
    lab.wait_job(high, 180.0)
    job.wait("the second run", lambda: len(job.runs()) == 2)
    job.ends("COMPLETED", "0:0")
    assert len(job.runs()) == 2, "Slurm ran it once more"
    rows = job.rows(0)
    assert rows[-1]["step"] == STEPS and rows[-1]["resumed_from"] > 0
    former = job.states(duplicates=True)
    assert former[-1] == "COMPLETED" and {"REQUEUED", "PREEMPTED"} & set(former)


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
def test_an_array_task_is_requeued_by_a_rule(up: Lab) -> None:
    lab = bring(up, PREEMPTION)
    config = policy("failures: [{match: {signal: SIGKILL}, action: stop_for_requeue}]")
    options = ("--partition=low", "--requeue", "--array=3")
    job = submit(lab, "array", config=config, options=options, first=0.2)
    job.train(steps=6)
    os.kill(job.worker("n1").pid, signal.SIGKILL)
    job.wait("the second run", lambda: len(job.runs()) == 2)
    job.ends("COMPLETED", "0:0")
    rows = job.rows(0)
    assert rows[-1]["step"] == STEPS and rows[-1]["resumed_from"] > 0
    assert "stopped for a requeue: rank 1 (n1, local 0) was killed by SIGKILL" in job.output
    assert job.states(duplicates=True) == ["REQUEUED", "COMPLETED"]


@pytest.mark.slow
def test_the_time_limit(lab: Lab) -> None:
    config = policy("interruption: {before_end: 40s, grace: 10s}")
    job = submit(lab, "time-limit", config=config, options=("--time=2",), first=2.0, within=TRAPS)
    job.train()
    job.ends("FAILED", "75:0")
    assert job.signals() == dict.fromkeys(("n0", "n1", "n2"), "SIGTERM")
    job.check_codes(75)
    verdict = job.verdict() or {}
    assert verdict["outcome"] == "interrupted" and verdict["reason"].startswith("Slurm's time limit in ")
    assert 0 < job.rows(0)[-1]["step"] < STEPS


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
def test_a_changed_time_limit_counts(lab: Lab) -> None:
    config = policy("interruption: {before_end: 40s, grace: 10s, poll: 2s}")
    job = submit(lab, "changed-limit", config=config, options=("--time=2",), first=0.3)
    job.train()
    lab.run(["scontrol", "update", f"jobid={job.id}", "timelimit=60"])
    job.ends("COMPLETED", "0:0")
    job.check_trained()


@pytest.mark.slow
def test_a_drained_active_node_is_replaced_at_once(lab: Lab) -> None:
    config = policy("interruption: {drain: now, poll: 2s}")
    job = submit(lab, "drained", config=config)
    job.train()
    lab.run(["scontrol", "update", "nodename=n1", "state=drain", "reason=fan"])
    job.train(cycle=1)
    job.ends("COMPLETED", "0:0")
    job.check_trained(cycle=1)
    job.check_codes(0)
    assert "Slurm drains n1" in job.output
    assert " event=promoted node=n3 instead_of=n1 group_rank=1 " in job.output


# -- policies


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
def test_a_node_with_another_configuration_stays_out(lab: Lab) -> None:
    other = "if [ $SLURMD_NODENAME = n3 ]; then export FT_SUPERVISOR__TIMEOUTS__JOIN=5m; fi"
    before = "ft-supervisor --config job.yaml -- python train.py"
    after = f"sh -c '{other}; exec {before}'"
    job = submit(lab, "another", script="own_srun", replaced=(before, after), first=0.2)
    job.ends("COMPLETED", "0:0")
    job.check_trained()
    assert " event=leaving code=2 " in job.output
    why = r"the configuration here \(sha256 \w{64}\) is not n\d's \(\w{64}\): timeouts\.join: .{,2}5m.{,2} here"
    assert re.search(why, job.output)


# -- topology


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["tree", "block"])
def test_segments_stay_in_one_domain(up: Lab, topology: str) -> None:
    if topology == "block" and not up.release.has_block_topology:
        pytest.skip(f"Slurm {up.release.version} has no topology/block")
    lab = bring(up, replace(STANDARD, nodes=6, topology=topology))
    level = "switch" if topology == "tree" else "block"
    config = policy(f"topology: {{domain: {{source: slurm_topology, level: {level}}}}}")
    config = config.replace("nodes: {active: 3}", "nodes: {active: 4, segment: 2}")
    job = submit(lab, f"segments-{topology}", config=config, nodes=6, candidates=3)
    job.train()
    size = 3 if topology == "tree" else 2  # n0 to n2 are below one switch, n0 and n1 make one block
    domains = {f"n{index}": index // size for index in range(6)}
    before = job.group(0)
    assert len({domains[node] for node in before[:2]}) == len({domains[node] for node in before[2:]}) == 1
    victim = before[2]
    job.kill_node(victim, noticed=True)
    job.train(cycle=1)
    job.ends("COMPLETED", "0:0")
    after = job.group(1)
    assert victim not in after and after[:2] == before[:2]
    assert len({domains[node] for node in after[2:]}) == 1
    job.check_codes(0)


# -- nodes and workers


@pytest.mark.slow
def test_an_unhealthy_standby_is_never_promoted(lab: Lab) -> None:
    """Of five nodes two are spares; the nearer one turns sick."""
    check = "{name: link, command: [sh, -c, '! test -e sick-$SLURMD_NODENAME'], timeout: 30s, when: [start, standby]}"
    config = policy(f"health: {{interval: 1s, checks: [{check}]}}").replace("active: 3", "active: 2")
    job = submit(lab, "unhealthy", config=config)
    job.train()
    (job.folder / "sick-n2").touch()
    job.wait("the sick node's word", lambda: " event=unhealthy node=n2 " in job.output)
    job.kill_node("n1", noticed=True)
    job.train(cycle=1)
    job.ends("COMPLETED", "0:0")
    assert job.group(1) == ["n0", "n3"]
    job.check_codes(0)


@pytest.mark.slow
def test_a_hang(lab: Lab) -> None:
    rule = "failures: [{match: hang, action: replace_node, budget: {max: 2}}]"
    config = policy(rule, hang="{after: 5s, first: 120s}")
    job = submit(lab, "hang", config=config, beats=True)
    job.train()
    (job.folder / "silent-n1").touch()
    job.train(cycle=1)
    job.ends("COMPLETED", "0:0")
    job.check_trained(cycle=1)
    job.check_codes(0)
    assert "hangs: it alone sent no heartbeat" in job.output
    assert " event=replace_node " in job.output and "replaced=n1" in job.output
    (stacks,) = job.run_folder().glob("stacks/*/1.txt")
    assert "train.py" in stacks.read_text()


@pytest.mark.slow
def test_an_out_of_memory_kill(lab: Lab) -> None:
    if not CGROUP.parent.is_dir():
        pytest.skip("no memory controller of cgroup v1 on this machine")
    config = policy("failures: [{match: oom, action: fail, reason: the batch is too large}]")
    CGROUP.mkdir(exist_ok=True)
    try:
        (CGROUP / "memory.limit_in_bytes").write_text(str(1500 * 2**20))
        node = lab.machines()["n1"]
        for pid in (node.pid, *(process.pid for process in node.processes())):
            (CGROUP / "cgroup.procs").write_text(str(pid))
        job = submit(lab, "out-of-memory", config=config, within=EATS)
        job.train()
        (job.folder / "eat-n1").touch()
        job.ends("FAILED", "93:0")
        verdict = job.verdict() or {}
        assert verdict["reason"].startswith("the batch is too large: rank 1 (n1, local 0) ran out of memory")
    finally:
        end = time.monotonic() + 30.0
        while CGROUP.exists() and time.monotonic() < end:
            for number in (CGROUP / "cgroup.procs").read_text().split():
                with suppress(OSError):  # it has ended
                    (CGROUP.parent / "cgroup.procs").write_text(number)
            with suppress(OSError):  # a process is still on its way out
                CGROUP.rmdir()
            time.sleep(0.2)
        assert not CGROUP.exists()
