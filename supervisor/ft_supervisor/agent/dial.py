"""Finding the first candidate whose store answers, whatever is dead or frozen on the way.

Each candidate is asked by routes: by its name, and after a first failure also by the file that its daemon writes
(thousands of nodes need not ask a shared file system at start). A route that has failed is tried again, with backoff,
for ever; one that hangs holds up no other.
"""

from __future__ import annotations

import json
import math
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

from ft_supervisor.agent.steps import Steps
from ft_supervisor.config.canonical import differs
from ft_supervisor.core.bounds import Name, Port
from ft_supervisor.core.codec import from_plain
from ft_supervisor.core.model import Job
from ft_supervisor.core.words import one_line
from ft_supervisor.observe import ownfolder, smallfile
from ft_supervisor.process import clock
from ft_supervisor.process.log import log
from ft_supervisor.store import hello, tcp
from ft_supervisor.store.base import HostSilent, Store, StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.pulses import parse_pulse

HEAD_START = 0.5
"""Seconds that a candidate has to answer, or to fail, before the next one is asked besides."""
_BACKOFF = (0.05, 0.5)
"""Seconds between two attempts of a route: the first, doubled up to the second."""
_FILE_BACKOFF = 2.0
"""The same for a file that is looked at besides a name, by every node of the job, on a shared file system."""
_MOST = 4096
"""Bytes of such a file."""
_PATIENCE = 1.0
"""Seconds until a search that finds nothing is worth a log line: a coordinator may just be slower to start than we."""
_GLANCE = 0.5
"""Seconds between two looks whether the search has been abandoned."""


@dataclass(frozen=True)
class Found:
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
    """A store that answers as this job's has another configuration; one line."""


@dataclass(frozen=True)
class _Address:
    """What the file of daemon.files.write_address says."""

    host: Name
    port: Port


@dataclass(eq=False)
class _Route:
    candidate: int
    by_file: bool
    at: float
    """When to begin (again), by the monotonic clock; infinite while under way."""
    wait: float = _BACKOFF[0]
    second: bool = False
    """Whether the candidate has another route, which has failed."""
    why: str | None = None
    """The reason of the last failure."""


class Dialer:
    """Makes connections; for any thread. `bound`: seconds that a host may take to answer."""

    def __init__(self, job: Job, bound: float) -> None:
        self._job = job
        self._bound = bound
        self._keys = Keys(job.run_id)
        self._steps = Steps()

    def dial(
        self, candidates: Sequence[int], abandoned: threading.Event, differs: Callable[[str, bool], None] | None = None
    ) -> Found | None:
        """The first store that answers. Candidates are asked in this order, each with a head start before the next.

        Goes on until one is found, or `abandoned` is set: None. A candidate without a name has only its file. A store
        with another configuration does not end the search, as anyone on that host could have made it: `differs` gets
        the line that says so, once, and whether the job's own address file names that store.
        """
        began, told = time.monotonic(), False
        others: set[tuple[str, bool]] = set()
        routes = [
            _Route(candidate, not self._job.hosts[candidate], began + i * HEAD_START)
            for i, candidate in enumerate(dict.fromkeys(candidates))
        ]
        answers: SimpleQueue[_Route] = SimpleQueue()
        asked: dict[_Route, Future[Found]] = {}
        while not abandoned.is_set():
            self._begin_due(routes, answers, asked)
            try:
                route = answers.get(timeout=_until(routes))
            except Empty:
                continue
            future = asked.pop(route)
            error = future.exception()
            if error is None:
                return future.result()
            if not isinstance(error, StoreLost):
                raise error
            if isinstance(error, PolicyMismatch) and (other := (str(error), route.by_file)) not in others:
                others.add(other)
                if differs is not None:
                    differs(*other)
            _fail(route, routes, str(error))
            if not told and time.monotonic() - began >= _PATIENCE and all(route.why for route in routes):
                told = True
                log("coordinator_not_found", reason="; ".join(str(route.why) for route in routes))
        return None

    def _begin_due(
        self, routes: list[_Route], answers: SimpleQueue[_Route], asked: dict[_Route, Future[Found]]
    ) -> None:
        now = time.monotonic()
        for route in routes:
            if route.at <= now:
                route.at = math.inf
                key = ("route", route.candidate, route.by_file)
                asked[route] = self._steps.begin(key, partial(self._ask, route.candidate, route.by_file))
                # not the future itself: one that nobody waits for has to vanish, with its connections
                asked[route].add_done_callback(partial(_answer, answers, route))

    def _ask(self, candidate: int, by_file: bool) -> Found:
        """Every address of one route once. Raises PolicyMismatch where a store has another configuration and none has
        ours, else StoreLost with the last one's reason."""
        why, silent = "no address", set()
        other: PolicyMismatch | None = None
        for host, port in self._from_file(candidate) if by_file else self._from_name(candidate):
            if host in silent:
                continue
            try:
                connect = partial(self._connect, candidate, host, port)
                return self._steps.wait((candidate, host, port), connect, 2 * self._bound, f"{host}:{port}")
            except StoreLost as error:
                why = str(error)
                if isinstance(error, HostSilent):
                    silent.add(host)
                elif isinstance(error, PolicyMismatch):
                    other = error
        raise other or StoreLost(why)

    def _from_name(self, candidate: int) -> Iterator[tuple[str, int]]:
        name = self._job.hosts[candidate]
        hosts = self._steps.wait(("name", name), partial(_resolve, name), 2 * self._bound, name)
        return product(hosts, self._job.ports)

    def _from_file(self, candidate: int) -> Iterator[tuple[str, int]]:
        path = Path(self._job.run_folder, "addr", str(candidate))
        read = partial(_read_address, path)
        return iter(self._steps.wait(("file", candidate), read, 2 * self._bound, str(path)))

    def _connect(self, candidate: int, host: str, port: int) -> Found:
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
        return Found(candidate, (host, port), store, mail, asked, parse_pulse(store.get(self._keys.pulse)).round)


def _answer(answers: SimpleQueue[_Route], route: _Route, _: Future[Found]) -> None:
    answers.put(route)


def _until(routes: list[_Route]) -> float:
    """Seconds until something is to be done."""
    return max(0.0, min(_GLANCE, min((route.at for route in routes), default=math.inf) - time.monotonic()))


def _fail(route: _Route, routes: list[_Route], why: str) -> None:
    """Try again later; the first time it is also the next candidate's turn, and a name is not all that there is."""
    first, now = route.why is None and not route.second, time.monotonic()
    longest = _FILE_BACKOFF if route.second else _BACKOFF[1]
    route.why, route.at, route.wait = why, now + route.wait, min(2 * route.wait, longest)
    if not first:
        return
    if not route.by_file:
        routes.append(_Route(route.candidate, True, route.at, second=True))
    for other in routes:
        if other.why is None and not other.second and now < other.at < math.inf:
            other.at = now
            break


def _read_address(path: Path) -> list[tuple[str, int]]:
    """What a coordinator's daemon wrote: below a folder of ours, as it is believed."""
    try:
        ownfolder.check(path.parent.parent)
        address: _Address = from_plain(json.loads(smallfile.read(path, _MOST)), _Address)
    except (OSError, smallfile.NotSmall, ValueError, RecursionError) as error:
        raise StoreLost(f"{path}: {one_line(str(error), 200)}") from None
    return [(host, address.port) for host in _resolve(address.host)]


def _resolve(name: str) -> list[str]:
    """All its addresses, the preferred one first."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # no name at all, perhaps
        raise StoreLost(f"{name}: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
