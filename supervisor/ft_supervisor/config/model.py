"""Declares the configuration as a whole: plain frozen data, complete and checked when it is loaded.

The annotations declare the keys (`core.protocol.keys`). Most of them are in `core.protocol.settings`, as the core's
machines go by them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Literal

from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.keys import Special
from ft_supervisor.core.protocol.model import Job, Outcome, Timeouts, last_grace
from ft_supervisor.core.protocol.settings import Settings

Source = Literal["slurm_topology", "node_name", "file", "nvlink", "none"]


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a node's domain_id comes from (design: identity)."""

    source: Annotated[
        Source,
        keys.Required("it must be slurm_topology, node_name, file, nvlink or none"),
        "Where a node's domain comes from.",
    ] = "none"
    level: Annotated[
        Literal["switch", "block"] | None, "slurm_topology: the level of SLURM_TOPOLOGY_ADDR that counts."
    ] = None
    pattern: Annotated[str | None, keys.Expression(groups=1), "node_name: RE2 with one group, the domain."] = None
    path: Annotated[
        str | None, keys.Text("a path"), "file: a YAML map, domain: nodes; relative to the folder of this file."
    ] = None
    """Once loaded absolute."""
    nodes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """`file` only: each domain with its nodes, no node in two of them."""


@dataclass(frozen=True, slots=True)
class Network:
    """How a candidate's store is reached."""

    interface: Annotated[
        str,
        keys.Text("auto or the name of a network interface", r"[^\s/]{1,15}"),
        "The interface whose address is announced; auto announces the node's name.",
    ] = "auto"
    suffix: Annotated[
        str,
        keys.Text('what follows the node\'s name, such as "-ib0", or ""', r"[A-Za-z0-9.-]*", 100),
        "Appended to the node's name.",
    ] = ""
    port: Annotated[
        int | Literal["auto"],
        keys.WordOr(("auto",), 1024, 65535 - 7),
        "The next 7 are tried when it is taken.",
    ] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Everything that a job's processes may ask of the configuration."""

    name: Annotated[
        str, keys.Text("one line of at most 100 characters", r"\S|\S.*\S", 100), "What logs call the job."
    ] = "job"
    cluster: Annotated[
        str | None,
        keys.Text("a cluster's name, auto or none", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 100),
        "Whose policy applies; auto takes SLURM_CLUSTER_NAME.",
    ] = None
    """Once loaded the cluster whose policy was asked for; None with none, or where Slurm names no cluster."""
    policy_note: str | None = None
    """One line for the log when no policy file was used, and why; None when one was."""
    active: Annotated[
        int,
        keys.Name("nodes.active"),
        Special.ACTIVE,
        keys.Required("say how many nodes train: nodes: {active: 2}"),
        "How many nodes train; the others stand by.",
    ]
    """The most; the fewest are `settings.placement.least`."""
    per_node: Annotated[
        int | Literal["gpu", "cpu"],
        keys.Name("workers.per_node"),
        keys.WordOr(("gpu", "cpu"), 1, 1024),
        "How many workers a node has.",
    ] = "gpu"
    command: Annotated[
        tuple[str, ...],
        keys.Name("workers.command"),
        Special.COMMAND,
        keys.Required("write workers: {command: [python, train.py]}, or put the command after --"),
        "What a worker runs; what follows -- replaces it.",
    ]
    env: Annotated[
        tuple[tuple[str, str], ...], keys.Name("workers.env"), Special.VARIABLES, "Variables for the workers."
    ] = ()
    preload: Annotated[
        tuple[str, ...],
        keys.Name("workers.preload"),
        keys.OneOrMore(keys.MODULE, or_none=True),
        "Modules that a started worker of each rank imports ahead, to be there when a cycle begins.",
    ] = ()
    run_dir: Annotated[
        str, keys.PathTemplate(), "Where runs keep their files; relative to where the job was submitted."
    ] = "ft-runs/{job_id}"
    domain: Annotated[Domain, keys.Name("topology.domain"), "Which nodes belong together."] = Domain()
    network: Annotated[Network, keys.Section()] = Network()
    candidates: Annotated[
        int | tuple[int, ...],
        keys.Name("coordinator.candidates"),
        Special.CANDIDATES,
        "How many nodes keep a coordinator, or the infra_ranks of those.",
    ] = Job.candidates
    """The infra_ranks in the order of trying; a number stands for so many of the first nodes."""
    max_restarts: int = 10
    """The budget of the last rule of `settings`, the one for any failure."""
    settings: Annotated[Settings, keys.Section("")] = field(default_factory=Settings)
    timeouts: Annotated[Timeouts, keys.Section()] = field(default_factory=Timeouts)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, hash=False)
    """Dotted key to "FILE:LINE", "environment: NAME", "command line" or "built-in". Each rule as "failures[0]"."""
    policy: str = ""
    """The canonical JSON of all settings (`config.canonical`), "" where nothing was loaded."""

    def last_grace(self, outcome: Outcome) -> float:
        """Returns the seconds that workers get to end by themselves once the job has this outcome."""
        return last_grace(self.timeouts, self.settings, outcome)

    @property
    def longest_grace(self) -> float:
        """The most seconds that workers get to end by themselves, whatever the outcome."""
        return max(self.last_grace(outcome) for outcome in Outcome)

    @property
    def policy_sha256(self) -> str:
        """The sum that two nodes compare to see that they have the same configuration."""
        return hashlib.sha256(self.policy.encode()).hexdigest()
