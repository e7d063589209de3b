"""The notify sockets, with real senders."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until

from ft_supervisor.agent.notify import Beats, parse, step_of
from ft_supervisor.core.protocol.events import Beat

SENDER = """
import os, socket, sys
name = os.environ["NOTIFY_SOCKET"]
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.connect("\\0" + name[1:] if name[0] == "@" else name)
for line in sys.stdin:
    message = eval(line)
    if sys.argv[1:] == ["child"]:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        else:
            sock.send(message)
            sys.stdin.readline()
            os._exit(0)
    else:
        sock.send(message)
"""


class Worker:
    """A process that sends the messages that it gets from the test."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", SENDER, *arguments], stdin=subprocess.PIPE, env={"NOTIFY_SOCKET": name}
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(repr(message).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(BOUND)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()


@pytest.fixture
def beats() -> Iterator[Beats]:
    beats = Beats()
    yield beats
    beats.close()


@pytest.fixture
def workers(beats: Beats, tmp_path: Path) -> Iterator[list[Worker]]:
    """Start two workers, of local ranks 0 and 1, whose sockets are read."""
    names = beats.open(tmp_path / "notify", range(2))
    workers = [Worker(names[rank]) for rank in range(2)]
    beats.listen({rank: worker.pid for rank, worker in enumerate(workers)})
    yield workers
    for worker in workers:
        worker.close()


def test_parse() -> None:
    assert parse(b"WATCHDOG=1") == ("beat", None, None)
    assert parse(b"READY=1\nSTATUS=step 7\nMAINPID=4\n") == ("ready", None, "step 7")
    assert parse(b"WATCHDOG=1\nWATCHDOG=trigger\nREADY=1") == ("trigger", None, None)
    assert parse(b"STOPPING=1") == ("stopping", None, None)
    assert parse(b"WATCHDOG_USEC=2500000") == ("beat", 2.5, None)
    assert parse(b"WATCHDOG_USEC=0") == parse(b"WATCHDOG_USEC=18446744073709551615") == ("beat", 0.0, None)
    assert parse(b"STATUS=" + b"x" * 300)[2] == "x" * 199 + "…"
    assert parse(b"STATUS=a\x1b[31m\x00\tb\xff")[2] == "a\ufffd b\ufffd"
    nothing = (None, None, None)
    for data in (
        b"",
        b"\n\n",
        b"=",
        b"WATCHDOG",
        b"WATCHDOG=2",
        b"WATCHDOG_USEC=-1",
        b"WATCHDOG_USEC=\xc2\xb2",
        b"\xff",
    ):
        assert parse(data) == nothing
    assert parse(b"WATCHDOG_USEC=" + b"9" * 4000) == nothing


def test_the_step_that_a_worker_names() -> None:
    assert [step_of(said) for said in ("step 7", "Step: 1769, loss 2.1", "step=3/90", "step 7.5")] == [7, 1769, 3, 7]
    for said in (None, "", "steps 7", "evaluating, step 7", "step x", f"step {2**53 + 1}", "step " + "9" * 30):
        assert step_of(said) is None


def test_the_newest_of_each_rank(beats: Beats, workers: list[Worker]) -> None:
    workers[0].send(b"READY=1\nSTATUS=warming up")
    workers[0].send(b"WATCHDOG_USEC=3000000")
    workers[0].send(b"WATCHDOG=1")
    workers[1].send(b"WATCHDOG=1")
    workers[1].send(b"WATCHDOG=trigger\nSTATUS=stuck")
    workers[0].send(b"STATUS=step 1\nUNKNOWN=7")
    wait_until(lambda: beats.statuses() == {0: "step 1", 1: "stuck"}, "the statuses")
    assert sorted(beats.poll(), key=lambda beat: beat.local_rank) == [Beat(0, "ready", 3.0), Beat(1, "trigger")]
    assert beats.poll() == ()
    workers[0].send(b"WATCHDOG=1")
    assert wait_until(beats.poll, "a beat") == (Beat(0, "beat"),)
    assert beats.refused() == {}


def test_only_the_rank_and_what_it_started_are_heard(beats: Beats, tmp_path: Path) -> None:
    names = beats.open(tmp_path / "notify", range(2))
    family = Worker(names[0], "child")
    stranger = Worker(names[0])
    try:
        beats.listen({0: family.pid, 1: stranger.pid})  # another rank's worker, on a socket that is not its own
        stranger.send(b"WATCHDOG=1\nSTATUS=no")
        stranger.send(b"WATCHDOG=1\nSTATUS=no")
        wait_until(lambda: beats.refused() == {0: 2}, "the refusals")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.sendto(b"STOPPING=1", names[1])  # its parent's parent
        wait_until(lambda: beats.refused() == {0: 2, 1: 1}, "another refusal")
        family.send(b"WATCHDOG=1")
        assert wait_until(beats.poll, "a beat") == (Beat(0, "beat"),)
        assert beats.statuses() == {}
    finally:
        family.close()
        stranger.close()


def test_what_comes_before_listening_waits(beats: Beats, tmp_path: Path) -> None:
    worker = Worker(beats.open(tmp_path / "notify", [0])[0])
    try:
        worker.send(b"READY=1")
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(BOUND) == 0
        assert beats.poll() == ()
        beats.listen({0: worker.pid})
        assert wait_until(beats.poll, "a beat") == (Beat(0, "ready"),)
    finally:
        worker.close()


LARGE = """
import os, socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    sock.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)  # SO_SNDBUFFORCE
except PermissionError:
    pass
size = min(4 << 20, sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 4)
sock.connect(os.environ["NOTIFY_SOCKET"])
sock.send(b"WATCHDOG=1\\n" * (size // 11))
for _ in range(100):
    sock.send(os.urandom(4000).replace(b"\\n", b""))
sock.send(b"STATUS=alive")
print(size)
"""


def test_large_and_binary_messages_do_no_harm(beats: Beats, tmp_path: Path) -> None:
    name = beats.open(tmp_path / "notify", [0])[0]
    command = [sys.executable, "-S", "-c", LARGE]
    with subprocess.Popen(command, env={"NOTIFY_SOCKET": name}, stdout=subprocess.PIPE) as worker:
        beats.listen({0: worker.pid})
        wait_until(lambda: beats.statuses() == {0: "alive"}, "the status")
        assert beats.poll() == ()
        assert beats.refused() == {0: 1}
        assert worker.stdout is not None and int(worker.stdout.read()) > 10_000


BARRIER = """
import array, os, socket
sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sock.connect(os.environ["NOTIFY_SOCKET"])
reading, writing = os.pipe()
for _ in range(30):
    fds = array.array("i", [writing] * 100)
    sock.sendmsg([b"BARRIER=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
os.close(writing)
assert os.read(reading, 1) == b""
sock.send(b"STATUS=closed")
"""


def test_passed_file_descriptors_are_closed(beats: Beats, tmp_path: Path) -> None:
    name = beats.open(tmp_path / "notify", [0])[0]
    before = len(list(Path("/proc/self/fd").iterdir()))
    with subprocess.Popen([sys.executable, "-S", "-c", BARRIER], env={"NOTIFY_SOCKET": name}) as worker:
        beats.listen({0: worker.pid})
        assert worker.wait(BOUND) == 0
        wait_until(lambda: beats.statuses() == {0: "closed"}, "the status")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_long_folder_makes_abstract_names(beats: Beats, tmp_path: Path) -> None:
    name = beats.open(tmp_path / ("x" * 100) / "notify", [0])[0]
    assert name.startswith("@")
    worker = Worker(name)
    try:
        beats.listen({0: worker.pid})
        worker.send(b"WATCHDOG=1")
        assert wait_until(beats.poll, "a beat") == (Beat(0, "beat"),)
    finally:
        worker.close()


def test_the_folder_is_ours_alone_and_emptied(beats: Beats, tmp_path: Path) -> None:
    folder = tmp_path / "notify"
    folder.mkdir(mode=0o755)
    (folder / "0").touch()  # left by an agent that was killed
    assert beats.open(folder, [0]) == {0: str(folder / "0")}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "0").is_socket()
    beats.close()
    assert list(folder.iterdir()) == []
    assert beats.open(folder, [0]) == {0: str(folder / "0")}


@pytest.mark.skipif(shutil.which("systemd-notify") is None, reason="no systemd-notify here")
def test_systemd_notify_is_heard(beats: Beats, tmp_path: Path) -> None:
    name = beats.open(tmp_path / "notify", [0])[0]
    command = ["sh", "-c", "systemd-notify --ready --status='by systemd'; sleep 1000"]
    with subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": name}, start_new_session=True) as worker:
        try:
            beats.listen({0: worker.pid})
            wait_until(lambda: beats.statuses() == {0: "by systemd"}, "the status")
            assert beats.poll() == (Beat(0, "ready"),)
        finally:
            os.killpg(worker.pid, 9)


def test_a_worker_that_has_run_before_it_had_a_socket_is_heard(beats: Beats, tmp_path: Path) -> None:
    """A spare's worker is known before its first cycle, and goes on in its process in that one."""
    beats.listen({0: os.getpid()})
    (name,) = beats.open(tmp_path / "notify", [0], kept=[0]).values()
    beats.listen({0: os.getpid()})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.sendto(b"WATCHDOG=1", "\0" + name[1:] if name.startswith("@") else name)
        assert wait_until(beats.poll, "a beat") == (Beat(0, "beat"),)


def test_what_was_sent_before_is_known_at_once(beats: Beats, tmp_path: Path) -> None:
    name = beats.open(tmp_path, [0])[0]
    beats.listen({0: os.getpid()})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(name.replace("@", "\0", 1))
        for _ in range(200):
            sock.send(b"READY=1")
            assert beats.poll() == (Beat(0, "ready"),)
