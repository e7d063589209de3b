"""What a loaded configuration is: plain frozen data, complete and checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from ft_supervisor.core.model import Job, Timeouts


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a node's domain_id comes from (design: identity)."""

    source: Literal["slurm_topology", "node_name", "none"] = "none"
    level: str | None = None
    """`slurm_topology` only: the level of SLURM_TOPOLOGY_ADDR that counts, "switch" or "block"."""
    pattern: str | None = None
    """`node_name` only: a regular expression with one group, which is the domain."""


@dataclass(frozen=True, slots=True)
class Network:
    """How a candidate's store is reached."""

    interface: str = "auto"
    """The interface whose address is announced; "auto" announces the node's name."""
    suffix: str = ""
    """Appended to the node's name, as in "-ib0"."""
    port: int | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Everything that a job's processes may ask of the configuration."""

    name: str = "job"
    cluster: str | None = None
    """The cluster whose policy was asked for; None with `cluster: none` or where Slurm names no cluster."""
    policy_note: str | None = None
    """One line for the log when no policy file was used, and why; None when one was."""
    active: int
    per_node: int | Literal["gpu", "cpu"] = "gpu"
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    run_dir: str = "ft-runs/{job_id}"
    """A template; relative paths start at the submit directory."""
    domain: Domain = Domain()
    network: Network = Network()
    candidates: int | tuple[int, ...] = Job.candidates
    """How many of the first nodes keep a coordinator, or the infra_ranks of those that do, in the order of trying."""
    max_restarts: int = 10
    """How many new cycles the job may have before its verdict is failed."""
    on_exhausted: Literal["fail"] = "fail"
    timeouts: Timeouts = field(default_factory=Timeouts)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, hash=False)
    """Dotted key to "FILE:LINE", "command line" or "built-in"."""
