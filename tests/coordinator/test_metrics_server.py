"""The server of Prometheus' requests, as a process with real clients: correct ones, wrong ones, and very many."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.coordinator.coordinator_harness import until

from ft_supervisor.coordinator.metrics_server import CLIENTS, host

BOUND = 60.0
LOCAL = "127.0.0.1"
QUICK = "CLIENT_BOUND=0.5"


class Served:
    """The process and its log."""

    def __init__(self, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.log = log
        self.process = process

    def lines(self, event: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if f"event={event} " in line]

    @property
    def port(self) -> int:
        """Return its port, once it listens."""
        until(lambda: bool(self.lines("metrics_served")), "that it listens")
        (found,) = re.findall(r"port=(\d+)", self.lines("metrics_served")[0])
        return int(found)

    def connect(self) -> socket.socket:
        return socket.create_connection((LOCAL, self.port), BOUND)

    def say(self, request: bytes) -> bytes:
        """Send these bytes and return the whole answer."""
        with self.connect() as sock:
            sock.sendall(request)
            return b"".join(iter(lambda: sock.recv(65536), b""))

    def get(self, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes]:
        """Return status and body."""
        connection = http.client.HTTPConnection(LOCAL, self.port, timeout=BOUND)
        connection.request(method, path)
        response = connection.getresponse()
        status, body = response.status, response.read()
        connection.close()
        return status, body

    def files(self) -> int:
        """Return how many files it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, repository: Path) -> Iterator[Serve]:
    """Return serve(text, constant...): see metrics_driver."""
    started: list[Served] = []

    def start(text: object, *constants: str, port: int = 0, address: str = LOCAL) -> Served:
        log = tmp_path / f"log{len(started)}"
        with log.open("wb") as file:
            driver = str(Path(__file__).with_name("metrics_driver.py"))
            process = subprocess.Popen(
                [sys.executable, driver, address, str(port), str(text), *constants],
                stdin=subprocess.PIPE,
                stderr=file,
                env={**os.environ, "PYTHONPATH": f"{repository}/supervisor:{repository}/slurm"},
            )
        started.append(Served(log, process))
        return started[-1]

    yield start
    for served in started:
        assert served.process.stdin is not None
        served.process.stdin.close()
        assert served.process.wait(BOUND) == 0, served.log.read_text()
        assert "Traceback" not in served.log.read_text()


def test_what_is_asked_is_told(serve: Serve) -> None:
    served = serve(5)
    assert served.get() == (200, b"xxxxx")
    assert served.get("/metrics?x=1") == (200, b"xxxxx")
    assert served.get(method="HEAD") == (200, b"")
    answer = served.say(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer.startswith(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x00\xff\r\n\r\n", 405),
        (b"GET\r\n\r\n", 404),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 8192, 431),
    ],
)
def test_what_is_no_such_request(serve: Serve, request_: bytes, code: int) -> None:
    assert serve(5).say(request_).startswith(f"HTTP/1.1 {code} ".encode())


def test_without_anything_to_tell_a_scrape_fails(serve: Serve) -> None:
    assert serve("nothing").get() == (503, b"the coordinator's main loop says nothing\n")


def test_an_error_of_ours_costs_the_answer_only(serve: Serve) -> None:
    served = serve("broken")
    for _ in range(2):
        assert served.say(b"GET /metrics HTTP/1.1\r\n\r\n") == b""
    assert served.get("/")[0] == 404
    (line,) = served.lines("metrics_failed")
    assert "ZeroDivisionError: of the test" in line


def test_a_taken_port_is_told_once_and_tried_again(serve: Serve) -> None:
    with socket.create_server((LOCAL, 0)) as sock:
        served = serve(5, "AGAIN=0.05", port=sock.getsockname()[1])
        until(lambda: bool(served.lines("metrics_not_served")), "that it says so")
        time.sleep(0.3)  # some more tries
        assert not served.lines("metrics_served")
    assert served.get() == (200, b"xxxxx")
    assert len(served.lines("metrics_not_served")) == 1


def test_an_address_of_another_machine_is_told(serve: Serve) -> None:
    served = serve(5, address="192.0.2.1")  # RFC 5737: nobody's
    until(lambda: bool(served.lines("metrics_not_served")), "that it says so")


def test_slow_clients_get_a_bounded_time(serve: Serve) -> None:
    served = serve(5, QUICK)
    before = served.port and served.files()
    slow = [served.connect() for _ in range(2 * CLIENTS)]
    for sock in slow:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
    assert served.get() == (200, b"xxxxx")
    for sock in slow:
        assert sock.recv(1) == b""
        sock.close()
    until(lambda: served.files() <= before, "that their files are closed")


def test_clients_that_never_read_get_a_bounded_time(serve: Serve) -> None:
    served = serve(50_000_000, QUICK)
    before = served.port and served.files()
    deaf = [served.connect() for _ in range(CLIENTS)]
    for sock in deaf:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    until(lambda: served.files() <= before, "that they are given up")
    assert served.get("/")[0] == 404
    for sock in deaf:
        sock.close()


def test_a_thousand_connections_cost_little(serve: Serve) -> None:
    served = serve(5, QUICK)
    before, spent = served.port and served.files(), cpu_seconds(served.process.pid)
    began = time.monotonic()
    many = []
    for _ in range(1000):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((LOCAL, served.port))
        many.append(sock)
    most = 0
    while time.monotonic() - began < 2:
        most = max(most, served.files())
    for sock in many:
        sock.close()
    assert most - before <= CLIENTS + 1
    assert served.get() == (200, b"xxxxx")
    assert cpu_seconds(served.process.pid) - spent < 1.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("listen", "addr", "expected"),
    [
        ("loopback", "n7", "127.0.0.1"),
        ("loopback", "10.1.2.3", "127.0.0.1"),
        ("loopback", "127.0.0.9", "127.0.0.9"),
        ("0.0.0.0", "127.0.0.9", "0.0.0.0"),
        ("::", "n7", "::"),
    ],
)
def test_where_it_listens(listen: str, addr: str, expected: str) -> None:
    assert host(listen, addr) == expected


def test_without_metrics_nothing_of_it_is_loaded() -> None:
    code = "import sys, ft_supervisor.coordinator.shell; print('prometheus_client' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND)
    assert result.stdout.strip() == "False", result.stderr
