"""Which domain this node is in, by the source that the policy names (design: identity).

A source that should know and does not is an error: a node that pretended to be nowhere would be chosen wrongly. Only
`nvlink` may find nothing, as a cluster can have nodes without a fabric: such a node is in no domain, and says why.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from ft_slurm import command, topology
from ft_slurm.command import Unanswered
from ft_slurm.environment import StepEnvironment
from ft_slurm.errors import NoDomain
from ft_supervisor.config.model import Domain
from ft_supervisor.config.topology import domain_of_name
from ft_supervisor.core import words

FABRIC_BOUND = 10.0
"""Seconds for NVML, which may hang on a sick GPU; its process is killed then, which may take `command.KILL_BOUND`."""
FABRIC_COMMAND = (sys.executable, "-P", "-m", "ft_supervisor.daemon.nvml", "--fabric")
_FABRIC = re.compile(r"[0-9a-f-]{36}\.[0-9]+\n")


def find(domain: Domain, step: StepEnvironment, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The node's domain_id, "" for none, and warnings, a line each.

    Raises NoDomain for a node that the source does not know. With `nvlink` it may take FABRIC_BOUND and KILL_BOUND.
    """
    match domain.source:
        case "slurm_topology":
            return topology.domain(step.topology_addr, step.topology_pattern, domain.level or ""), ()
        case "node_name":
            return _of_name(step.node_name, domain.pattern or ""), ()
        case "file":
            return _of_file(step.node_name, domain), ()
        case "nvlink":
            return of_fabric(environ)
        case "none":
            return "", ()


def of_fabric(
    environ: Mapping[str, str], ask: Sequence[str] = FABRIC_COMMAND, bound: float = FABRIC_BOUND
) -> tuple[str, tuple[str, ...]]:
    """The NVLink domain that the command `ask` prints, or "" and why there is none."""
    try:
        done = command.run(ask, bound, environ)
    except Unanswered as error:
        why = str(error)
    else:
        # What it has printed counts, and not a 0 alone (command.CommandResult).
        if done.code == 0 and _FABRIC.fullmatch(done.stdout):
            return done.stdout.strip(), ()
        why = done.problem
    return "", (f"this node is in no domain: source nvlink, and {why}",)


def _of_name(node_name: str, pattern: str) -> str:
    found = domain_of_name(pattern, node_name)
    if not found:
        raise NoDomain(f"topology.domain: {pattern!r} finds nothing in the node name {node_name!r}")
    return found


def _of_file(node_name: str, domain: Domain) -> str:
    for name, nodes in domain.nodes:
        if node_name in nodes:
            return name
    raise NoDomain(f"topology.domain: {domain.path} has no domain with the node {node_name}; it has {_some(domain)}")


def _some(domain: Domain) -> str:
    names = [name for name, _ in domain.nodes]
    return words.names(names[:8], len(names))
