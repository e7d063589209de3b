"""Real agents and real stores, with the test as their daemon and their coordinator."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ft_supervisor.core.protocol import codec, messages, orders
from ft_supervisor.core.protocol.events import FirstLine, WorkersStarted
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle, Job, Memory, Node, Timeouts
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.process.link import Link
from ft_supervisor.process.tree import sweep
from ft_supervisor.store import tcp
from ft_supervisor.store.keys import Keys

BOUND = 60.0
"""Seconds until a test gives up; nothing waits for it otherwise."""
RUN_ID = "77.0.0"
NODE = Node(1, "n1", "127.0.0.1")

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str) -> T:
    """Return the function's first true value."""
    until = time.monotonic() + BOUND
    while not (value := condition()):
        assert time.monotonic() < until, f"{what} did not come true"
        time.sleep(0.01)
    return value


def environment() -> dict[str, str]:
    """Return this process's environment without the variables that the import of the store has added."""
    return {name: value for name, value in os.environ.items() if name not in tcp.ADDED_TO_ENVIRONMENT}


def listen() -> socket.socket:
    """Listen on a new port on the loopback interface."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def port_of(listening: socket.socket) -> int:
    """Return the socket's port."""
    port: int = listening.getsockname()[1]
    return port


class Nursery:
    """The process that forks agents and stores; see nursery.py."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, str(Path(__file__).with_name("nursery.py")), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment())
        self._control.settimeout(BOUND)
        self._codes: dict[int, int] = {}
        self._living: set[int] = set()
        self._ready = False

    def store(
        self, listening: socket.socket, log: Path, hello: dict[str, object] | None = None, term: int | None = 0
    ) -> int:
        """Start a store at `listening` and return its pid. `hello`: what differs from node 0's. `term`: None if not in
        charge."""
        request = {"kind": "store", "log": str(log), "run_id": RUN_ID, "hello": hello or {}, "term": term}
        with listening:
            return self._fork(request, [listening.fileno()])[0]

    def agent(self, log: Path) -> tuple[int, socket.socket]:
        """Start an agent. Return its pid and the daemon's end of its link."""
        pid, fds = self._fork({"kind": "agent", "log": str(log)}, [])
        return pid, socket.socket(fileno=fds[0])

    def workers(self, log: Path) -> tuple[int, socket.socket]:
        """Start Workers without the rest of an agent. Return the pid, and the test's end of its socket; see
        nursery.py."""
        pid, fds = self._fork({"kind": "workers", "log": str(log)}, [])
        return pid, socket.socket(fileno=fds[0])

    def exit_code(self, pid: int) -> int:
        """Wait for a child's end and return its exit code."""
        while pid not in self._codes:
            self._receive()
        return self._codes[pid]

    def kill_all(self) -> None:
        """End the children of one test, and what these have left."""
        for pid in self._living - self._codes.keys():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.exit_code(pid)
        self._living.clear()
        assert not sweep(self._process.pid)

    def close(self) -> None:
        """End the nursery."""
        self._process.kill()
        self._process.wait()
        self._control.close()

    def _fork(self, request: dict[str, Any], fds: list[int]) -> tuple[int, list[int]]:
        if not self._ready:
            self._control.recv(65536)
            self._ready = True
        socket.send_fds(self._control, [json.dumps(request).encode()], fds)
        while "started" not in (answer := self._receive())[0]:
            pass
        self._living.add(answer[0]["started"])
        return answer[0]["started"], answer[1]

    def _receive(self) -> tuple[dict[str, int], list[int]]:
        data, fds, _, _ = socket.recv_fds(self._control, 65536, 1)
        answer: dict[str, int] = json.loads(data)
        if "pid" in answer:
            self._codes[answer["pid"]] = answer["code"]
        return answer, fds


class Scripted:
    """A coordinator whose every message comes from the test, with a store in its own process."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        listening: socket.socket,
        hello: dict[str, object] | None = None,
        term: int | None = 0,
    ) -> None:
        self.port = port_of(listening)
        self.keys = Keys(RUN_ID)
        self.register: messages.Register | None = None
        """The newest one; whom `mail` is for."""
        self.pid = nursery.store(listening, folder / "store.log", hello, term)
        self.store = tcp.connect("127.0.0.1", self.port, BOUND)

    def expect(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """Return the next message of this kind; others before it are dropped."""
        until = time.monotonic() + BOUND
        while (data := self.store.pop(self.keys.inbox, max(0.01, until - time.monotonic()))) is not None:
            message = codec.decode(data, messages.TO_COORDINATOR)
            if isinstance(message, messages.Register):
                self.register = message
            if isinstance(message, kind) and where(message):
                return message
        raise AssertionError(f"no {kind.__name__}")

    @property
    def mailbox(self) -> str:
        """Return the queue of the agent's newest connection."""
        assert self.register is not None
        return self.keys.mail(NODE.infra_rank, self.register.incarnation, self.register.connection)

    def mail(self, message: messages.ToAgent) -> None:
        """Send a message to the agent."""
        self.store.push(self.mailbox, codec.encode(message))

    def kill(self) -> None:
        """Kill the store, as its node's death would."""
        os.kill(self.pid, signal.SIGKILL)


class Agent:
    """A real agent, seen from its daemon's end of the link."""

    def __init__(self, nursery: Nursery, job: Job, incarnation: int = 1, memory: Memory | None = None) -> None:
        self._nursery = nursery
        self.log_file = Path(job.local_folder) / "agent.log"
        self.pid, sock = nursery.agent(self.log_file)
        self.link = Link(sock)
        self.link.send(orders.Begin(job, NODE, incarnation, memory or Memory()))

    def expect(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """Return the next order of this kind; others before it are dropped."""
        until = time.monotonic() + BOUND
        while (order := self.link.receive(max(0.0, until - time.monotonic()))) is not None:
            if isinstance(order, kind) and where(order):
                return order
        raise AssertionError(f"no {kind.__name__}; the agent's log:\n{self.log()}")

    def log(self) -> str:
        """Return the output of the agent and its workers."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def exit_code(self) -> int:
        """Wait for the agent's end and return its exit code."""
        return self._nursery.exit_code(self.pid)

    def close(self) -> None:
        """Close the link, as the daemon's death would."""
        self.link.close()


class Driven:
    """Workers in another process; see nursery.py."""

    def __init__(self, nursery: Nursery, job: Job) -> None:
        self.log_file = Path(job.local_folder) / "workers.log"
        self.pid, self._sock = nursery.workers(self.log_file)
        self._sock.settimeout(BOUND)
        self._file = self._sock.makefile("rwb")
        self._events: list[Any] = []
        self.made: list[WorkersStarted] = []
        """How the workers of each cycle were made, as far as events were read."""
        self.first_lines: list[FirstLine] = []
        """Rank 0's first lines, as far as events were read."""
        self._send((job, NODE))

    def _send(self, what: object) -> None:
        pickle.dump(what, self._file)
        self._file.flush()

    def call(self, method: str, *arguments: object) -> Any:
        """Return the result of this method of Workers."""
        self._send((method, *arguments))
        while True:
            kind, value = pickle.load(self._file)
            if kind == "answer":
                return value
            self._events.append(value)

    def any_event(self) -> object:
        """Return the next event, but for those that are kept in `made` and `first_lines`."""
        while True:
            event = self._events.pop(0) if self._events else pickle.load(self._file)[1]
            match event:
                case WorkersStarted():
                    self.made.append(event)
                case FirstLine():
                    self.first_lines.append(event)
                case _:
                    return event

    def event(self, kind: type[T]) -> T:
        """Return the next event, which is of this kind."""
        event = self.any_event()
        assert isinstance(event, kind), f"{event}\n{self.log()}"
        return event

    def log(self) -> str:
        """Return the output of the workers and of their parent."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def close(self) -> None:
        self._file.close()
        self._sock.close()


def run(cycle: Cycle, group_rank: int = 0, nodes: int = 1, restart_count: int | None = None) -> messages.Run:
    """Return a Run of the first term, with a master that does not exist. `restart_count`: the cycle's number by
    default."""
    restart_count = cycle.n if restart_count is None else restart_count
    others = [rank for rank in range(nodes) if rank != NODE.infra_rank] + [nodes]
    group = [*others[:group_rank], NODE.infra_rank, *others[group_rank:]][:nodes]
    return messages.Run(
        term=0,
        cycle=cycle,
        group=format_ranks(group),
        group_rank=group_rank,
        group_world_size=nodes,
        restart_count=restart_count,
        max_restarts=max(3, restart_count),
        master_addr="127.0.0.1",
        master_port=29500,
        ledger=Ledger(restart_count, restart_count),
        age=0.0,
    )


def standby(cycle: Cycle | None = None) -> messages.Standby:
    """Return a Standby of the first term."""
    return messages.Standby(term=0, cycle=cycle, ledger=Ledger(), age=0.0)


def job(folder: Path, *ports: int, command: list[str], **changes: Any) -> Job:
    """Return a job of two nodes, of which ours is the second, in `folder`. No load of the machine uses up its
    timeouts."""
    settings: dict[str, Any] = {
        "run_id": RUN_ID,
        "nodes": ("n0", "n1"),
        "hosts": ("127.0.0.1", "127.0.0.1"),
        "ports": ports,
        "run_folder": str(folder),
        "local_folder": str(folder),
        "active": 1,
        "per_node": 1,
        "command": tuple(command),
        "timeouts": Timeouts(heartbeat=0.1, coordinator=BOUND, fence=2 * BOUND, restart_grace=BOUND, stop_grace=BOUND),
    }
    return Job(**(settings | changes))


def guard_below(pid: int) -> int | None:
    """Return the guard's pid, if it lives."""
    found = [child for child in _living_below(pid) if _is_guard(child)]
    assert len(found) <= 1
    return found[0] if found else None


def _is_guard(pid: int) -> bool:
    with suppress(OSError):
        return b"ft_supervisor.process.guard" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def living_below(pid: int) -> list[int]:
    """Return the processes below `pid`, without zombies and the guard."""
    return [child for child in _living_below(pid) if not _is_guard(child)]


def _living_below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        states[int(path.parent.name)] = state
        children.setdefault(int(parent), []).append(int(path.parent.name))
    found: list[int] = []
    todo = [pid]
    while todo:
        todo.extend(below := children.get(todo.pop(), []))
        found.extend(child for child in below if states[child] != "Z")
    return found
