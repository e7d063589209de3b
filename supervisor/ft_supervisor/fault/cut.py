"""Cuts a node off from its job: nft drops the packets to and from the job's other nodes.

The addresses sit in a set from which the kernel itself removes them when the time is over (nft(8), timeout), so that
the cut ends even if this process is gone. Traffic that does not go through IP, such as InfiniBand's verbs, is not cut.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.core.words import one_line
from ft_supervisor.fault.messages import NotAllowed, NotThere

NEAREST = "what comes nearest is `freeze node`"
BOUND = 10.0
"""Seconds for nft."""
_CAP_NET_ADMIN = 12
"""capability.h."""
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


class Cut:
    """The packets between this machine and the other nodes of `job`; raises NotAllowed, NotThere."""

    def __init__(self, job: Job, node: Node) -> None:
        if job.signal_workers:
            raise NotAllowed(f"the nodes of `local` share this machine's network: no cut; {NEAREST}")
        self._nft = shutil.which("nft", path=_PATH)
        if missing := why_not(self._nft):
            raise NotAllowed(f"{missing}; {NEAREST}")
        own = _addresses(host for rank, host in enumerate(job.hosts) if rank == node.infra_rank)
        self._peers = _addresses(host for rank, host in enumerate(job.hosts) if rank != node.infra_rank) - own
        if not self._peers:
            raise NotThere(f"no other node's name has an address on {node.name}; {NEAREST}")
        self._table = f"ft_fault_{os.getpid()}"

    def begin(self, seconds: float) -> None:
        """Begin the cut, for so many seconds. Raises NotAllowed when nft fails."""
        self._run(rules(self._table, self._peers, seconds))

    def end(self) -> None:
        """End the cut early, or remove its empty table. Raises NotAllowed."""
        self._run(f"delete table inet {self._table}\n")

    def _run(self, text: str) -> None:
        assert self._nft is not None
        command = [self._nft, "-f", "-"]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=BOUND, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAllowed(f"nft: {error}; {NEAREST}") from None
        if done.returncode:
            raise NotAllowed(f"nft: {one_line(done.stderr, 300)}; {NEAREST}")


def why_not(nft: str | None, status: str | None = None) -> str | None:
    """Return what is missing for a cut; None if nothing is. `status`: the text of /proc/self/status."""
    text = Path("/proc/self/status").read_text() if status is None else status
    effective = next((line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), "0")
    if not int(effective, 16) >> _CAP_NET_ADMIN & 1:
        return "a cut needs the capability CAP_NET_ADMIN on the node"
    return None if nft else "a cut needs the program nft (of the package nftables) on the node"


def rules(table: str, peers: Iterable[str], seconds: float) -> str:
    """Return the input for nft: a table of our own, whose sets are empty when the time is over."""
    timeout = f"{math.ceil(seconds * 1000)}ms"
    sets, ingoing, outgoing = [], [], []
    for family, kind, name in (("ip", "ipv4_addr", "four"), ("ip6", "ipv6_addr", "six")):
        here = sorted(address for address in peers if (":" in address) == (family == "ip6"))
        if here:
            elements = ", ".join(f"{address} timeout {timeout}" for address in here)
            sets.append(f"  set {name} {{ type {kind}; flags timeout; elements = {{ {elements} }} }}")
            ingoing.append(f"{family} saddr @{name} drop;")
            outgoing.append(f"{family} daddr @{name} drop;")
    chains: Mapping[str, list[str]] = {"input": ingoing, "output": outgoing}
    return "\n".join(
        [
            f"table inet {table} {{",
            *sets,
            *(
                f"  chain {hook} {{ type filter hook {hook} priority -300; policy accept; {' '.join(lines)} }}"
                for hook, lines in chains.items()
            ),
            "}",
            "",
        ]
    )


def _addresses(hosts: Iterable[str]) -> set[str]:
    found = set()
    for host in hosts:
        try:
            found |= {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host}
        except OSError:
            continue  # this machine cannot resolve it
    return found
