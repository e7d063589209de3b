"""Lets `init_process_group` look for the store of rank 0 only once it listens.

A torch TCPStore that is refused a connection tries again after 0.25 to 0.75 s (ExponentialBackoffWithJitter in
TCPStore.cpp). Workers that go on in their processes are there within milliseconds of each other, so that this pause
would be the most of a restart. The price is one more connection for each worker, of which the store's one thread looks
up the peer's name: so this is for worlds that are not too large. Standard library only; what is private in torch was
read in torch 2.13.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .leaving import LEAVING, in_main_thread

_LARGEST = 256
"""Workers of the largest world that is waited for: so many look-ups of names take less time than the pause."""
_BOUND = 10.0
"""Seconds after which torch tries for itself."""
_PAUSE = 0.01
_CONNECT = 1.0
"""Seconds that one attempt may take."""


def install() -> None:
    """Wait in torch's `env://` from now on, if the script has imported torch.distributed."""
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    handlers = getattr(rendezvous, "_rendezvous_handlers", {})
    if "env" in handlers and not hasattr(handlers["env"], "waits"):
        handlers["env"] = _after_wait(handlers["env"])


def _after_wait(handler: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        get = os.environ.get
        address, port, size = get("MASTER_ADDR"), get("MASTER_PORT", ""), get("WORLD_SIZE", "")
        if get("RANK") != "0" and address and port.isdecimal() and size.isdecimal() and int(size) <= _LARGEST:
            wait(address, int(port))
        return handler(*args, **kwargs)

    waiting.waits = True  # type: ignore[attr-defined]
    return waiting


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
