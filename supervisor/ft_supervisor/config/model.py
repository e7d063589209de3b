"""What a loaded configuration is: plain frozen data, complete and checked."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from ft_supervisor.core.model import Job, Outcome, Timeouts, last_grace
from ft_supervisor.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a node's domain_id comes from (design: identity)."""

    source: Literal["slurm_topology", "node_name", "file", "nvlink", "none"] = "none"
    level: str | None = None
    """`slurm_topology` only: the level of SLURM_TOPOLOGY_ADDR that counts, "switch" or "block"."""
    pattern: str | None = None
    """`node_name` only: a regular expression (RE2) with one group, which is the domain."""
    path: str | None = None
    """`file` only: the absolute path of the file that was read."""
    nodes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """`file` only: each domain with its nodes, no node in two of them."""


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
    """The most nodes that train; the fewest are `settings.placement.least`."""
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
    """The budget of the last rule of `settings`, the one for any failure."""
    settings: Settings = field(default_factory=Settings)
    timeouts: Timeouts = field(default_factory=Timeouts)
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, hash=False)
    """Dotted key to "FILE:LINE", "environment: NAME", "command line" or "built-in". Each rule as "failures[0]"."""
    policy: str = ""
    """The canonical JSON of all settings (`config.canonical`), "" where nothing was loaded."""

    def last_grace(self, outcome: Outcome) -> float:
        """See core.model.last_grace."""
        return last_grace(self.timeouts, self.settings, outcome)

    @property
    def longest_grace(self) -> float:
        """The most of those."""
        return max(self.last_grace(outcome) for outcome in Outcome)

    @property
    def policy_sha256(self) -> str:
        """What two nodes compare to see that they have the same configuration."""
        return hashlib.sha256(self.policy.encode()).hexdigest()
