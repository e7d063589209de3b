"""No single point of failure, on a real Slurm: the coordinator, its node, the batch host die, and slurmctld is away.

Six nodes, of which four train.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.slurm_lab.chaos.job import NAMES, STEPS, ChaosJob, of, prepare, submit
from tests.slurm_lab.chaos.run import SIX
from tests.slurm_lab.chaos.strikes import COORDINATOR

from slurm_lab import LAB_USER, Lab

BOUND = 240.0
"""Seconds for everything that is waited for, on a machine that does other things too."""
STEP = 0.2
"""Seconds: so long that the training is not over before the takeover."""
LIST = "policy: {coordinator: {candidates: [5, 4]}}\n"


@pytest.fixture
def six(release_lab: Lab) -> Lab:
    """A healthy cluster of six idle nodes, n0 to n5, without jobs."""
    release_lab.renew(SIX)
    return release_lab


def until(job: ChaosJob, what: str, done: Callable[[], object]) -> None:
    end = time.monotonic() + BOUND
    while True:
        job.journals.read()
        if done():
            return
        assert time.monotonic() < end, f"{what}: not within {BOUND:.0f} s\n{told(job)}"
        time.sleep(0.05)


def told(job: ChaosJob) -> str:
    return job.output + "\n".join(f"{each.node} {each}" for each in job.journals.said)


def training(job: ChaosJob, *, steps: int = 5, candidates: int = 3) -> dict[str, int]:
    """Lets the job train once all candidates keep a coordinator; returns the pids of the workers by node."""
    until(job, "all coordinators", lambda: len(listening(job)) >= candidates)
    job.go()
    until(job, f"{steps} steps", lambda: len(job.rows()) >= steps)
    return workers(job)


def listening(job: ChaosJob) -> set[str]:
    return {each.node for each in job.journals.said if each.event == "coordinator_listens"}


def workers(job: ChaosJob) -> dict[str, int]:
    return {node: found[0].pid for node in NAMES if (found := job.workers(node))}


def taken_over(job: ChaosJob, former: int) -> str:
    """Waits until a coordinator is in charge in a later term than `former`; returns its node."""
    until(job, "a takeover", lambda: job.journals.term > former)
    return job.journals.in_charge()


def promoted(job: ChaosJob, dead: str) -> int | None:
    """The group_rank in which a standby replaced this node; None before that."""
    said = (each.fields for each in job.journals.said if each.event == "promoted")
    return next((fields["group_rank"] for fields in said if NAMES[fields["instead_of"]] == dead), None)


def kill_coordinator(job: ChaosJob, node: str) -> None:
    (process,) = job.processes(node, COORDINATOR)
    os.kill(process.pid, signal.SIGKILL)


def ends(job: ChaosJob, state: str = "COMPLETED", exit_code: str = "0:0") -> None:
    record = job.lab.wait_job(job.id, BOUND)
    assert (record.state, record.exit_code) == (state, exit_code), told(job)
    until(job, "nothing to be left", lambda: not any(map(job.lab.node_processes, NAMES)))


def assert_undisturbed(job: ChaosJob) -> None:
    """One cycle has made all steps."""
    assert [(row["cycle"], row["step"]) for row in job.rows()] == [(0, step + 1) for step in range(STEPS)], told(job)


def test_coordinator_process_killed(six: Lab) -> None:
    job = submit(six, "takeover-process", step_time=STEP, hold=True)
    before = training(job)
    assert sorted(before) == ["n0", "n1", "n2", "n3"]
    term = job.journals.term
    kill_coordinator(job, job.journals.in_charge())
    taken_over(job, term)
    assert workers(job) == before
    ends(job)
    assert_undisturbed(job)
    assert job.codes() == dict.fromkeys(NAMES, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
def test_standby_that_holds_the_coordinator_dies(six: Lab) -> None:
    job = submit(six, "takeover-standby", step_time=STEP, hold=True, config=LIST)
    before = training(job, candidates=2)
    holder, other = {"n5": ("n5", "n4"), "n4": ("n4", "n5")}[job.journals.in_charge()]
    assert not {holder, other} & before.keys()
    term = job.journals.term
    six.kill_node(holder)
    assert taken_over(job, term) == other
    assert workers(job) == before
    ends(job)
    assert_undisturbed(job)
    assert job.codes() == {node: 0 for node in NAMES if node != holder}


def test_batch_host_dies_and_nobody_tells_slurm(six: Lab) -> None:
    job = submit(six, "takeover-batch-host", step_time=STEP, hold=True)
    training(job)
    term = job.journals.term
    six.kill_node("n0")
    assert taken_over(job, term) != "n0"
    until(job, "a promotion", lambda: promoted(job, "n0") is not None)
    assert promoted(job, "n0") == 0
    ends(job)
    rows = job.rows()
    assert rows[-1]["step"] == STEPS
    assert rows[-1]["resumed_from"] > 0
    assert (job.verdict() or {})["outcome"] == "success"
    assert job.codes() == dict.fromkeys(NAMES[1:], 0)


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
def test_slurmctld_is_away_during_a_takeover_and_at_the_end(six: Lab) -> None:
    job = submit(six, "takeover-slurmctld", step_time=STEP, hold=True)
    before = training(job)
    six.stop_daemon("slurmctld")
    term = job.journals.term
    kill_coordinator(job, job.journals.in_charge())
    taken_over(job, term)
    assert workers(job) == before
    until(job, "all daemons to leave", lambda: len(job.codes()) == len(NAMES))
    assert job.codes() == dict.fromkeys(NAMES, 0)
    assert_undisturbed(job)
    six.start_daemon("slurmctld")
    ends(job)


ALLOCATION = f"--nodes={len(NAMES)} --ntasks-per-node=1 --no-kill"
PROGRAM = Path(sys.prefix) / "bin/ft-supervisor"


@pytest.mark.slow
@pytest.mark.usefixtures("default_release")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"salloc {ALLOCATION} {PROGRAM} launch --config job.yaml", 0),
        # srun's own code, once a node of its step has died (docs/internals/slurm.md).
        (f"srun {ALLOCATION} --kill-on-bad-exit=0 --wait=0 {PROGRAM} --config job.yaml", None),
    ],
    ids=["salloc", "srun"],
)
def test_nothing_is_completed_where_somebody_waits_for_the_job(six: Lab, command: str, code: int | None) -> None:
    with interactive(six, f"takeover-{command.split()[0]}", *command.split()) as (job, client):
        training(job)
        term = job.journals.term
        six.kill_node("n0")
        six.run(["scontrol", "update", "nodename=n0", "state=down", "reason=dead"])
        assert taken_over(job, term) != "n0"
        assert client.wait(timeout=BOUND) == code or code is None
        ends(job)
    assert job.rows()[-1]["step"] == STEPS
    assert "event=nothing_to_complete" in job.output
    assert "completing_job" not in job.output


@contextmanager
def interactive(lab: Lab, name: str, *command: str) -> Iterator[tuple[ChaosJob, subprocess.Popen[str]]]:
    """The job under salloc or a direct srun, on the login machine; both are gone afterwards."""
    folder = prepare(lab, name, step_time=STEP, hold=True)
    with (folder / "out").open("w") as out:
        client = lab.popen(
            command, user=LAB_USER, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield of(lab, job_id(lab, folder), folder), client
    finally:
        client.terminate()
        client.wait(timeout=BOUND)


def job_id(lab: Lab, folder: Path) -> int:
    """The one job that runs."""
    end = time.monotonic() + BOUND
    while not (number := lab.run(["squeue", "-h", "--state=RUNNING", "--format=%A"]).stdout.strip()):
        assert time.monotonic() < end, (folder / "out").read_text()
        time.sleep(0.1)
    return int(number)
