"""Which processes are a job's: by the journal that the daemon keeps open, and by nothing that a file claims."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ft_supervisor.core.model import Job, Memory, Node
from ft_supervisor.core.orders import Begin
from ft_supervisor.core.settings import Settings
from ft_supervisor.daemon.files import make_local_folder
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.fault import find
from ft_supervisor.fault.reach import Reach
from ft_supervisor.fault.words import JobOver, NotAllowed, NotThere
from ft_supervisor.observe.journal import Journal
from ft_supervisor.observe.runs import Wanted

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


@pytest.fixture
def wanted() -> Iterator[Wanted]:
    """A job that nobody else has."""
    job = 990_000_000_000_000 + secrets.randbelow(10**12)
    yield Wanted(job)
    for run in local_folder("x").parent.glob(f"{job}.*"):
        shutil.rmtree(run)


@pytest.fixture
def run(wanted: Wanted) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """run(code, words...): such a process, once it is up; ended after the test, with its children."""
    with ExitStack() as stack:

        def begin(code: str, *words: Path) -> subprocess.Popen[str]:
            return stack.enter_context(living(code, *words))

        yield begin


@contextmanager
def living(code: str, *words: Path) -> Iterator["subprocess.Popen[str]"]:
    line = [sys.executable, "-I", "-S", "-c", code, *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield process
        finally:
            os.killpg(process.pid, 9)


def node_folder(wanted: Wanted, name: str = "n1", *, allow: bool = True, local: bool = True) -> Path:
    """With a daemon's journal in it, as the daemon of that node has written it."""
    run_id = f"{wanted.job_id}.0.0"
    folder = local_folder(run_id) / name
    make_local_folder(folder)
    job = Job(run_id, ("n0", "n1"), ("h0", "h1"), (1,), "/runs/7", str(folder), 1, 1, ("true",))
    object.__setattr__(job, "settings", Settings(faults=allow, step_file="/steps"))
    object.__setattr__(job, "signal_workers", local)
    journal = Journal.open(folder, "daemon", Begin(job, Node(1, name, "h1"), 0, Memory()), 0.0, pytest.fail)
    journal.close()
    return folder


def journals(folder: Path) -> list[Path]:
    names = ("daemon", "agent-1", "coordinator-1")
    return [folder / f"journal-{name}.jsonl" for name in names]


Run = Callable[..., "subprocess.Popen[str]"]


def test_a_daemon_and_its_children(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    charge = '{"actions":[{"type":"Log","event":"%s","fields":[["term",%d]]}]}\n'
    journals(folder)[2].write_text(
        charge % ("in_charge", 4) + charge % ("stepped_down", 4) + charge % ("in_charge", 9) + '{"torn": "in_charge"'
    )
    daemon = run(DAEMON, *journals(folder))
    (seen,) = find.look(wanted)
    assert (seen.node, seen.daemon, seen.allowed, seen.local) == ("n1", daemon.pid, True, True)
    assert (seen.step_file, seen.run_folder, seen.in_charge) == ("/steps", "/runs/7", 9)
    assert seen.agent is not None and seen.coordinator is not None
    assert len({seen.agent, seen.coordinator, daemon.pid}) == 3
    assert find.find(seen.run_id, "n1")[1].node.name == "n1"
    with pytest.raises(NotThere):
        find.find(seen.run_id, "n0")
    assert find.look(Wanted(wanted.job_id, 1)) == []


def test_nobody_is_taken_for_a_daemon(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    (folder / "processes.json").write_text(f'{{"daemon": {os.getpid()}}}')
    run(READER, journals(folder)[0])  # tail -f, say
    copy = folder / "journal-daemon-copy"
    shutil.copy(journals(folder)[0], copy)
    run(DAEMON, copy, *journals(folder)[1:])
    assert find.look(wanted) == []
    assert find.ended(wanted) == "no verdict"


def test_a_reader_beside_the_daemon_is_not_hit(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted)
    run(READER, journals(folder)[0])
    daemon = run(DAEMON, *journals(folder))
    run(READER, journals(folder)[0])
    assert [seen.daemon for seen in find.look(wanted)] == [daemon.pid]


def test_what_the_policy_says_is_what_the_daemon_began_with(wanted: Wanted, run: Run) -> None:
    folder = node_folder(wanted, allow=False)
    run(DAEMON, *journals(folder))
    assert [seen.allowed for seen in find.look(wanted)] == [False]


@pytest.mark.parametrize("text", ["", "{", '{"journal": 99}\n', '["Tick", 1, 0]\n'])
def test_a_journal_that_says_nothing(wanted: Wanted, run: Run, text: str) -> None:
    folder = node_folder(wanted)
    journals(folder)[0].write_text(text)
    run(DAEMON, *journals(folder))
    with pytest.raises(NotThere) as refused:
        find.look(wanted)
    assert "\n" not in str(refused.value)


def test_ranks() -> None:
    assert find.worker_rank([b"PATH=/bin", b"RANK=5", b"LOCAL_RANK=1"]) == (True, 5)
    assert find.worker_rank([b"PATH=/bin", b"SLURM_JOB_ID=7"]) == (False, None)  # py-spy, say
    assert find.worker_rank([b"train: step 7 of 100"]) == (True, None)  # setproctitle
    assert find.worker_rank([]) == (False, None)  # gone


def test_a_job_that_is_not_here(wanted: Wanted, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(NotThere, match="no scontrol in PATH") as refused:
        Reach(wanted, "7", environ).look()
    assert not isinstance(refused.value, JobOver)
    node_folder(wanted)
    with pytest.raises(JobOver, match="has ended on this machine"):
        Reach(wanted, "7", environ).look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into others' folders")
def test_a_job_that_is_somebody_elses(wanted: Wanted, tmp_path: Path) -> None:
    folder = Path("/tmp/ft-61234")
    try:
        (folder / f"{wanted.job_id}.0.0").mkdir(parents=True)
        with pytest.raises(NotAllowed, match="belongs to uid 61234"):
            Reach(wanted, "7", {"PATH": str(tmp_path)}).look()
    finally:
        shutil.rmtree(folder)
