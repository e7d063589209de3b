"""The batch host trains on, and Slurm has lost it: its slurmd is dead, or slurmctld does not reach that node alone; and
the other way round, the job has lost it, and Slurm has not.

slurmctld calls a node DOWN after SlurmdTimeout; here an administrator says so, and the same follows at once.
"""

import os
import signal

import pytest
from tests.slurm_lab.jobs import JOB, BatchJob, submit

from slurm_lab import Lab

ONCE = pytest.mark.usefixtures("default_release")
POLICY = """\
policy:
  failures: [{match: {signal: SIGKILL}, action: fail}]
  interruption: {poll: 1s}
  timeouts: {stop_grace: 2s}
"""


def lost_by_slurm(lab: Lab, job: BatchJob) -> None:
    """Slurm takes n0 out of the job, which goes on without it."""
    lab.run(["scontrol", "update", "nodename=n0", "state=down", "reason=dead"])
    job.wait("n0 to be out of the job", lambda: nodes_of(job) == "n[1-3]")


def nodes_of(job: BatchJob) -> str:
    return job.lab.run(["squeue", "-h", f"--jobs={job.id}", "--format=%N"]).stdout.strip()


def ends(job: BatchJob, state: str, exit_code: str) -> None:
    """Of the nodes that have lost Slurm the processes end, too."""
    job.ends(state, exit_code)
    (run,) = job.runs()
    assert not (run / "left_running.json").exists()


def test_slurmd_of_the_batch_host_dies_and_the_training_succeeds(lab: Lab) -> None:
    job = submit(lab, "host-slurmd", config=JOB, first=0.2, candidates=3)
    job.train()
    lab.kill_slurmd("n0")
    job.dead.add("n0")  # to srun: it passes nothing on any more that is printed there
    lost_by_slurm(lab, job)
    ends(job, "COMPLETED", "0:0")
    assert (job.verdict() or {})["outcome"] == "success"
    assert job.output.count(" event=cycle_started ") == 1, "n0 was never replaced"
    job.check_codes(0)
    lab.start_slurmd("n0")  # which finds nothing of the job to end
    lab.restore_node("n0")


@pytest.mark.slow
@ONCE
def test_slurmd_comes_back_before_the_end(lab: Lab) -> None:
    """And ends what runs there of a job that is no longer its own, batch script and srun included."""
    job = submit(lab, "host-back", config=JOB, first=0.2, candidates=3)
    job.train()
    lab.kill_slurmd("n0")
    lost_by_slurm(lab, job)
    lab.start_slurmd("n0")
    job.wait("n0's part of the job to end", lambda: not lab.node_processes("n0"))
    ends(job, "COMPLETED", "0:0")


@pytest.mark.slow
def test_slurmctld_does_not_reach_the_batch_host_which_has_the_coordinator(lab: Lab) -> None:
    """Neither the coordinator's node nor `launch` can ask Slurm for anything: another node does."""
    job = submit(lab, "host-cut", config=JOB + POLICY, candidates=3)
    job.train()
    lab.cut_from_controller("n0")
    lost_by_slurm(lab, job)
    job.wait("the coordinator to miss Slurm", lambda: " event=slurm " in job.output)
    os.kill(job.worker("n1").pid, signal.SIGKILL)
    ends(job, "FAILED", "93:0")
    job.check_codes(93)


@pytest.mark.slow
@ONCE
def test_agent_of_the_batch_host_never_registers(lab: Lab) -> None:
    """The job has lost its own batch host, whose script ends the job."""
    config = JOB + "policy: {timeouts: {join: 20s}}\n"
    job = submit(lab, "host-late", config=config, nodes=3, candidates=3, options=["--time=1"])

    def agent() -> list[int]:
        return [each.pid for each in lab.node_processes("n0") if "ft_supervisor.agent" in each.command]

    job.wait("the agent of n0", agent)
    for pid in agent():
        os.kill(pid, signal.SIGSTOP)
    job.ends("FAILED", "75:0")
    assert "waiting_to_complete_job" not in job.output
