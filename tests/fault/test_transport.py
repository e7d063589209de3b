"""From a login node: what Slurm says of the job, and an executor by srun."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.conftest import DAEMON, Run, journals, node_folder

from ft_supervisor.fault import call, request, shell, transport
from ft_supervisor.fault.messages import (
    Act,
    FaultError,
    Hit,
    JobOver,
    NotAllowed,
    NotThere,
    Target,
    Verb,
    Wrong,
)
from ft_supervisor.fault.transport import Transport
from ft_supervisor.run_folder.runs import Wanted

RUNNING = f"UserId=me({os.getuid()}) GroupId=x(1) JobState=RUNNING NodeList=n[0-1] TimeLimit=UNLIMITED ExitCode=0:0"

Slurm = Callable[..., dict[str, str]]


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    """slurm(job=, srun=): the environment of a login node."""
    fake = Path(__file__).with_name("fake_slurm.py").read_text()
    for name in ("scontrol", "srun"):
        (tmp_path / name).write_text(f"#!{sys.executable} -IS\n{fake}")
        (tmp_path / name).chmod(0o755)

    def environ(job: str = RUNNING, srun: str = "") -> dict[str, str]:
        return {
            "PATH": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "FAKE_JOB": job,
            "FAKE_SRUN": srun,
            "FAKE_CALLS": str(tmp_path / "calls"),
            "SLURM_JOB_ID": "5",
            "SLURM_NTASKS_PER_NODE": "8",
        }

    return environ


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        ("", NotThere, "Slurm knows of none"),
        (RUNNING.replace("RUNNING", "PENDING"), NotThere, "is pending"),
        (RUNNING.replace("RUNNING", "CANCELLED"), JobOver, "has ended (CANCELLED)"),
        (RUNNING.replace("RUNNING", "COMPLETING"), JobOver, "has ended"),
        (RUNNING.replace(f"({os.getuid()})", "(4711)"), NotAllowed, "belongs to uid 4711"),
        ("nothing of the kind", FaultError, "Slurm does not answer"),
    ],
)
def test_what_slurm_says(wanted: Wanted, slurm: Slurm, job: str, kind: type[FaultError], text: str) -> None:
    with pytest.raises(kind) as refused:
        Transport(wanted, "7", slurm(job)).look()
    assert type(refused.value) is kind and text in str(refused.value) and "\n" not in str(refused.value)


def test_a_node_of_another_job(wanted: Wanted, slurm: Slurm) -> None:
    with pytest.raises(NotThere, match="n2 is no node of job 7: it has n0, n1"):
        Transport(wanted, "7", slurm()).look("n2")


def test_without_srun(wanted: Wanted, slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "srun").unlink()
    with pytest.raises(Wrong, match="no srun here"):
        Transport(wanted, "7", slurm()).look()


def test_a_hand_by_srun(wanted: Wanted, slurm: Slurm, run: Run, tmp_path: Path) -> None:
    folder = node_folder(wanted, local=False, run_folder=str(tmp_path))
    daemon = run(DAEMON, *journals(folder))
    there = Transport(wanted, "7", slurm())
    (seen,) = there.look()
    assert (seen.node, seen.daemon, there.silent) == ("n1", daemon.pid, ["n0"])
    call = there.send(Hit(seen.run_id, "n1", Verb.KILL, Target.AGENT))
    act = call.answer(time.monotonic() + 60)
    assert isinstance(act, Act) and act.pids == (seen.agent,) and act.note == ""
    assert call.answer(time.monotonic() + 60) is None
    call.end(force=True)
    assert (tmp_path / "faults.jsonl").read_text().count("\n") == 1
    look, hit = (tmp_path / "calls").read_text().splitlines()
    for option in (f"--jobid={wanted.job_id}", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--mpi=none"):
        assert option in look.split() and option in hit.split()
    assert "--nodelist=n0,n1 " in look and " --nodes=2 --ntasks=2 " in look
    assert "--nodelist=n1 " in hit and " --nodes=1 --ntasks=1 " in hit


def test_slurm_lets_nobody_in(wanted: Wanted, slurm: Slurm) -> None:
    with pytest.raises(NotAllowed, match="Access/permission denied"):
        Transport(wanted, "7", slurm(srun="denied")).look()


@pytest.mark.parametrize("how", ["hang", "deaf"])
def test_nodes_that_do_not_answer(
    wanted: Wanted, slurm: Slurm, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LOOK_BOUND", 1.0)
    monkeypatch.setattr(call, "END_BOUND", 0.5)
    with pytest.raises(FaultError, match="no answer from the node in time"):
        Transport(wanted, "7", slurm(srun=how)).look()


def test_a_refusal_of_the_node_is_the_tools(wanted: Wanted, slurm: Slurm, run: Run, tmp_path: Path) -> None:
    folder = node_folder(wanted, local=False, allow=False)
    daemon = run(DAEMON, *journals(folder))
    said: list[str] = []
    asked_for = request.Request(Verb.KILL, Target.DAEMON, wanted, "7", node="n1")
    assert shell.run(asked_for, slurm(), said.append) == 4
    assert said == [] and daemon.poll() is None
    shutil.rmtree(folder)
    assert shell.run(asked_for, slurm(), said.append) == 3


def test_on_the_very_node_no_srun_is_needed(wanted: Wanted, slurm: Slurm, run: Run, tmp_path: Path) -> None:
    daemon = run(DAEMON, *journals(node_folder(wanted, local=False, run_folder=str(tmp_path))))
    said: list[str] = []
    asked_for = request.Request(Verb.KILL, Target.DAEMON, wanted, "7", node="n1")
    assert shell.run(asked_for, slurm(job="", srun="denied") | {"SLURMD_NODENAME": "n1"}, said.append) == 0
    assert daemon.wait(60) == -9 and said[0].endswith(f" kill daemon node=n1 pid={daemon.pid}")
