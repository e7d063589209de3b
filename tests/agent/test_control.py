"""The control sockets, with real processes at their other ends."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, wait_until

from ft_supervisor.agent.control import LONGEST, Control, Said

PEER = """
import os, socket, sys
name = os.environ["FT_SUPERVISOR_SOCKET"]
address = "\\0" + name[1:] if name[0] == "@" else name
socks = []
for line in sys.stdin:
    what = line.split(" ", 1)
    if what[0].strip() == "connect":
        socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        socks[-1].connect(address)
    elif what[0] == "send":
        socks[-1].send(eval(what[1]))
    elif what[0] == "fork" and os.fork() == 0:
        socks.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        socks[-1].connect(address)
        socks[-1].send(eval(what[1]))
        socks[-1].recv(1)
        os._exit(0)
    elif what[0].strip() == "receive":
        data, fds, _, _ = socket.recv_fds(socks[-1], 65536, 4)
        print(data, len(fds), flush=True)
        for fd in fds: os.write(fd, b"from the peer")
"""


class Peer:
    """A process that does what the test tells it."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"FT_SUPERVISOR_SOCKET": name},
        )

    def tell(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate(timeout=BOUND)


class Ours:
    """The agent's end, with what it has heard so far."""

    def __init__(self, folder: Path) -> None:
        self.woken = threading.Event()
        self.control = Control(self.woken.set)
        self.names = self.control.open(folder, range(2))
        self.heard: list[Said] = []

    def wait(self, count: int) -> list[Said]:
        def enough() -> bool:
            self.heard += self.control.poll()
            return len(self.heard) >= count

        wait_until(enough, f"{count} messages")
        return self.heard


@pytest.fixture
def peer() -> Iterator[Callable[[str], Peer]]:
    peers: list[Peer] = []

    def start(name: str) -> Peer:
        peers.append(Peer(name))
        return peers[-1]

    yield start
    for one in peers:
        one.close()


Start = Callable[[str], Peer]
HI = """send b'{"type": "hi"}'"""


def admitted(ours: Ours, peer: Start, rank: int = 0, at: int | None = None) -> Peer:
    """Start a peer of this local rank, which connects to `at`'s socket."""
    found: list[Peer] = []

    def start() -> subprocess.Popen[bytes]:
        found.append(peer(ours.names[rank if at is None else at]))
        found[0].tell("connect", HI)
        return found[0].process

    ours.control.admit(rank, start)
    return found[0]


@pytest.mark.parametrize("depth", ["", "x" * 120])
def test_messages_and_descriptors_go_both_ways(depth: str, peer: Start, tmp_path: Path) -> None:
    ours = Ours(tmp_path / depth / "control")
    assert ours.names[0].startswith("@" if depth else str(tmp_path))
    one = admitted(ours, peer)
    assert ours.wait(1) == [Said(one.process.pid, {"type": "hi"})]
    assert ours.woken.is_set()
    reading, writing = os.pipe()
    assert ours.control.send(one.process.pid, {"type": "run", "env": {"ä": "\0"}}, [writing])
    os.close(writing)
    one.tell("receive")
    assert one.process.stdout is not None
    data, count = one.process.stdout.readline().rsplit(b" ", 1)
    assert json.loads(eval(data)) == {"type": "run", "env": {"ä": "\0"}} and int(count) == 1
    assert os.read(reading, 100) == b"from the peer"
    os.close(reading)
    one.close()
    assert ours.wait(2)[1] == Said(one.process.pid, None)
    assert not ours.control.send(one.process.pid, {"type": "run"})


def test_others_are_refused_and_counted(peer: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ours = Ours(tmp_path / "control")
    stranger = peer(ours.names[0])
    stranger.tell("connect", "connect")
    wait_until(lambda: ours.control.refused() == {0: 2}, "the stranger's")
    one = admitted(ours, peer)
    ours.wait(1)
    one.tell("connect")  # a second one of the same process
    wait_until(lambda: ours.control.refused() == {0: 3}, "the second")
    admitted(ours, peer, rank=0, at=1)  # of another rank
    wait_until(lambda: ours.control.refused() == {0: 3, 1: 1}, "the other rank's")
    assert capfd.readouterr().err.count("event=control_refused") == 2
    ours.control.renew()
    assert ours.control.refused() == {}
    ours.control.forget(one.process.pid)
    one.tell("connect")
    wait_until(lambda: ours.control.refused() == {0: 1}, "the forgotten one's")
    assert [said.message for said in ours.heard] == [{"type": "hi"}]


def test_a_process_below_the_worker_may_connect_for_it(peer: Start, tmp_path: Path) -> None:
    ours = Ours(tmp_path / "control")
    one = peer(ours.names[1])
    ours.control.admit(1, lambda: one.process)
    one.tell(HI.replace("send", "fork"))
    assert ours.wait(1) == [Said(one.process.pid, {"type": "hi"})]
    ours.control.forget(one.process.pid)  # which ends it


@pytest.mark.parametrize(
    "data",
    ["b'no'", "b'[1]'", "b'{}'", """b'{"type": 1}'""", "b'\\xff'", f"b'[' * {LONGEST - 1}", f"b' ' * {LONGEST + 9}"],
)
def test_what_is_no_message_closes_the_connection(data: str, peer: Start, tmp_path: Path) -> None:
    ours = Ours(tmp_path / "control")
    one = admitted(ours, peer)
    ours.wait(1)
    one.tell(f"send {data}")
    assert ours.wait(2)[1] == Said(one.process.pid, None)
    assert not ours.control.send(one.process.pid, {"type": "run"})


def test_one_that_floods_loses_its_connection(peer: Start, tmp_path: Path) -> None:
    ours = Ours(tmp_path / "control")
    one = admitted(ours, peer)
    assert ours.woken.wait(BOUND)
    one.tell(*[HI] * 1500)
    wait_until(lambda: not ours.control.send(one.process.pid, {"type": "x"}), "its end")
    assert 1000 <= len(ours.control.poll()) <= 1002


def test_the_last_words_of_one_that_has_not_read_all(peer: Start, tmp_path: Path) -> None:
    ours = Ours(tmp_path / "control")
    one = admitted(ours, peer)
    ours.wait(1)
    assert ours.control.send(one.process.pid, {"type": "run"})
    with ours.control._lock:  # so that the thread does not read before the end
        one.tell(HI.replace("hi", "last"))
        one.process.communicate(timeout=BOUND)
    ours.control.drain(one.process.pid)
    assert [said.message for said in ours.wait(3)] == [{"type": "hi"}, {"type": "last"}, None]


def test_a_socket_that_cannot_be_made_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control(lambda: None)
    monkeypatch.setattr(socket, "socket", lambda *_: (_ for _ in ()).throw(OSError("too many")))
    with pytest.raises(OSError, match="too many"):
        control.open(tmp_path, range(1))
