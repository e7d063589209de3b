"""The reports of Workers on real workers beyond their exit codes."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from tests.agent.harness import BOUND, Driven, job, run, wait_until

from ft_supervisor.core.protocol.actions import StopWorkers
from ft_supervisor.core.protocol.events import Beat, FirstLine, WorkersExited, WorkersGone
from ft_supervisor.core.protocol.model import Cycle, Failure, Job
from ft_supervisor.core.protocol.settings import Cause, Hang, Match, Rule, Settings

FIRST, SECOND = Cycle(0, 1), Cycle(0, 2)
LIMIT = 400 << 20
"""Bytes; with an oom_score_adj of 1000, who takes as much is killed before who has imported torch."""

T = TypeVar("T")


Start = Callable[[Job], Driven]


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"import os, signal, sys, time\n{code}"]


def exited(workers: Driven) -> Failure:
    """Return the exit that is reported next."""
    (failure,) = workers.event(WorkersExited).failures
    return failure


def test_failures_come_one_by_one_and_the_end_after_them(driven: Start, tmp_path: Path) -> None:
    code = "rank = os.environ['LOCAL_RANK']\nwhile not os.path.exists(rank): time.sleep(0.01)\nsys.exit(int(rank))"
    workers = driven(job(tmp_path, command=python(code), per_node=3))
    workers.call("start", run(FIRST))
    assert set(workers.call("pids")) == {0, 1, 2}
    for rank in (2, 1):
        (tmp_path / str(rank)).touch()
        failure = exited(workers)
        assert (failure.local_rank, failure.exit_code) == (rank, rank)
        assert (failure.cause, failure.exception, failure.rules) == (Cause.EXIT, "", ())
    assert set(workers.call("pids")) == {0}  # the others' failures have not ended it
    (tmp_path / "0").touch()
    assert workers.event(WorkersExited) == WorkersExited(FIRST, ())
    workers.call("start", run(SECOND, restart_count=1))
    failed = []
    while (event := workers.event(WorkersExited)).failures:
        assert event.cycle == SECOND
        failed += [failure.local_rank for failure in event.failures]
    assert sorted(failed) == [1, 2]


def test_stopped_after_a_failure(driven: Start, tmp_path: Path) -> None:
    workers = driven(
        job(tmp_path, command=python("if os.environ['LOCAL_RANK'] == '0': sys.exit(4)\ntime.sleep(1000)"), per_node=2)
    )
    workers.call("start", run(FIRST))
    assert exited(workers).exit_code == 4
    workers.call("stop", StopWorkers(FIRST, 0.0, "SIGTERM"), "now")
    assert workers.event(WorkersGone).cycle == FIRST
    assert workers.call("pids") == {}


def test_a_command_that_cannot_start_ends_too(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=["no-such-command"]))
    workers.call("start", run(FIRST))
    assert exited(workers).exit_code == 127
    assert workers.event(WorkersExited) == WorkersExited(FIRST, ())


def rules(*patterns: str) -> Settings:
    return Settings(rules=tuple(Rule(match=Match(log=pattern)) for pattern in patterns))


def test_rules_see_the_last_lines_of_the_failed_rank_alone(driven: Start, tmp_path: Path) -> None:
    code = """
rank = os.environ["LOCAL_RANK"]
if rank == "0":
    os.write(1, b"uncorrectable ECC\\n")
    open("printed", "w").close()
    time.sleep(1000)
while not os.path.exists("printed"): time.sleep(0.01)
os.write(1, b"\\xff\\x00" * 100_000 + b"\\nNCCL 1")
os._exit(1)
"""
    settings = rules("ECC", "NCCL [0-9]", "")
    workers = driven(job(tmp_path, command=python(code), per_node=2, settings=settings))
    workers.call("start", run(FIRST))
    failure = exited(workers)
    assert (failure.local_rank, failure.rules) == (1, (1,))
    workers.call("stop", StopWorkers(FIRST, 0.0, ""), "now")
    workers.event(WorkersGone)
    assert workers.call("evidence.flush", BOUND)
    lines = workers.log_file.read_bytes().splitlines()
    assert b"uncorrectable ECC" in lines and b"NCCL 1" in lines


def test_a_failure_has_the_last_lines_of_its_own_cycle(driven: Start, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("#!/bin/sh\nseq 1 30; echo 'uncorrectable ECC' >&2; exit 3\n")
    script.chmod(0o755)
    workers = driven(job(tmp_path, command=[str(script)], settings=rules("ECC")))
    workers.call("start", run(FIRST))
    failure = exited(workers)
    lines = failure.last_lines.split("\n")
    assert (len(lines), set(lines) - {str(n) for n in range(31)}) == (20, {"uncorrectable ECC"})
    assert failure.rules == (0,)
    assert workers.event(WorkersExited) == WorkersExited(FIRST, ())
    script.unlink()
    workers.call("start", run(SECOND, restart_count=1))
    failure = exited(workers)
    assert (failure.exit_code, failure.last_lines, failure.rules) == (127, "", ())
    assert workers.call("evidence.flush", BOUND)
    assert sorted((tmp_path / "logs").rglob("*.log")) == [tmp_path / "logs" / "0.1" / "rank0.log"]


ERRORS = {
    "recorded": (
        "class OutOfMemoryError(Exception): pass\nOutOfMemoryError.__module__ = 'torch'\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n"
        "    try: {}[1]\n"
        "    except KeyError: raise OutOfMemoryError('no memory:\\nOutOfMemoryErrors are bad')\n"
        "main()",
        "OutOfMemoryError: no memory: OutOfMemoryErrors are bad",
        "torch.OutOfMemoryError",
    ),
    "short": (
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{\"message\": \"ValueError: bad\"}')\nsys.exit(1)",
        "ValueError: bad",
        "ValueError",
    ),
    "huge": (
        "import json\nmessage = {'message': 'MemoryError: ' + 'x' * 5_000_000, 'extraInfo': {}}\n"
        "json.dump({'message': message}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\nsys.exit(1)",
        "MemoryError: xxxxx",
        "MemoryError",
    ),
    "garbage": (
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'wb').write(b'\\xff{')\nsys.exit(1)",
        "unreadable error file: ",
        "",
    ),
    "a list": ("open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('[1, 2]')\nsys.exit(1)", "[1, 2]", ""),
    "no class": (
        "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{\"message\": \"went wrong: 1\"}')\nsys.exit(1)",
        "went wrong: 1",
        "",
    ),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_exception_in_the_error_file(kind: str, driven: Start, tmp_path: Path) -> None:
    code, message, exception = ERRORS[kind]
    command = python(code)
    if kind == "recorded":
        command.remove("-S")
    workers = driven(job(tmp_path, command=command))
    workers.call("start", run(FIRST))
    failure = exited(workers)
    assert failure.message.startswith(message)
    assert (failure.exit_code, failure.exception, failure.error_file is not None) == (1, exception, True)


def test_heartbeats(driven: Start, tmp_path: Path) -> None:
    code = """
import socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.connect(os.environ["NOTIFY_SOCKET"])
sock.send(b"READY=1\\nSTATUS=" + os.environ["LOCAL_RANK"].encode() + os.environ.get("WATCHDOG_USEC", "-").encode())
sock.send(b"WATCHDOG_USEC=7000000")
assert "WATCHDOG_PID" not in os.environ
time.sleep(1000)
"""
    settings = Settings(hang=Hang(after=2.5))
    workers = driven(job(tmp_path, command=python(code), per_node=2, settings=settings))
    for cycle in (FIRST, SECOND):
        workers.call("start", run(cycle))
        wait_until(lambda: workers.call("evidence._beats.statuses") == {0: "02500000", 1: "12500000"}, "the statuses")
        beats: dict[int, Beat] = {}
        while len(beats) < 2 or any(beat.after is None for beat in beats.values()):
            beats |= {beat.local_rank: beat for beat in workers.call("evidence.beats")}
        assert {beat.after for beat in beats.values()} == {7.0}
        workers.call("stop", StopWorkers(cycle, 0.0, ""), "now")
        assert workers.event(WorkersGone).cycle == cycle


def test_who_has_exited_is_not_waited_for(driven: Start, tmp_path: Path) -> None:
    code = "if os.environ['LOCAL_RANK'] == '1': time.sleep(1000)"
    workers = driven(job(tmp_path, command=python(code), per_node=2))
    workers.call("start", run(FIRST))
    assert wait_until(lambda: workers.call("evidence.beats"), "the exit") == (Beat(0, "stopping"),)
    assert workers.call("evidence.beats") == ()
    assert set(workers.call("pids")) == {1}
    assert workers.call("evidence.take_stacks", {}) is None


def test_more_workers_than_the_limit_of_open_files_allows(tmp_path: Path) -> None:
    code = """
import resource
from ft_supervisor.agent.starter import _make_room
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (300, min(1000, hard) if hard >= 0 else 1000))
for workers in 8, 50, 5000:
    _make_room(workers)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND, check=True)
    assert told.stdout.split() == ["300", "528", "1000"]


def test_stacks_of_a_hung_rank(driven: Start, tmp_path: Path) -> None:
    code = """
import faulthandler
faulthandler.register(signal.SIGUSR1)
def waits_for_ever():
    print("there", flush=True)
    time.sleep(1000)
waits_for_ever()
"""
    settings = Settings(hang=Hang(signal="SIGUSR1"))
    workers = driven(job(tmp_path, command=python(code), per_node=2, settings=settings))
    workers.call("start", run(FIRST, group_rank=1, nodes=2))
    wait_until(lambda: workers.log().count("there") == 2, "the workers")
    assert workers.call("evidence.take_stacks", {1: workers.call("pids")[1]})
    (path,) = (tmp_path / "stacks" / "0.1").iterdir()
    assert path.name == "3.txt"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "waits_for_ever" in path.read_text()


def test_a_look_sends_no_signal(driven: Start, tmp_path: Path) -> None:
    code = "trap 'echo saves and leaves' USR2; echo there; while :; do sleep 0.02; done"  # py-spy knows no shell
    workers = driven(job(tmp_path, command=["sh", "-c", code]))
    workers.call("start", run(FIRST))
    wait_until(lambda: "there" in workers.log(), "the worker")
    assert workers.call("evidence.look_at_stacks", workers.call("pids"))
    assert workers.call("evidence.take_stacks", workers.call("pids"), True)  # they go on
    assert "leaves" not in workers.log()
    assert workers.call("evidence.take_stacks", workers.call("pids"))
    wait_until(lambda: "leaves" in workers.log(), "the signal of a hang")


def test_rank_0_prints_its_first_line_once_in_each_cycle(driven: Start, tmp_path: Path) -> None:
    code = "echo said; while [ ! -e $RANK-$FT_SUPERVISOR_CYCLE ]; do sleep 0.01; done; echo said again"
    workers = driven(job(tmp_path, command=["sh", "-c", code], per_node=2))

    def said(times: int) -> Callable[[], bool]:
        return lambda: workers.log().count("said\n") == times

    for cycle, group_rank in ((FIRST, 0), (SECOND, 0), (Cycle(0, 3), 1)):
        workers.call("start", run(cycle, group_rank=group_rank, nodes=2))
        wait_until(said(2 * cycle.n), "their first lines")
        for rank in range(4):
            (tmp_path / f"{rank}-{cycle}").touch()
        assert workers.event(WorkersExited) == WorkersExited(cycle, ())
    assert workers.first_lines == [FirstLine(FIRST), FirstLine(SECOND)]


def test_no_file_is_left_open_by_many_cycles(driven: Start, tmp_path: Path) -> None:
    workers = driven(job(tmp_path, command=["sh", "-c", "echo here; exit $LOCAL_RANK"], per_node=3))
    before = None
    for n in range(1, 11):
        workers.call("start", run(Cycle(0, n)))
        while workers.event(WorkersExited).failures:
            pass
        assert workers.call("evidence.flush", BOUND)  # files are closed by who writes them
        open_fds = workers.call("open_fds")
        before = before or open_fds
        assert open_fds == before
    assert workers.log().count("here") == 30


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Make a memory cgroup of version 1 with a limit for this test."""
    folder = Path("/sys/fs/cgroup/memory") / f"ft-supervisor-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 can be made here: {error}")
    (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
    with suppress(OSError):
        (folder / "memory.memsw.limit_in_bytes").write_text(str(LIMIT))
    yield folder
    until = time.monotonic() + BOUND
    for pid in (folder / "cgroup.procs").read_text().split():
        (folder.parent / "cgroup.procs").write_text(pid)
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            assert time.monotonic() < until, f"{folder} can't be removed"
            time.sleep(0.05)


@pytest.mark.parametrize("command", ["exec {}", "{}; exit $?"])
def test_a_worker_killed_for_want_of_memory(command: str, cgroup: Path, driven: Start, tmp_path: Path) -> None:
    eat = f"{sys.executable} -S -c 'kept = [bytearray(1 << 20) for _ in range(2000)]'"
    script = f"echo 1000 > /proc/self/oom_score_adj; [ $LOCAL_RANK = 1 ] && kill -9 $$; {command.format(eat)}"
    workers = driven(job(tmp_path, command=["sh", "-c", script], per_node=2))
    wait_until(lambda: workers.call("pids") == {}, "the process")
    (cgroup / "cgroup.procs").write_text(str(workers.pid))
    workers.call("start", run(FIRST))
    causes: dict[int, Failure] = {}
    while failures := workers.event(WorkersExited).failures:
        causes |= {failure.local_rank: failure for failure in failures}
    assert causes[0].cause is Cause.OOM
    assert causes[0].signal == "SIGKILL" or causes[0].exit_code == 137
    assert causes[1].signal == "SIGKILL"
