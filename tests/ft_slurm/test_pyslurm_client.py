"""Tests what only pyslurm does: it may end its process, be made for another release, or be missing."""

import importlib.util
import sys
from pathlib import Path

import pytest
from tests.ft_slurm.fake_slurm import JOB

from ft_slurm import pyslurm_worker
from ft_slurm.client import open_client
from ft_slurm.errors import JobOver, NoCommands, Refused, Unanswered
from ft_slurm.pyslurm_client import PyslurmClient, why_not
from ft_slurm.records import JobStep

FAKE = Path(__file__).parent / "fake_pyslurm"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(FAKE)
    return {"PATH": str(tmp_path), "PYTHONPATH": str(FAKE), "FAKE_PYSLURM": str(tmp_path)}


def test_it_is_taken_where_there_are_no_commands(environ: dict[str, str]) -> None:
    assert why_not(environ) == ""
    assert isinstance(open_client(environ), PyslurmClient)
    assert "pyslurm" not in sys.modules


def test_no_usable_configuration(environ: dict[str, str], tmp_path: Path) -> None:
    """libslurm ends the process when it has no usable configuration."""
    (tmp_path / "fatal").touch()
    expected = "pyslurm does not work here: pyslurm ended its process: fatal: Could not establish a configuration"
    assert why_not(environ).startswith(expected)
    with pytest.raises(NoCommands, match="no scontrol in PATH, and pyslurm does not work here"):
        open_client(environ)


def test_it_hangs(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hang").touch()
    assert "has not answered within 1 s" in why_not(environ, timeout=1.0)


def test_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert why_not({}) == "pyslurm is not installed"


def test_broken_installation(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text("import libslurmfull_that_is_not_there\n")
    broken = environ | {"PYTHONPATH": str(tmp_path)}
    assert "pyslurm cannot be imported: No module named 'libslurmfull_that_is_not_there'" in why_not(broken)


def test_another_api(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text(
        "slurm_init = int\nclass RPCError(Exception): errno = 0\nclass Job:\n    load = int\n"
    )
    with pytest.raises(Refused, match="this pyslurm has another API"):
        PyslurmClient(environ | {"PYTHONPATH": str(tmp_path)}).job(JOB)


def test_state_is_one_word(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "completing").touch()
    job = PyslurmClient(environ).job(JOB)
    assert job is not None and job.shown == "UNKNOWN+COMPLETING"


@pytest.mark.parametrize("nodes", ["n0", "n[0-3]", "n[0,2-3],m1"])
def test_nodes_of_a_step(environ: dict[str, str], tmp_path: Path, nodes: str) -> None:
    """pyslurm cuts the expression at its commas, within brackets too."""
    (tmp_path / "spread").write_text(nodes)
    client = PyslurmClient(environ)
    job = client.job(JOB)
    assert job is not None
    assert client.running_steps(job) == (JobStep("batch", "n2"), JobStep("0", nodes))


@pytest.mark.parametrize("state", ["no-steps", "waits"])
def test_job_without_steps(environ: dict[str, str], tmp_path: Path, state: str) -> None:
    (tmp_path / state).touch()
    client = PyslurmClient(environ)
    job = client.job(JOB)
    assert job is not None
    assert client.running_steps(job) == ()
    (tmp_path / "away").touch()
    with pytest.raises(Unanswered, match="Unable to contact"):
        client.running_steps(job)


def test_task_0_of_an_array_has_its_number(environ: dict[str, str], tmp_path: Path) -> None:
    """pyslurm gives None for task 0, as it does where several tasks wait."""
    (tmp_path / "array").write_text("0")
    job = PyslurmClient(environ).job(JOB)
    assert job is not None and (job.array_task_id, job.name) == (0, "4242_0")
    (tmp_path / "tasks-wait").touch()
    job = PyslurmClient(environ).job(JOB)
    assert job is not None and (job.array_task_id, job.name) == (None, "4242")


def test_words_for_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "waits").touch()
    (tmp_path / "endless").touch()
    client = PyslurmClient(environ)
    assert {record.nodes for record in client.accounting(JOB)} == {""}
    assert client.configuration()["SlurmdTimeout"] == "0 sec"


def test_comment_of_others_is_kept(environ: dict[str, str], tmp_path: Path) -> None:
    client, comment = PyslurmClient(environ), tmp_path / "comment"
    comment.write_text("by the user")
    client.set_comment(JOB, "one")
    client.set_comment(JOB, "two")
    assert comment.read_text() == "by the user [ft: two]"
    assert client.set_comment(JOB, "two, and more", keep="two")
    assert comment.read_text() == "by the user [ft: two]"
    comment.write_text("x" * 1024)
    assert not client.set_comment(JOB, "one")
    comment.write_text("")
    (tmp_path / "refused").touch()
    with pytest.raises(Refused, match="permission denied"):
        client.set_comment(JOB, "three")
    (tmp_path / "refused").unlink()
    (tmp_path / "over").touch()
    with pytest.raises(JobOver, match="already finished"):
        client.set_comment(JOB, "three")


def test_task_that_has_the_number_of_its_array(environ: dict[str, str], tmp_path: Path) -> None:
    """A change of this task would change all tasks of the array."""
    (tmp_path / "array").touch()
    client = PyslurmClient(environ)
    job = client.job(JOB)
    assert job is not None and job.name == "4242_3"
    with pytest.raises(Refused, match="cannot distinguish job 4242 from the array"):
        client.requeue(job)
    with pytest.raises(Refused, match="cannot distinguish job 4242 from the array"):
        client.set_comment(JOB, "text")


def test_worker_that_says_nothing(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyslurm_worker, "__file__", str(tmp_path / "nothing.py"))
    (tmp_path / "nothing.py").write_text("print('[1, 2')\n")
    with pytest.raises(Unanswered, match="pyslurm ended its process"):
        PyslurmClient(environ).job(JOB)
