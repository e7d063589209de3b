"""Checks whether names resolve, and how fast.

A TCPStore's server looks up the name of every peer on the one thread that serves all of them, so a name server that
does not answer stops them all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ft_supervisor.daemon import network
from ft_supervisor.doctor.environment import Environment
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.process.background import Background, Hangs

BOUND = 6.0
"""Seconds for all look-ups together: one lost packet costs the resolver 5 s."""
SLOW = 1.0
MOST = 32
"""Number of nodes that are looked up here; each costs a name server two questions."""


@dataclass(frozen=True)
class LookUp:
    """One look-up. `answer` None: there is none, for the reason `why`. `took`: seconds."""

    name: str
    answer: str | None
    took: float
    why: str = ""


def check(here: Environment) -> list[Finding]:
    """Check this machine's own name, the names of the job's nodes, and the names of their addresses."""
    suffix = here.config.network.suffix if here.config is not None else ""
    aliases = here.step.addresses if here.step is not None else {}
    nodes = [aliases.get(name) or name + suffix for name in sample(here.nodes, here.host)]
    forward = look_up(nodes or [here.host], forwards)
    addresses = sorted({found.answer for found in forward if found.answer is not None})
    backward = look_up(addresses, backwards) if addresses else []
    found = [judge(forward, len(here.nodes)), *judge_backward(backward)]
    return [*found, *interface(here)]


def sample(nodes: Sequence[str], host: str) -> list[str]:
    """Return at most MOST nodes: this one, the first ones, which keep coordinators, and others evenly from the rest."""
    if len(nodes) <= MOST:
        return list(nodes)
    first = list(nodes[:8])
    step = (len(nodes) - 8) / (MOST - 9)
    rest = [nodes[8 + int(at * step)] for at in range(MOST - 9)]
    return list(dict.fromkeys([host, *first, *rest] if host in nodes else [*first, *rest]))


def forwards(name: str) -> str:
    """Return the address of a name. Raises OSError, UnicodeError."""
    return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])


def backwards(address: str) -> str:
    """Return the name of an address, which torch asks for too; the address itself where it has none. Raises OSError."""
    return socket.getnameinfo((address, 0), 0)[0]


def look_up(names: Sequence[str], ask: Callable[[str], str], bound: float = BOUND) -> list[LookUp]:
    """Look up all names at once, in at most `bound` seconds. A look-up that hangs longer is abandoned."""
    until = time.monotonic() + bound
    asked = [(name, Background(f"look-up of {name}", lambda name=name: _timed(name, ask))) for name in names]  # type: ignore[misc]
    found = []
    for name, asking in asked:
        try:
            found.append(asking.result(until - time.monotonic()))
        except Hangs:
            found.append(LookUp(name, None, bound, f"no answer within {bound:g} s"))
    return found


def _timed(name: str, ask: Callable[[str], str]) -> LookUp:
    began = time.monotonic()
    try:
        answer, why = ask(name), ""
    except (OSError, UnicodeError) as error:
        return LookUp(name, None, time.monotonic() - began, str(error))
    return LookUp(name, answer, time.monotonic() - began, why)


def judge(found: Sequence[LookUp], nodes: int) -> Finding:
    """Judge the look-ups of names. `nodes`: the number of the job's nodes; 0 outside of a job, where the only name is
    this machine's."""
    bad = [each for each in found if each.answer is None]
    slowest = max(found, key=lambda each: each.took)
    todo = "name the nodes in /etc/hosts, or set network.interface or network.suffix"
    if bad:
        names = ", ".join(each.name for each in bad[:5]) + (", ..." if len(bad) > 5 else "")
        text = f"{len(bad)} of {len(found)} do not resolve: {names} ({bad[0].why})"
        return (fail if nodes else warn)("names", text, todo)
    within = f"in {slowest.took * 1000:.0f} ms"
    text = f"{len(found)} of {nodes} nodes resolve, the slowest {within}"
    if not nodes:
        text = f"{found[0].name} resolves to {found[0].answer} {within}"
    if slowest.took > SLOW:
        return warn("names", f"{text} ({slowest.name})", todo)
    return ok("names", text)


def judge_backward(found: Sequence[LookUp]) -> list[Finding]:
    """Judge the look-ups of addresses. A missing name does no harm, as long as the answer comes soon."""
    if not found:
        return []
    slowest = max(found, key=lambda each: each.took)
    text = f"{len(found)} asked for, the slowest took {slowest.took * 1000:.0f} ms"
    if slowest.took <= SLOW:
        return [ok("names of addresses", text)]
    todo = 'name the nodes in /etc/hosts, or set RES_OPTIONS: "timeout:1 attempts:1" in workers.env'
    return [warn("names of addresses", f"{text} ({slowest.name}): torch waits that long at each connection", todo)]


def interface(here: Environment) -> list[Finding]:
    """Check the interface that the policy names, on a node of a job."""
    if here.config is None or here.config.network.interface == "auto" or not here.nodes:
        return []
    name = here.config.network.interface
    if (address := network.interface_address(name)) is not None:
        return [ok("interface", f"{name} has {address}")]
    there = ", ".join(f"{each} {address}" for each, address in network.interfaces().items())
    text = f"network.interface {name} has no IPv4 address here; these have: {there}"
    return [fail("interface", text, "name one of these")]
