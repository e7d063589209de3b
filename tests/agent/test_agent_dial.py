"""Finding a candidate's store among dead hosts, frozen processes and strangers, all of them real."""

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from tests.agent.harness import BOUND, Nursery, job, listen, port_of, wait_until

from ft_supervisor.agent.dial import Dialer, FoundStore
from ft_supervisor.core.agent import dialling
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.run_folder import smallfile

DEAD = "127.0.0.2"
"""A host that is no more; it never answers for long."""


def find(dialer: Dialer, *candidates: int) -> FoundStore:
    """Return the store that the dialer finds, within the bound."""
    abandoned = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        try:
            found = pool.submit(dialer.dial, candidates, abandoned).result(BOUND)
        finally:
            abandoned.set()
    assert isinstance(found, FoundStore)
    return found


def of(folder: Path, *ports: int, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")) -> Job:
    """Return a job of two nodes, each a candidate."""
    return job(folder, *ports, command=["true"], hosts=hosts)


@contextlib.contextmanager
def unaccepting(port: int = 0) -> Iterator[int]:
    """Return a port of the host DEAD which drops all connections, as its accept queue is full (listen(2),
    tcp_abort_on_overflow being off): to a client it is a host that has lost its power."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((DEAD, port))
        listening.listen(0)
        while True:
            knock = stack.enter_context(socket.socket())
            knock.settimeout(0.5)
            try:
                knock.connect(listening.getsockname())
            except TimeoutError:
                break
        yield port_of(listening)


def established(port: int) -> int:
    """Return how many connections this process has to this port, by IPv4 and IPv6."""
    inodes = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(str(path.readlink()))
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return sum(line[2].endswith(f":{port:04X}") and f"socket:[{line[9]}]" in inodes for line in lines)


def steps(key: object) -> int:
    """Return how many threads work on this key."""
    return sum(thread.name == f"step {key}" for thread in threading.enumerate())


class Logged:
    """The log lines written since it was made."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.text = ""

    def wait_for(self, what: str) -> None:
        """Wait until it has been logged."""

        def look() -> bool:
            self.text += self._capfd.readouterr().err
            return what in self.text

        wait_until(look, f"{what} in the log")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give slow candidates so much time that no other one is asked for their slowness alone."""
    monkeypatch.setattr(dialling, "HEAD_START", 10 * BOUND)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("candidates", [(0, 1), (1, 0), (1, 0, 1)])
def test_the_first_of_the_candidates(candidates: tuple[int, ...], nursery: Nursery, tmp_path: Path) -> None:
    sockets = listen(), listen()
    ports = [port_of(sock) for sock in sockets]
    for rank, sock in enumerate(sockets):
        nursery.store(sock, tmp_path / "log", {"infra_rank": rank})
        find(Dialer(of(tmp_path, ports[rank]), BOUND), rank)  # it has begun
    found = find(Dialer(of(tmp_path, *ports), BOUND), *candidates)
    assert (found.candidate, found.address) == (candidates[0], ("127.0.0.1", ports[candidates[0]]))
    assert found.round >= 1


@pytest.mark.usefixtures("patient")
def test_one_that_refuses_is_no_reason_to_wait(nursery: Nursery, tmp_path: Path) -> None:
    sock = listen()
    port = port_of(sock)
    nursery.store(sock, tmp_path / "log", {"infra_rank": 1})
    assert find(Dialer(of(tmp_path, port, hosts=(DEAD, "127.0.0.1")), BOUND), 0, 1).candidate == 1


def test_a_dead_host_keeps_nobody_from_the_next_candidate(nursery: Nursery, tmp_path: Path) -> None:
    with unaccepting() as port:
        sock = socket.create_server(("127.0.0.1", port))
        nursery.store(sock, tmp_path / "log", {"infra_rank": 1})
        assert find(Dialer(of(tmp_path, port, hosts=(DEAD, "127.0.0.1")), 2 * BOUND), 0, 1).candidate == 1


def test_a_dead_hosts_other_ports_are_not_tried(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with unaccepting() as port, socket.create_server((DEAD, 0)) as other, ThreadPoolExecutor(1) as pool:
        abandoned = threading.Event()
        dialer = Dialer(of(tmp_path, port, port_of(other), hosts=(DEAD, "")), 0.2)
        dialing = pool.submit(dialer.dial, (0,), abandoned)
        told = Logged(capfd)
        told.wait_for("coordinator_not_found")
        abandoned.set()
        assert dialing.result(BOUND) is None
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert f"{DEAD}:{port}: timed out" in told.text


def test_a_frozen_store_is_left_behind_and_never_asked_twice(nursery: Nursery, tmp_path: Path) -> None:
    sockets = socket.create_server((DEAD, 0)), listen()
    ports = [port_of(sock) for sock in sockets]
    frozen, _ = (nursery.store(sock, tmp_path / "log", {"infra_rank": i}) for i, sock in enumerate(sockets))
    dialer = Dialer(of(tmp_path, *ports, hosts=(DEAD, "127.0.0.1")), BOUND)
    find(dialer, 0)  # it has begun
    os.kill(frozen, signal.SIGSTOP)
    for _ in range(3):
        found = find(dialer, 0, 1)
        assert found.candidate == 1
        assert steps((0, DEAD, ports[0])) == 1
        wait_until(lambda: steps(("route", 0, False)) == 1, "the end of a step that has just succeeded")
    assert established(ports[0]) > 0
    os.kill(frozen, signal.SIGCONT)
    wait_until(lambda: established(ports[0]) == 0, "the end of a connection that comes too late")
    assert established(ports[1]) == 2  # the last one found, which is still ours
    del found


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("hello", [{"infra_rank": 1}, {"run_id": "78.0.0"}, {"protocol": 0}])
def test_a_store_that_is_not_the_candidates(hello: dict[str, object], nursery: Nursery, tmp_path: Path) -> None:
    with listen() as silent:
        other, ours = listen(), listen()
        ports = port_of(silent), port_of(other), port_of(ours)
        nursery.store(other, tmp_path / "log", hello)
        nursery.store(ours, tmp_path / "log")
        found = find(Dialer(of(tmp_path, *ports), 0.5), 0)
        assert found.address == ("127.0.0.1", ports[2])
        wait_until(lambda: established(ports[1]) == 0, "the end of the wrong connection")


@pytest.mark.usefixtures("patient")
def test_a_coordinator_with_another_configuration(nursery: Nursery, tmp_path: Path) -> None:
    """The node logs once where they differ, and goes on looking. Its job's address file makes it certain."""
    listening = listen()
    port = port_of(listening)
    theirs = '{"nodes.active":4,"timeouts.join":60.0}'
    nursery.store(listening, tmp_path / "log", {"configuration": theirs})
    job = replace(of(tmp_path, port), policy='{"nodes.active":4,"timeouts.join":600.0}')
    abandoned, told, certain = threading.Event(), [], threading.Event()

    def differs(reason: str, by_file: bool) -> None:
        told.append(reason)
        if by_file:
            certain.set()

    with ThreadPoolExecutor(1) as pool:
        dialing = pool.submit(Dialer(job, 0.5).dial, (0,), abandoned, differs)
        try:
            wait_until(lambda: told, "the difference")
            wait_until(lambda: established(port) == 0, "the end of the wrong connection")
            assert not certain.is_set()
            write_address(tmp_path, port)
            assert certain.wait(BOUND)
        finally:
            abandoned.set()
        assert dialing.result(BOUND) is None
    assert len(told) == 2 and len(set(told)) == 1
    sums = [sha256(text.encode()).hexdigest() for text in (job.policy, theirs)]
    assert told[0].startswith(f"the configuration here (sha256 {sums[0]}) is not n0's ({sums[1]}): timeouts.join")


def write_address(folder: Path, port: int) -> None:
    """Write the file as the daemon of n0 does."""
    (folder / "addr").mkdir()
    (folder / "addr" / "0").write_text(json.dumps({"host": "127.0.0.1", "port": port}))


@pytest.mark.parametrize("by_file", [False, True])
def test_a_stranger_that_answers_with_another_configuration_is_passed_by(
    by_file: bool, nursery: Nursery, tmp_path: Path
) -> None:
    """It has the first of the ports; our store is on the next, or at the address in the file."""
    squatter, ours = listen(), listen()
    first, second = port_of(squatter), port_of(ours)
    nursery.store(squatter, tmp_path / "log", {"policy": "0" * 64})
    nursery.store(ours, tmp_path / "log")
    if by_file:
        write_address(tmp_path, second)
    job = of(tmp_path, first) if by_file else of(tmp_path, first, second)
    assert find(Dialer(job, BOUND), 0).address == ("127.0.0.1", second)


@pytest.mark.usefixtures("patient")
def test_a_stranger_on_one_host_hides_no_other_candidate(nursery: Nursery, tmp_path: Path) -> None:
    squatter, ours = socket.create_server((DEAD, 0)), listen()
    job = of(tmp_path, port_of(squatter), port_of(ours), hosts=(DEAD, "127.0.0.1"))
    nursery.store(squatter, tmp_path / "log", {"policy": "0" * 64})
    nursery.store(ours, tmp_path / "log", {"infra_rank": 1})
    assert find(Dialer(job, BOUND), 0, 1).candidate == 1


@pytest.mark.parametrize("host", ["", "no-such-node.invalid", "127.0.0.1"])
def test_the_address_file(host: str, nursery: Nursery, tmp_path: Path) -> None:
    with listen() as unused:
        port = port_of(unused)
    sock = listen()
    address = {"host": "127.0.0.1", "port": port_of(sock)}
    nursery.store(sock, tmp_path / "log", {"infra_rank": 1})
    (tmp_path / "addr").mkdir()
    (tmp_path / "addr" / "1").write_text(json.dumps(address))
    found = find(Dialer(of(tmp_path, port, hosts=("", host)), BOUND), 0, 1)
    assert (found.candidate, found.address) == (1, ("127.0.0.1", address["port"]))


def test_an_address_file_that_hangs(
    nursery: Nursery, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs as on an NFS server that is gone: a FIFO would not do, as opening one does not wait."""
    hangs, abandoned = threading.Event(), threading.Event()

    def read(path: Path, limit: int) -> bytes:
        hangs.wait(BOUND)
        raise OSError("the server is gone")

    monkeypatch.setattr(smallfile, "read", read)
    (tmp_path / "addr").mkdir()
    with listen() as unused:
        port = port_of(unused)
    dialer = Dialer(of(tmp_path, port), 0.5)
    try:
        with ThreadPoolExecutor(1) as pool:
            dialing = pool.submit(dialer.dial, (0,), abandoned)
            told = Logged(capfd)
            told.wait_for("coordinator_not_found")
            assert steps(("file", 0)) == 1
            nursery.store(socket.create_server(("127.0.0.1", port)), tmp_path / "log")
            found = dialing.result(BOUND)
            assert isinstance(found, FoundStore) and found.address == ("127.0.0.1", port)
    finally:
        abandoned.set()
        hangs.set()
    wait_until(lambda: steps(("file", 0)) == 0, "the reader's end")


def test_a_search_ends_when_it_is_abandoned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with listen() as unused:
        port = port_of(unused)
    abandoned = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        dialing = pool.submit(Dialer(of(tmp_path, port), 0.5).dial, (0, 1), abandoned)
        told = Logged(capfd)
        told.wait_for("coordinator_not_found")
        assert not dialing.done()
        abandoned.set()
        assert dialing.result(BOUND) is None
    assert told.text.count("coordinator_not_found") == 1
    assert "Connection refused" in told.text
