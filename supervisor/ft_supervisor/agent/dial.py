"""Finding the coordinator's store among hosts and ports, whatever freezes on the way.

A name look-up, a file on a hung NFS and a store that accepts but never answers may each block for good, so each is
waited for with a bound in a thread of its own. A thread still hanging is waited for again later, never doubled.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypeVar

from ft_supervisor.core.model import PROTOCOL, Job
from ft_supervisor.store import tcp
from ft_supervisor.store.base import Store, StoreLost
from ft_supervisor.store.keys import Keys

CANDIDATE = 0
"""infra_rank of the coordinator; the only one until there is takeover."""

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """Two connections to our coordinator's store, which listens at `address`."""

    address: tuple[str, int]
    store: Store
    mail: Store


class Dialer:
    """Makes connections for one thread at a time. `bound`: seconds that any one step may take."""

    def __init__(self, job: Job, bound: float) -> None:
        self._job = job
        self._bound = bound
        self._hello = Keys(job.run_id).hello
        self._hanging: dict[object, Future[object]] = {}
        self._rounds = 0

    def dial(self) -> Found:
        """Ask every address once. Raises StoreLost with the reason of the last one that is not our coordinator's.

        At first only the host's name, later also the file that the coordinator's daemon writes: thousands of nodes
        need not ask a shared file system at start.
        """
        self._rounds += 1
        why = "no address"
        for host, port in self._addresses():
            try:
                return self._bounded((host, port), partial(self._connect, host, port), host)
            except StoreLost as error:
                why = str(error)
        raise StoreLost(why)

    def _addresses(self) -> Iterator[tuple[str, int]]:
        name = self._job.hosts[CANDIDATE]
        if not name:
            yield from self._bounded("file", self._read_file, "address file")
            return
        if self._rounds > 1:
            with suppress(StoreLost):  # not written yet, or not needed
                yield from self._bounded("file", self._read_file, "address file")
        hosts = self._bounded("name", partial(_resolve, name), name)
        yield from product(hosts, self._job.ports)

    def _read_file(self) -> list[tuple[str, int]]:
        path = Path(self._job.run_folder, "addr", str(CANDIDATE))
        try:
            address = json.loads(path.read_text())
            return [(host, int(address["port"])) for host in _resolve(str(address["host"]))]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreLost(f"{path}: {error}") from None

    def _connect(self, host: str, port: int) -> Found:
        store = tcp.connect(host, port, self._bound)
        hello = store.get(self._hello)
        try:
            told = json.loads(hello or b"null")
        except ValueError:
            told = None
        ours = {"run_id": self._job.run_id, "protocol": PROTOCOL, "infra_rank": CANDIDATE}
        if not isinstance(told, dict) or {key: told.get(key) for key in ours} != ours:
            raise StoreLost(f"{host}:{port}: not our coordinator's store")
        return Found((host, port), store, store.clone())

    def _bounded(self, key: object, function: Callable[[], T], what: str) -> T:
        future = self._hanging.get(key)
        if future is None:
            future = self._hanging[key] = Future()
            threading.Thread(target=_fulfil, args=(future, function), daemon=True, name=f"dial {what}").start()
        try:
            result: T = future.result(self._bound * 2)  # type: ignore[assignment] # a key's function is always the same
        except TimeoutError:
            raise StoreLost(f"{what}: no answer within {self._bound * 2:g} s") from None
        finally:
            if future.done():
                self._hanging.pop(key, None)
        return result


def _fulfil(future: Future[object], function: Callable[[], object]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # raised again by who waits
        future.set_exception(error)


def _resolve(name: str) -> list[str]:
    """All its addresses, the preferred one first."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise StoreLost(f"{name}: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
