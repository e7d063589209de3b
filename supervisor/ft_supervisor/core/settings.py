"""What job.yaml and the cluster's policy ask of the machines beyond the timeouts: plain data, checked when loaded.

Durations are seconds. Nodes are named by Slurm's names, domains by their domain_id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What kind of failure something is."""

    EXIT = "exit"
    """A worker exited with a code other than 0, or was killed by a signal."""
    OOM = "oom"
    """The kernel killed a worker for want of memory."""
    HANG = "hang"
    """A worker's heartbeat, or its agent's, stayed away."""
    NODE_LOST = "lost_node"
    HEALTH = "health"
    """A health check failed on an active node."""
    DRAIN = "drain"
    """Slurm drains an active node."""


class Response(StrEnum):
    """What a rule makes of a failure."""

    RESTART = "restart"
    REPLACE_NODE = "replace_node"
    """Restart without the node, which is excluded."""
    FAIL = "fail"
    """End the job, which is not to run again: exit code 93."""
    STOP_FOR_REQUEUE = "stop_for_requeue"
    """End the job as interrupted, and have Slurm run it again."""
    IGNORE = "ignore"
    """As if the worker had exited with 0, or nothing had been noticed."""


@dataclass(frozen=True)
class Match:
    """Which failures a rule is for: those for which everything that is given here holds. Nothing given: any.

    `exceptions`: class names as torch's error file has them, with or without their module. `log`: a regular expression
    (RE2), looked for in the last lines that the failed worker printed. `check`: the name of a failed health check.
    """

    causes: tuple[Cause, ...] = ()
    exit_codes: tuple[int, ...] = ()
    signals: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    log: str = ""
    nodes: tuple[str, ...] = ()
    check: str = ""


@dataclass(frozen=True)
class Budget:
    """How often a rule may answer. Beyond `max` (within `window`, if given) or after `no_progress` restarts in a row
    without a newer checkpoint the job fails; beyond `same_node` failures of one node, that node is replaced, unless
    nobody can take its place and `on_exhausted` is fail."""

    max: int = 10
    window: float | None = None
    same_node: int | None = None
    no_progress: int | None = None


@dataclass(frozen=True)
class Backoff:
    """The pause before the n-th new cycle in a row: `first` * 2**(n-1), at most `cap`, each way off by `jitter` (a
    fraction)."""

    first: float = 0.0
    cap: float = 60.0
    jitter: float = 0.2


@dataclass(frozen=True)
class Rule:
    """One entry of `failures`. `where` is where it was written, FILE:LINE; `reason` what its author says."""

    match: Match = Match()
    response: Response = Response.RESTART
    budget: Budget = Budget()
    backoff: Backoff = Backoff()
    reason: str = ""
    where: str = "built-in"


ANY_FAILURE = Rule(budget=Budget(max=10, same_node=2), backoff=Backoff(first=0.1))
"""The built-in one. One bad node costs three restarts at most where there is a spare; the first restarts come almost at
once, and the pauses of ten in a row are 102 s, give or take the jitter."""


@dataclass(frozen=True)
class Pool:
    """Standbys with a rule for whom they may replace: its nodes are those named, those in the domains, or, with
    neither, all that are in no other pool. `serves`: domains; none means any. `reserve`: so many of them are kept for
    replacing, and never chosen to begin with or to grow."""

    name: str
    nodes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    reserve: int = 0


class OnExhausted(StrEnum):
    """What happens when there are too few nodes."""

    WAIT = "wait"
    SHRINK = "shrink"
    REQUEUE = "requeue"
    FAIL = "fail"


@dataclass(frozen=True)
class Placement:
    """Who may train. `least`: the fewest active nodes, None for a fixed size (Job.active is the most). `segment`:
    active nodes come in groups of so many consecutive group_ranks of one domain; it divides least and most."""

    least: int | None = None
    segment: int = 1
    pools: tuple[Pool, ...] = (Pool("any"),)
    on_exhausted: OnExhausted = OnExhausted.FAIL
    grow_now: bool = False
    """Restart the training as soon as it can grow, not only at its next failure."""


class When(StrEnum):
    """When a health check runs."""

    START = "start"
    BEFORE_CYCLE = "before_cycle"
    STANDBY = "standby"


class OnFail(StrEnum):
    """What a failed check does to its node."""

    EXCLUDE = "exclude"
    WARN = "warn"


@dataclass(frozen=True)
class Check:
    """A command that exits with 0 on a healthy node. It is tried `retries` times more."""

    name: str
    command: tuple[str, ...]
    timeout: float = 10.0
    retries: int = 0
    when: tuple[When, ...] = (When.START,)
    on_fail: OnFail = OnFail.EXCLUDE


@dataclass(frozen=True)
class Health:
    """`interval`: between two rounds of checks on a standby. `min_free`: bytes that run_dir's file system must have
    free, and run_dir and the node's own folder must be writable; None: not looked at. `gpu`: what NVML says of the
    GPUs; None: not asked. `clock_offset`: from the coordinator's clock, beyond which there is a warning."""

    checks: tuple[Check, ...] = ()
    interval: float = 300.0
    min_free: int | None = 100 * 2**20
    disk: OnFail = OnFail.WARN
    gpu: OnFail | None = None
    clock_offset: float = 1.0


@dataclass(frozen=True)
class Hang:
    """A worker hangs that says nothing for `after`, or nothing at all within `first` of its start (systemd's notify
    protocol). `signal`: what makes faulthandler print its stacks, where there is no py-spy."""

    after: float = 600.0
    first: float = 1800.0
    signal: str = "SIGUSR2"


@dataclass(frozen=True)
class Interruption:
    """How Slurm's own events are met. `before_end`: how long before the job's time limit it is stopped; 0: never.
    Workers get `signal` and `grace`. `poll`: how often Slurm is asked, by the coordinator's node alone."""

    before_end: float = 180.0
    signal: str = "SIGTERM"
    grace: float = 120.0
    requeue: bool = False
    drain_now: bool = False
    poll: float = 30.0


class Tee(StrEnum):
    """Whose output goes to the step's output as well as to its files."""

    ALL = "all"
    RANK0 = "rank0"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True)
class Logs:
    """What becomes of the workers' output and of our own log. Files in run_dir have at most `max_size` bytes, with
    `keep` former parts. `prefix`: each line of the step's output begins with its rank and node. `format`: that of the
    daemons' own log, "text" (key=value) or "json", one event a line."""

    tee: Tee = Tee.ALL
    prefix: bool = False
    max_size: int = 256 * 2**20
    keep: int = 1
    format: str = "text"


@dataclass(frozen=True)
class Metrics:
    """Where each coordinator answers Prometheus: `listen` is "off", "loopback" or an address."""

    listen: str = "off"
    port: int = 9474


@dataclass(frozen=True)
class Accounting:
    """What Slurm's accounting is told: at the job's end its Comment, by the coordinator's node; later, by whoever asks
    for it (`report --fix-exit-codes`), its DerivedExitCode."""

    comment: bool = True
    exit_code: bool = True


@dataclass(frozen=True)
class Settings:
    """All of it. `rules` end with one for any failure. `step_file`: where the job writes the step of its newest
    checkpoint, absolute or relative to the submit directory; "" for none. `hang` None: nobody waits for heartbeats.
    `faults`: whether `ft-supervisor fault` may hurt this job."""

    rules: tuple[Rule, ...] = (ANY_FAILURE,)
    placement: Placement = Placement()
    health: Health = Health()
    hang: Hang | None = None
    interruption: Interruption = Interruption()
    step_file: str = ""
    logs: Logs = Logs()
    metrics: Metrics = Metrics()
    accounting: Accounting = Accounting()
    faults: bool = False


DEFAULTS = Settings()
