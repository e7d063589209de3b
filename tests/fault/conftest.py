"""Processes that look like a job's to whoever looks for one."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ft_supervisor.core.protocol.model import Job, Memory, Node
from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.core.protocol.settings import Settings
from ft_supervisor.daemon.files import make_local_folder
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.journal.journal import Journal
from ft_supervisor.run_folder.runs import Wanted

# As a daemon: it keeps the journal open for appending, and has children whose command lines tell what they are.
DAEMON = """\
import os, subprocess, sys
append = os.O_RDWR | os.O_APPEND | os.O_CREAT
fd = os.open(sys.argv[1], append)
child = f"import os, sys, time; os.open(sys.argv[2], {append}); print(flush=True); time.sleep(600)"
for part, journal in zip(("agent", "coordinator"), sys.argv[2:], strict=True):
    line = [sys.executable, "-I", "-S", "-c", child, "ft_supervisor." + part, journal]
    subprocess.Popen(line, stdout=subprocess.PIPE).stdout.readline()
print("up", flush=True)
sys.stdin.read()
"""
READER = "import sys; file = open(sys.argv[1]); print('up', flush=True); sys.stdin.read()"

Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def wanted() -> Iterator[Wanted]:
    """A job that nobody else has."""
    job = 990_000_000_000_000 + secrets.randbelow(10**12)
    yield Wanted(job)
    for run in local_folder("x").parent.glob(f"{job}.*"):
        shutil.rmtree(run)


@pytest.fixture
def run(wanted: Wanted) -> Iterator[Run]:
    """run(code, words...): such a process, once it is up; ended after the test, with its children."""
    with ExitStack() as stack:

        def begin(code: str, *words: Path) -> subprocess.Popen[str]:
            return stack.enter_context(_living(code, *words))

        yield begin


@contextmanager
def _living(code: str, *words: Path) -> Iterator["subprocess.Popen[str]"]:
    line = [sys.executable, "-I", "-S", "-c", code, *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield process
        finally:
            os.killpg(process.pid, 9)


def node_folder(wanted: Wanted, *, allow: bool = True, local: bool = True, run_folder: str = "/runs/7") -> Path:
    """That of n1, with its daemon's journal in it, as the daemon has written it."""
    run_id = f"{wanted.job_id}.0.0"
    folder = local_folder(run_id) / "n1"
    make_local_folder(folder)
    job = Job(
        run_id=run_id,
        nodes=("n0", "n1"),
        hosts=("h0", "h1"),
        ports=(1,),
        run_folder=run_folder,
        local_folder=str(folder),
        active=1,
        per_node=1,
        command=("true",),
        signal_workers=local,
        settings=Settings(faults=allow, step_file="/steps"),
    )
    journal = Journal.open(folder, "daemon", Begin(job, Node(1, "n1", "h1"), 0, Memory()), 0.0, pytest.fail)
    journal.close()
    return folder


def journals(folder: Path) -> list[Path]:
    """Those of a node's three processes."""
    names = ("daemon", "agent-1", "coordinator-1")
    return [folder / f"journal-{name}.jsonl" for name in names]
