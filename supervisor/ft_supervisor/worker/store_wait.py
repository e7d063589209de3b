"""Lets `init_process_group` look for the store of rank 0 only once it listens, and lets a function leave meanwhile.

A torch TCPStore that is refused a connection tries again after 0.25 to 0.75 s (ExponentialBackoffWithJitter in
TCPStore.cpp). Workers that go on in their processes are there within milliseconds of each other, so that this pause
would be the most of a restart. The price is one more connection for each worker, of which the store's one thread looks
up the peer's name: so this is for worlds that are not too large.

A store whose connection breaks at its beginning is tried again in C++ until the group's timeout, for which no signal
helps. So another thread makes the store, and the main thread can leave without it. Standard library only; private parts
of torch are used as they are in torch 2.13.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .leaving import LEAVING, atomic, in_main_thread

_LARGEST = 256
"""Workers of the largest world that is waited for: so many look-ups of names take less time than the pause."""
_BOUND = 10.0
"""Seconds after which torch tries for itself."""
_PAUSE = 0.01
_CONNECT = 1.0
"""Seconds that one attempt may take."""
_ATTEMPT = 0.5
"""Seconds of the first attempt to connect to another rank's store. torch may take one more connection and one more
pause, and so up to two seconds."""
_LOOK = 0.02
"""Seconds between two looks at whether the cycle has ended."""

_thread: threading.Thread | None = None
"""Makes the store of the newest cycle."""


def install() -> None:
    """Wait in torch's `env://` from now on, if the script has imported torch.distributed."""
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    handlers = getattr(rendezvous, "_rendezvous_handlers", {})
    if "env" in handlers and not hasattr(handlers["env"], "waits"):
        handlers["env"] = _after_wait(handlers["env"])


def _after_wait(handler: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(url: str, **kwargs: Any) -> Iterator[Any]:
        get = os.environ.get
        address, port, size = get("MASTER_ADDR"), get("MASTER_PORT", ""), get("WORLD_SIZE", "")
        follows = get("RANK") != "0" and "rank=" not in url  # a rank that the script names may be another one
        if follows and address and port.isdecimal() and size.isdecimal() and int(size) <= _LARGEST:
            wait(address, int(port))
        make = partial(_attempts if follows and "timeout" in kwargs else _once, handler, url, kwargs)
        yield _made_beside(make) if in_main_thread() else _once(handler, url, kwargs)
        raise RuntimeError("env:// has no second rendezvous")

    waiting.waits = True  # type: ignore[attr-defined]
    return waiting


def _once(handler: Callable[..., Any], url: str, kwargs: dict[str, Any]) -> Any:
    return next(handler(url, **kwargs))


def _attempts(handler: Callable[..., Any], url: str, kwargs: dict[str, Any]) -> Any:
    """Return the store, which another rank serves, after attempts that take longer and longer, until the timeout."""
    kind = type(kwargs["timeout"])
    until, bound = time.monotonic() + kwargs["timeout"].total_seconds(), _ATTEMPT
    while True:
        left = until - time.monotonic()
        try:
            return _once(handler, url, kwargs | {"timeout": kind(seconds=min(left, bound))})
        except sys.modules["torch"].distributed.DistError:
            if left <= bound or LEAVING.due:
                raise
        bound *= 2


def _made_beside(make: Callable[[], Any]) -> Any:
    """Return a store that another thread makes. Raises its exception, and Restart when the cycle ends: then the thread
    is left behind, and what it makes is dropped."""
    global _thread
    made: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    _thread = threading.Thread(target=_make, args=(make, made), daemon=True, name="torch's store")
    with atomic():  # it is alive once this has returned
        _thread.start()
    while True:
        LEAVING.check()
        with suppress(queue.Empty):
            store, error = made.get(timeout=_LOOK)
            if error is not None:
                raise error
            return store


def _make(make: Callable[[], Any], made: queue.SimpleQueue[tuple[Any, BaseException | None]]) -> None:
    try:
        made.put((make(), None))
    except BaseException as error:
        made.put((None, error))


def is_pending() -> bool:
    """Return whether a store is still being made."""
    return _thread is not None and _thread.is_alive()


def wait(address: str, port: int, bound: float = _BOUND) -> None:
    """Return when something listens there, or after so many seconds. Raises Restart when the cycle ends."""
    until = time.monotonic() + bound
    with suppress(OSError):  # the name is not known: torch's error says so
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        while time.monotonic() < until and not any(_listens(*place) for place in places):
            if in_main_thread():
                LEAVING.check()
            time.sleep(_PAUSE)


def _listens(family: int, kind: int, protocol: int, _name: str, place: Any) -> bool:
    with suppress(OSError), socket.socket(family, kind, protocol) as connection:
        connection.settimeout(_CONNECT)
        connection.connect(place)
        return True
    return False
