"""This node's own addresses: of an interface, or of whatever leads out. Reads the kernel and the resolver alone."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable

from ft_supervisor.process.background import Background, Hangs

SIOCGIFADDR = 0x8915  # netdevice(7)
RESOLVE_BOUND = 1.0
"""Seconds that a look-up may take before the name counts as one that does not resolve."""


def interface_address(interface: str) -> str | None:
    """The IPv4 address of a network interface; None where there is no such interface, or it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(sock, SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def interfaces() -> dict[str, str]:
    """Name to IPv4 address, of the interfaces that have one."""
    found = {name: interface_address(name) for _, name in socket.if_nameindex()}
    return {name: address for name, address in found.items() if address}


def primary_address() -> str:
    """The IPv4 address that packets to elsewhere leave from, else that of any interface, the loopback as the last."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # a documentation address (RFC 5737); connecting UDP sends nothing
        except OSError:
            pass
        else:
            return str(sock.getsockname()[0])
    return min(interfaces().values(), key=_is_loopback, default="127.0.0.1")


def resolve(name: str, bound: float = RESOLVE_BOUND) -> str | None:
    """The first address of a name; None when it has none, or no answer came within `bound` seconds."""
    return next(iter(addresses(name, bound)), None)


def addresses(name: str, bound: float = RESOLVE_BOUND) -> list[str]:
    """All addresses of a name, the preferred one first; none when no answer came within `bound` seconds."""
    try:
        found = Background(f"look-up of {name}", lambda: socket.getaddrinfo(name, None)).result(bound)
    except (OSError, UnicodeError, Hangs):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def only(found: Iterable[str]) -> str:
    """The one address among those of this node's name that peers certainly use; "" where that is not certain.

    A name may stand for 127.0.1.1 on its own node alone (Debian's /etc/hosts), and for addresses of several networks
    (nss-myhostname gives all), of which peers know one.
    """
    outside = [each for each in found if not (_is_loopback(each) or _is_link_local(each))]
    return outside[0] if len(outside) == 1 else ""


def numeric_address(addr: str, bound: float = RESOLVE_BOUND) -> str:
    """What peers that cannot resolve `addr`, which is this node's, can use instead.

    A name may stand for 127.0.1.1 on its own node (Debian's /etc/hosts): that is no use to others.
    """
    if literal := numeric(addr):
        return literal
    found = resolve(addr, bound)
    if found is not None and not _is_loopback(found):
        return found
    return primary_address()


def numeric(text: str) -> str:
    """`text` if it is an address and no name; else ""."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_link_local


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
