"""Checks the ports that the job's stores and metrics listen on."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from pathlib import Path

from ft_slurm import ports
from ft_supervisor.doctor.environment import Environment
from ft_supervisor.doctor.finding import Finding, fail, ok, warn
from ft_supervisor.process.ports import PortsTaken, bind_first

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check(here: Environment) -> list[Finding]:
    """Check that the ports can be bound now, and that the kernel does not give them to others."""
    wanted = candidates(here)
    free = [port for port in wanted if bindable(port)]
    found = [judge(wanted, len(free)), *overlap(wanted)]
    metrics = here.config.settings.metrics if here.config is not None else None
    if metrics is not None and metrics.listen != "off":
        if bindable(metrics.port):
            found.append(ok("metrics", f"port {metrics.port} is free here"))
        else:
            text = f"port {metrics.port} is taken here"
            found.append(warn("metrics", text, "this job or another one uses it; metrics.port sets another port"))
    return found


def candidates(here: Environment) -> tuple[int, ...]:
    """Return the step's ports; outside of a step the configured ones, or a sample of those that steps get."""
    configured = None if here.config is None or here.config.network.port == "auto" else here.config.network.port
    if here.step is not None:
        return ports.candidates(here.step, configured)
    first = configured if configured is not None else random.randrange(ports.FIRST, ports.LAST - ports.TRIES + 2)
    return tuple(range(first, min(first + ports.TRIES, 65536)))


def bindable(port: int) -> bool:
    """Return whether this node can listen there now."""
    try:
        bind_first("", [port]).close()
    except PortsTaken:
        return False
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return False
        raise
    return True


def judge(wanted: Sequence[int], free: int) -> Finding:
    """Judge the number of free ports: the coordinator takes the first one."""
    text = f"{free} of {wanted[0]}-{wanted[-1]} are free"
    if not free:
        return fail("ports", text, "set network.port to the first of some free ports")
    return ok("ports", text)


def overlap(wanted: Sequence[int], path: Path = EPHEMERAL) -> list[Finding]:
    """Warn of ports in the kernel's range for connections (ip(7)): a connection may take them at any time."""
    try:
        low, high = map(int, path.read_text().split())
    except (OSError, ValueError):
        return []
    hit = [port for port in wanted if low <= port <= high]
    if not hit:
        return []
    text = f"{hit[0]}-{hit[-1]} are among those that the kernel gives to connections ({low}-{high})"
    return [warn("ports", text, "set network.port outside of these")]
