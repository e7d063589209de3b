"""`launch` as a process, with a stand-in for srun (fake_srun.py) that ends in every way that the real one does."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ft_supervisor.core.protocol.model import Outcome, Verdict
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.journal.replay import replay
from ft_supervisor.run_folder import verdict_file
from ft_supervisor.run_folder.runs import what_next

HERE = Path(__file__).parent
JOB = """\
name: test
cluster: none
nodes: {active: 1}
workers: {per_node: 1, command: ["true"]}
run_dir: runs/{job_id}
policy: {timeouts: {close_grace: CLOSE, stop_grace: STOP}, interruption: {before_end: 0s, grace: STOP}}
"""
PYTHONPATH = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
BOUND = 60.0


class Launched:
    """One `launch` in `folder`, with $FAKE_PLAN for its srun."""

    def __init__(
        self, folder: Path, plan: str, patience: float = 0.3, close: str = "200ms", stop: str = "200ms", **environ: str
    ) -> None:
        self.folder = folder
        self.job_id = random.randrange(10**9, 10**10)
        (folder / "job.yaml").write_text(JOB.replace("CLOSE", close).replace("STOP", stop))
        (folder / "bin").mkdir()
        srun = folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_srun.py"} "$@"\n')
        srun.chmod(0o755)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "FT_SUPERVISOR"))}
        slurm = {
            "SLURM_JOB_ID": str(self.job_id),
            "SLURM_JOB_NODELIST": "n[1-3]",
            "SLURM_JOB_NUM_NODES": "3",
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURMD_NODENAME": "n1",
        }
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "driver.py"), str(patience)],
            cwd=folder,
            env={**inherited, **slurm, "PATH": path, "PYTHONPATH": PYTHONPATH, "FAKE_PLAN": plan, **environ},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""

    def code(self) -> int:
        """Return the exit code."""
        self.stderr = self.process.communicate("not for srun", timeout=BOUND)[1]
        return self.process.returncode

    def wait_for(self, name: str) -> Path:
        """Wait for a file that srun makes, and return it."""
        path, until = self.folder / name, time.monotonic() + BOUND
        while not path.exists():
            assert time.monotonic() < until and self.process.poll() is None, self.stderr
            time.sleep(0.01)
        return path

    def end(self) -> None:
        """Wait for the end, and check that the recorded events give the same actions again."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        # The job's number too: a process id comes back, and with it another launch's folder, which may be older.
        for folder in local_folder("launch").glob(f"{self.job_id}.*.{self.process.pid}"):
            results = [replay(path) for path in folder.glob("journal-*")]
            shutil.rmtree(folder)
            assert all(result.difference is None and result.events > 1 for result in results), results

    def signals(self) -> list[str]:
        """Return the signals that srun got."""
        return (self.folder / "signals").read_text().split()


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[list[Launched]]:
    """Yield a list; every `launch` in it has ended when the test has."""
    started: list[Launched] = []
    yield started
    for launch in started:
        launch.end()


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        pytest.param("success 1", 0, id="srun returns 1 after a node's death, the job has succeeded"),
        pytest.param("failed 0", 1, id="the job has failed, whatever srun says"),
        pytest.param("late 1", 0, id="the verdict's file comes after srun's end"),
        pytest.param("0", 75, id="never 0 without a verdict"),
        pytest.param("3", 3, id="without a verdict srun's code"),
        pytest.param("foreign 1", 1, id="a verdict of another run is not ours"),
        pytest.param("foreign 0", 75, id="a verdict of another run is no success"),
        pytest.param("success deaf", 0, id="srun does not end, not even by SIGTERM"),
    ],
)
def test_exit_code(launched: list[Launched], tmp_path: Path, plan: str, code: int) -> None:
    # Long where a verdict is to be found on a slow machine: then it is not waited out.
    close = "30s" if plan in ("success 1", "failed 0", "late 1") else "200ms"
    launched.append(launch := Launched(tmp_path, plan, close=close))
    assert launch.code() == code, launch.stderr
    assert all(line.startswith("ft-supervisor launch: ") for line in launch.stderr.splitlines()), launch.stderr
    assert launch.stderr.splitlines()[-1] == f"ft-supervisor launch: {what_next(launch.job_id, code)}"
    if "deaf" in plan:
        assert launch.signals() == ["SIGTERM"]


def test_what_srun_is_told(launched: list[Launched], tmp_path: Path) -> None:
    launch = Launched(
        tmp_path,
        "success 0",
        close="30s",
        SLURM_RESTART_COUNT="2",
        SLURM_CPUS_PER_TASK="2",
        SLURM_TRES_PER_TASK="cpu=2",
    )
    launched.append(launch)
    assert launch.code() == 0
    told = json.loads((tmp_path / "srun.json").read_text())
    options, task = told["argv"][:-3], told["argv"][-3:]
    assert task == ["daemon", "--config", "job.yaml"]
    assert {"--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--nodes=3", "--ntasks=3"} <= set(options)
    assert {"--ntasks-per-node=1", "--export=ALL", "--disable-status", "--mpi=none"} <= set(options)
    assert not [option for option in options if option.startswith(("--cpus-per-task", "--exact"))]
    assert told["stdin"] == ""
    assert told["per_task"] == []
    assert len(told["nonce"]) == 32
    assert "verdict success: as planned" in launch.stderr
    run_folder = tmp_path / "runs" / str(launch.job_id) / f"{launch.job_id}.3.2"
    assert replay(run_folder / "journal" / "n1" / "journal-launch.jsonl").difference is None


def test_the_copy_on_this_node_counts_where_the_run_folder_hangs(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "deaf"))
    launch.wait_for("hangs")
    run_id = f"{launch.job_id}.3.0"
    folder = tmp_path / "runs" / str(launch.job_id) / run_id
    folder.mkdir(parents=True)
    os.mkfifo(folder / "verdict.json")  # to open it blocks, as does a file server that is away
    nonce = json.loads((tmp_path / "srun.json").read_text())["nonce"]
    copy = local_folder(run_id) / "n1"
    verdict_file.write(copy, Verdict(Outcome.SUCCESS, "by another way"), run_id, nonce)
    try:
        assert launch.code() == 0
    finally:
        (copy / "verdict.json").unlink()
        copy.rmdir()
        copy.parent.rmdir()
    assert "by another way" in launch.stderr


def test_what_is_no_verdict_is_told_and_not_believed(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang", patience=30))
    launch.wait_for("hangs")
    folder = tmp_path / "runs" / str(launch.job_id) / f"{launch.job_id}.3.0"
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text('{"outcome": "success"}')
    assert launch.process.stderr is not None
    while "verdict.json" not in (line := launch.process.stderr.readline()):
        assert line, "it ended"
    os.kill(json.loads((tmp_path / "srun.json").read_text())["pid"], signal.SIGTERM)
    assert launch.code() == 143


def test_interrupt_is_passed_on_once(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang", patience=30, close="30s"))
    launch.wait_for("hangs")
    launch.process.send_signal(signal.SIGINT)
    assert launch.code() == 130
    assert launch.signals() == ["SIGINT"]


def test_a_hangup_that_nohup_has_it_ignore_is_ignored(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang", patience=30, close="30s", FAKE_NOHUP="1"))
    launch.wait_for("hangs")
    launch.process.send_signal(signal.SIGHUP)
    launch.process.send_signal(signal.SIGINT)
    assert launch.code() == 130
    assert launch.signals() == ["SIGINT"] and "SIGHUP" not in launch.stderr and "SIGINT" in launch.stderr


def test_second_interrupt_ends_srun(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "deaf", stop="1h"))
    launch.wait_for("hangs")
    launch.process.send_signal(signal.SIGINT)
    launch.wait_for("signals")
    launch.process.send_signal(signal.SIGINT)
    assert launch.code() == 137
    assert launch.signals() == ["SIGINT", "SIGTERM"]


def test_slurms_sigterm_is_not_passed_on_but_bounded(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang"))
    launch.wait_for("hangs")
    launch.process.send_signal(signal.SIGTERM)
    launch.process.send_signal(signal.SIGTERM)
    assert launch.code() == 143, launch.stderr
    assert launch.signals() == ["SIGTERM"]  # ours, after stop_grace, close_grace and its patience
    assert "waiting for the verdict" in launch.stderr and "ending srun" in launch.stderr


def test_sigterm_for_launch_alone_is_passed_on(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang", patience=30, close="30s", stop="1h"))
    launch.wait_for("hangs")
    launch.process.send_signal(signal.SIGTERM)
    assert launch.code() == 130, launch.stderr
    assert launch.signals() == ["SIGINT"]


def test_without_srun(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "0", PATH=str(tmp_path)))
    assert launch.code() == 2
    assert launch.stderr.count("\n") == 1 and "no srun" in launch.stderr


def test_srun_does_not_outlive_launch(launched: list[Launched], tmp_path: Path) -> None:
    launched.append(launch := Launched(tmp_path, "hang"))
    launch.wait_for("hangs")
    launch.process.kill()
    path, until = tmp_path / "signals", time.monotonic() + BOUND
    while not path.exists() or "SIGTERM" not in path.read_text():
        assert time.monotonic() < until
        time.sleep(0.01)
