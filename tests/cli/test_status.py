"""`ft-supervisor status` from outside: which run it finds, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Done
from tests.cli.runs import BOUND, a_run, end
from tests.ft_slurm.fake_slurm import FakeSlurm

from ft_supervisor.run_folder import find, left_running, verdict_file
from ft_supervisor.run_folder.left_running import LeftRunning
from ft_supervisor.run_folder.snapshot import NAME
from ft_supervisor.status import poll
from ft_supervisor.status.poll import StatusPoller

pytestmark = pytest.mark.usefixtures("no_slurm")

JOB = """\
name: test
cluster: none
nodes: {active: 2}
workers: {per_node: 1, command: ["true"]}
run_dir: runs/{job_id}
"""


def first_line(done: Done) -> str:
    return done.stdout.splitlines()[0]


# -- which run


def test_by_job_and_config(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    a_run(tmp_path / "runs" / "12", "12.0.0", age=1000)
    a_run(tmp_path / "runs" / "12", "12.1.0")
    a_run(tmp_path / "runs" / "13", "13.0.0")
    done = command("status", "12", "--config", "job.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert first_line(done).startswith("job 12.1.0: running, seen ")
    assert command("status", "12.0", "--config", "job.yaml").returncode == 4
    assert "13.0.0" in first_line(command("status", "--config", "job.yaml", SLURM_JOB_ID="13"))


def test_the_newest_run_without_a_job(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    folders = [a_run(tmp_path / "runs" / job, f"{job}.0.0") for job in ("12", "130", "14")]
    for number, folder in enumerate(folders):
        os.utime(folder, (number, 1000 - number))
    for words in (("--config", "job.yaml"), ("--run-dir", "runs/12"), ("--run-dir", "runs")):
        assert "job 12.0.0" in first_line(command("status", *words))
    (tmp_path / "runs").rename(tmp_path / "ft-runs")
    assert "job 12.0.0" in first_line(command("status"))


def test_whoever_watches_the_newest_run_sees_no_other(tmp_path: Path) -> None:
    first, second = (a_run(tmp_path / "runs", f"{job}.0.0") for job in (12, 13))
    os.utime(second, (0, 0))
    look = StatusPoller(find.search(None, None, tmp_path / "runs", {}))
    assert look.again().job == first.name
    os.utime(first, (0, 0))
    os.utime(second)
    assert look.again().job == first.name
    assert StatusPoller(find.search(None, None, tmp_path / "runs", {})).again().job == second.name


def test_from_within_its_folders(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path / "ft-runs" / "12", "12.0.0")
    for folder in (tmp_path, tmp_path / "ft-runs", tmp_path / "ft-runs" / "12"):
        monkeypatch.chdir(folder)
        for words in ((), ("12",)):
            assert "job 12.0.0" in first_line(command("status", *words))


def test_from_a_batch_script_that_went_elsewhere(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    a_run(tmp_path / "submitted" / "runs" / "12", "12.0.0")
    done = command("status", "--config", "job.yaml", SLURM_JOB_ID="12", SLURM_SUBMIT_DIR=str(tmp_path / "submitted"))
    assert done.returncode == 0


# -- what it says


def test_an_ended_job(command: Command, tmp_path: Path) -> None:
    end(a_run(tmp_path, "12.0.0", age=5000))
    done = command("status", "12")
    assert done.returncode == 0
    assert first_line(done) == "job 12.0.0: ended: success (exit code 0): all done"
    (tmp_path / "12.0.0" / NAME).unlink()  # it is known how it ended all the same
    assert command("status", "12").stdout == "job 12.0.0: ended: success (exit code 0): all done\n"


def test_a_stale_job(command: Command, tmp_path: Path) -> None:
    a_run(tmp_path, "12.0.0", age=100)
    done = command("status", "12")
    assert done.returncode == 4
    assert re.search("last seen [12] min( [0-9]+ s)? ago; this is what was then", done.stdout)
    assert "its coordinator is lost, or run_dir hangs on its node" in done.stdout


def test_json(command: Command, tmp_path: Path) -> None:
    a_run(tmp_path, "12.0.0", age=1.0)
    done = command("status", "12", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["state"], found["status"]["run_id"]) == (0, "running", "12.0.0")
    assert found["age"] >= 1.0 and len(found["status"]["nodes"]) == 4
    done = command("status", "99", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (3, "none")


def test_the_help_names_every_field(command: Command, tmp_path: Path) -> None:
    a_run(tmp_path, "12.0.0")
    found = json.loads(command("status", "12", "--json").stdout)
    text = command("status", "--help").stdout.partition("--json prints")[2]
    assert {key for key in (*found, *found["status"]) if not re.search(rf"\b{key}\b", text)} == set()


@pytest.mark.parametrize("columns", [40, 80])
def test_it_fits_the_terminal(command: Command, tmp_path: Path, columns: int) -> None:
    a_run(tmp_path, "12.0.0")
    done = command("status", "12", COLUMNS=str(columns))
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert len(done.stdout.splitlines()) > 8


# -- what is wrong


@pytest.mark.parametrize("words", [("x",), ("../1",), ("1", "--config", "a", "--run-dir", "b")])
def test_wrong_use(command: Command, words: tuple[str, ...]) -> None:
    done = command("status", *words)
    assert (done.returncode, done.stdout) == (2, "") and len(done.stderr.splitlines()) == 1


def test_a_wrong_configuration(command: Command, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("nodes: 3\n")
    done = command("status", "12", "--config", "job.yaml")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("12",), (), ("12", "--run-dir", "nowhere"), ("--run-dir", "nowhere")])
def test_nothing_is_known(command: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = command("status", *words)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "nothing is known of" in line and str(tmp_path) in line


def test_a_file_where_run_dir_should_be(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command("status", "12", "--run-dir", "file")
    assert done.returncode == 3 and "Not a directory" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def others() -> Iterator[Path]:
    """Make a folder that any user may enter, with a run_dir that no user may read."""
    with tempfile.TemporaryDirectory() as name:
        a_run(Path(name) / "runs", "12.0.0")
        Path(name).chmod(0o711)
        (Path(name) / "runs").chmod(0o700)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("name", "code"), [("status", 3), ("report", 3), ("verdict", 2)])
def test_somebody_elses_run(others: Path, name: str, code: int) -> None:
    program = (
        "import contextlib, io, os, sys\n"
        "from ft_supervisor.cli.main import main\n"
        f"words = [{name!r}, '12', '--run-dir', {str(others / 'runs')!r}]\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(words)\n"  # as root, who may read where Python lies
        "os.setgid(65534)\n"
        "os.setuid(65534)\n"
        "sys.exit(main(words))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=BOUND,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/"},
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    line = done.stderr.splitlines()[-1]
    assert "Permission denied" in line and "Traceback" not in done.stderr and "Usage" not in done.stderr


@pytest.mark.parametrize("what", ["half", "pipe", "huge"])
def test_a_status_that_cannot_be_read(command: Command, tmp_path: Path, what: str) -> None:
    folder = a_run(tmp_path, "12.0.0")
    path = folder / NAME
    data = path.read_bytes()
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(data[:200])
        if what == "huge":
            os.truncate(path, 2**40)
    done = command("status", "12")
    assert done.returncode == 4 and NAME in done.stdout and "Traceback" not in done.stdout + done.stderr
    end(folder)
    assert command("status", "12").returncode == 0


def test_a_run_dir_that_hangs(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path, "12.0.0")
    monkeypatch.setattr(poll.StatusPoller.__init__, "__defaults__", (0.2,))
    monkeypatch.setattr(find, "folder", lambda _search: time.sleep(3))
    began = time.monotonic()
    done = command("status", "12")
    assert time.monotonic() - began < 2.5
    assert done.returncode == 3 and "does not answer within 0.2 s" in done.stderr


# -- what Slurm adds


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    fake = FakeSlurm(folder, "24.11")
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    yield fake


def test_a_pending_job(command: Command, slurm: FakeSlurm) -> None:
    slurm.job("requeue-2.0")
    done = command("status", "4242")
    assert done.returncode == 4, done
    assert done.stdout.startswith("job 4242: has not started\n") and "PENDING" in done.stdout
    assert json.loads(command("status", "4242", "--json").stdout)["state"] == "pending"


def test_slurm_knows_no_such_job(command: Command, slurm: FakeSlurm) -> None:
    slurm.no_job()
    done = command("status", "4242")
    assert done.returncode == 3 and "nothing is known of job 4242" in done.stderr


def test_a_stale_job_that_slurm_knows_to_be_over(command: Command, slurm: FakeSlurm, tmp_path: Path) -> None:
    a_run(tmp_path, "4242.0.0", age=100)
    slurm.job("cancel-end")
    done = command("status", "4242")
    assert done.returncode == 4 and "it has ended, without a verdict" in done.stdout
    slurm.job("cancel-running")
    assert "Slurm says RUNNING: its coordinator is lost" in command("status", "4242").stdout


def test_a_fresh_job_costs_slurm_nothing(command: Command, slurm: FakeSlurm, tmp_path: Path) -> None:
    a_run(tmp_path, "4242.0.0")
    assert command("status", "4242").returncode == 0
    assert slurm.asked() == []


def test_a_job_that_has_ended_and_still_runs(command: Command, slurm: FakeSlurm, tmp_path: Path) -> None:
    """The file is believed unless Slurm says otherwise; without one Slurm is asked once the job should be over."""
    folder = a_run(tmp_path, "4242.0.0")
    end(folder)
    slurm.job("cancel-running")
    assert first_line(command("status", "4242")).startswith("job 4242.0.0: ended")
    assert slurm.asked() == []
    left_running.write(folder, LeftRunning(4242, "there is no libslurmfull.so here", time.time()))
    done = command("status", "4242")
    told = " ".join(done.stdout.split())
    assert told.startswith("! the job still runs in Slurm: there is no libslurmfull.so here; it ends by `scancel 4242`")
    assert done.returncode == 0 and "ended: success" in told
    assert json.loads(command("status", "4242", "--json").stdout)["left_running"]["ends_it"] == "scancel 4242"
    slurm.job("cancel-end")
    assert first_line(command("status", "4242")).startswith("job 4242.0.0: ended")
    left_running.remove(folder)
    slurm.job("cancel-running")
    os.utime(folder / verdict_file.NAME, (0, time.time() - 1000))
    assert "it is RUNNING 1000 s after its verdict" in " ".join(command("status", "4242").stdout.split())


def test_slurm_that_is_away(command: Command, slurm: FakeSlurm) -> None:
    (slurm.folder / "away").write_text("slurm_load_jobs error: Unable to contact slurm controller\n")
    done = command("status", "4242")
    assert done.returncode == 3 and "Slurm does not answer" in done.stderr


def test_slurm_that_hangs(command: Command, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll, "SLURM_BOUND", 0.5)
    (slurm.folder / "hang").touch()
    began = time.monotonic()
    done = command("status", "4242")
    assert time.monotonic() - began < 20
    assert done.returncode == 3 and "Slurm does not answer" in done.stderr
