"""What the tests of `ft-supervisor fault` share: the command, what it records, and the states of processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processes.harness import BOUND, COMMAND, PYTHONPATH, Job
from tests.processes.lines import Line

from ft_supervisor.core.protocol.codec import encode
from ft_supervisor.fault.messages import Hit

ALLOWED = {"faults": {"allow": True}}
ENVIRON = {**os.environ, "PYTHONPATH": PYTHONPATH}


def words(job: Job, *rest: str) -> list[str]:
    return [*COMMAND, "fault", *rest, "--job", job.run_folder.name]


def fault(job: Job, *rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(job, *rest), capture_output=True, text=True, timeout=BOUND, env=ENVIRON)


def done(job: Job, *rest: str) -> str:
    """Run the command, which must succeed; return its output."""
    told = fault(job, *rest)
    assert (told.returncode, told.stderr) == (0, ""), told
    return told.stdout


def assert_refused(told: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert (told.returncode, told.stdout) == (code, ""), told
    (line,) = told.stderr.splitlines()
    assert line.startswith("ft-supervisor: ") and all(part in line for part in parts), line


def everything_recorded(job: Job) -> list[dict[str, Any]]:
    path = job.run_folder / "faults.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def recorded(job: Job) -> list[dict[str, Any]]:
    """Return the faults that this test has caused."""
    return everything_recorded(job)[job.seen if isinstance(job, SharedJob) else 0 :]


def acts(job: Job) -> list[tuple[str, str, str]]:
    return [(each["act"], each["target"], each["node"]) for each in recorded(job)]


def state(pid: int) -> str:
    """Return the process's state as in proc_pid_stat(5); "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def frozen(pids: dict[int, str]) -> set[int]:
    return {pid for pid in pids if state(pid) == "T"}


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


Tool = Callable[..., subprocess.Popen[str]]


class SharedJob(Job):
    """Is a job of two active nodes and a standby that several tests use, one after the other."""

    restarts = 0
    """The number of restarts that tests have caused so far."""
    seen = 0
    """The number of faults that earlier tests have recorded."""

    def workers(self) -> list[Line]:
        """Wait until both workers of the newest cycle run; return their lines by rank."""
        return [self.worker(rank, self.restarts) for rank in (0, 1)]

    def restarted(self, times: int = 1) -> None:
        """Note so many restarts that the test has caused, and wait until the workers run after the last of them."""
        self.restarts += times
        self.workers()


def hand_line(hit: Hit) -> list[str]:
    """Return the command of an executor, as the tool sends it to a node."""
    return [sys.executable, "-P", "-m", "ft_supervisor.fault.executor", encode(hit).decode()]
