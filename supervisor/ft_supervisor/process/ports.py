"""Finds free ports, and listens on the first free one of several."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

_LOWEST = 20000
"""Below it are the well-known services and Slurm's ports (6817 and up, and the usual SrunPortRange)."""
_BACKLOG = 4096


class PortsTaken(OSError):
    """None of the ports that this node may listen on is free."""


def free_port(host: str = "", avoid: Collection[int] = ()) -> int:
    """Return a port to which nothing is bound on `host` now ("": on any address, as torch's own stores listen on all).

    The port is outside of the range from which the kernel takes ports for connections (ip(7), ip_local_port_range), so
    that no connection takes it before it is used. It is random, so that two callers at the same time rarely get the
    same. Raises PortsTaken, and OSError when `host` is no address of this node.
    """
    ports = _range()
    start = random.randrange(len(ports))
    for port in chain(ports[start:], ports[:start]):
        if port in avoid:
            continue
        try:
            _bind(host, port, reuse=False).close()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return port
    raise PortsTaken(f"no port is free between {ports.start} and {ports.stop - 1}")


def bind_first(host: str, ports: Sequence[int]) -> socket.socket:
    """Listen on the first of `ports` that is free, on `host` ("": on all addresses), and return the socket. Raises
    PortsTaken, which names them all, and OSError when `host` is no address of this node."""
    for port in ports:
        sock: socket.socket | None = None
        try:
            sock = _bind(host, port, reuse=True)
            sock.listen(_BACKLOG)
            return sock
        except OSError as error:
            if sock is not None:
                sock.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise PortsTaken(f"all ports are taken on {host or 'this node'}: {', '.join(map(str, ports)) or 'none is allowed'}")


def _range() -> range:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low - _LOWEST >= 1000:
        return range(_LOWEST, low)
    if 65535 - high >= 1000:
        return range(high + 1, 65536)
    return range(_LOWEST, 32768)


def _bind(host: str, port: int, reuse: bool) -> socket.socket:
    """Return a socket bound to `port`. With `reuse`, connections of a former listener that have not quite ended
    (tcp(7), TIME_WAIT) do not prevent it; a living listener does."""
    if host:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _bound(family, address, reuse)
    try:
        return _bound(socket.AF_INET6, ("::", port), reuse)
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _bound(socket.AF_INET, ("0.0.0.0", port), reuse)


def _bound(family: int, address: tuple[str | int, ...] | tuple[int, bytes], reuse: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
