"""Finds the first candidate whose store answers, past hosts that are dead and stores that are frozen.

core/agent/dialling.py decides which route is tried when; this module makes each attempt, in a thread of its own.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from queue import Empty, SimpleQueue

from ft_supervisor.agent.single_flight import SingleFlight
from ft_supervisor.config.canonical import differs
from ft_supervisor.core.agent.dialling import Dialling, Route
from ft_supervisor.core.protocol.bounds import Name, Port
from ft_supervisor.core.protocol.codec import from_plain
from ft_supervisor.core.protocol.model import Job
from ft_supervisor.core.words import one_line
from ft_supervisor.process import clock
from ft_supervisor.process.log import log
from ft_supervisor.run_folder import ownfolder, smallfile
from ft_supervisor.store import hello, tcp
from ft_supervisor.store.base import HostSilent, Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import parse_pulse

_MOST = 4096
"""Bytes read of a coordinator's address file."""
_GLANCE = 0.5
"""Seconds between two checks whether the search has been abandoned."""


@dataclass(frozen=True)
class FoundStore:
    """Two connections to the store of `candidate`, which listens at `address`.

    `round` is its pulse's, asked for at `asked` (process.clock) on one of them.
    """

    candidate: int
    address: tuple[str, int]
    store: Store
    mail: Store
    asked: float
    round: int


class PolicyMismatch(StoreLost):
    """A store of this job answers with another configuration. The message is one line."""


@dataclass(frozen=True)
class _Address:
    """The content of the file that daemon.files.write_address writes."""

    host: Name
    port: Port


class Dialer:
    """Makes connections; for any thread. `bound`: seconds for a host to answer."""

    def __init__(self, job: Job, bound: float) -> None:
        self._job = job
        self._bound = bound
        self._keys = Keys(job.run_id)
        self._calls = SingleFlight()

    def dial(
        self, candidates: Sequence[int], abandoned: threading.Event, differs: Callable[[str, bool], None] | None = None
    ) -> FoundStore | None:
        """Return the first store that answers. Candidates are asked in this order, each with a head start before the
        next.

        Goes on until one is found, or until `abandoned` is set: then it returns None. A candidate without a name has
        only its file. A store with another configuration does not end the search, as anyone on that host could have
        made it: `differs` is called once, with one line about it, and whether the job's own address file names that
        store.
        """
        dialling = Dialling(candidates, lambda candidate: bool(self._job.hosts[candidate]), time.monotonic())
        answers: SimpleQueue[Route] = SimpleQueue()
        asked: dict[Route, Future[FoundStore]] = {}
        while not abandoned.is_set():
            for route in dialling.begin(time.monotonic()):
                asked[route] = self._begin(route, answers)
            try:
                route = answers.get(timeout=max(0.0, min(_GLANCE, dialling.due_at - time.monotonic())))
            except Empty:
                continue
            future = asked.pop(route)
            error = future.exception()
            if error is None:
                return future.result()
            if not isinstance(error, StoreLost):
                raise error
            if isinstance(error, PolicyMismatch) and dialling.differs(route, str(error)) and differs is not None:
                differs(str(error), route.by_file)
            if (reason := dialling.failed(route, str(error), time.monotonic())) is not None:
                log("coordinator_not_found", "info" if dialling.late(time.monotonic()) else "debug", reason=reason)
        return None

    def _begin(self, route: Route, answers: SimpleQueue[Route]) -> Future[FoundStore]:
        future = self._calls.begin(("route", route.candidate, route.by_file), partial(self._ask, route))
        # not the future itself: without a waiting caller it has to be freed, with its connections
        future.add_done_callback(partial(_answer, answers, route))
        return future

    def _ask(self, route: Route) -> FoundStore:
        """Try every address of one route once. Raises PolicyMismatch where a store has another configuration and none
        has ours, else StoreLost with the reason of the last one."""
        why, silent = "no address", set()
        other: PolicyMismatch | None = None
        candidate = route.candidate
        for host, port in self._from_file(candidate) if route.by_file else self._from_name(candidate):
            if host in silent:
                continue
            try:
                connect = partial(self._connect, candidate, host, port)
                return self._calls.wait((candidate, host, port), connect, 2 * self._bound, f"{host}:{port}")
            except StoreLost as error:
                why = str(error)
                if isinstance(error, HostSilent):
                    silent.add(host)
                elif isinstance(error, PolicyMismatch):
                    other = error
        raise other or StoreLost(why)

    def _from_name(self, candidate: int) -> Iterator[tuple[str, int]]:
        name = self._job.hosts[candidate]
        hosts = self._calls.wait(("name", name), partial(_resolve, name), 2 * self._bound, name)
        return product(hosts, self._job.ports)

    def _from_file(self, candidate: int) -> Iterator[tuple[str, int]]:
        path = Path(self._job.run_folder, "addr", str(candidate))
        read = partial(_read_address, path)
        return iter(self._calls.wait(("file", candidate), read, 2 * self._bound, str(path)))

    def _connect(self, candidate: int, host: str, port: int) -> FoundStore:
        store = tcp.connect(host, port, self._bound)
        name = self._job.nodes[candidate]
        theirs = hello.read(store.get(self._keys.hello), self._job, candidate)
        if theirs is None:
            raise StoreLost(f"{host}:{port}: not the store of {name}'s coordinator")
        if theirs != (ours := hello.policy_sum(self._job)):
            told = (store.get(self._keys.policy) or b"").decode(errors="replace")
            where = differs(self._job.policy, told) or "they say the same"
            text = f"the configuration here (sha256 {ours}) is not {name}'s ({theirs}): {where}"
            raise PolicyMismatch(one_line(text))
        mail = store.clone()
        asked = clock.now()
        return FoundStore(candidate, (host, port), store, mail, asked, parse_pulse(store.get(self._keys.pulse)).round)


def _answer(answers: SimpleQueue[Route], route: Route, _: Future[FoundStore]) -> None:
    answers.put(route)


def _read_address(path: Path) -> list[tuple[str, int]]:
    """Return the addresses that a coordinator's daemon wrote. The file is trusted only below a folder of ours."""
    try:
        ownfolder.check(path.parent.parent)
        address: _Address = from_plain(json.loads(smallfile.read(path, _MOST)), _Address)
    except (OSError, smallfile.NotSmall, ValueError, RecursionError) as error:
        raise StoreLost(f"{path}: {one_line(str(error), 200)}") from None
    return [(host, address.port) for host in _resolve(address.host)]


def _resolve(name: str) -> list[str]:
    """Return all addresses of a name, the preferred one first."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # ValueError: not a valid name
        raise StoreLost(f"{name}: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
