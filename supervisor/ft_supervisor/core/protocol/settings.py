"""Declares the settings that job.yaml and the cluster's policy have beyond the timeouts; see `core.protocol.keys`.

They are plain data, checked when they are loaded. Durations are seconds. Nodes have Slurm's names, domains their
domain_id.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.bounds import MOST_NODES
from ft_supervisor.core.protocol.hang_settings import AutoHang as AutoHang
from ft_supervisor.core.protocol.hang_settings import Hang as Hang
from ft_supervisor.core.protocol.keys import OneOrMore, Special
from ft_supervisor.core.protocol.output_settings import Accounting as Accounting
from ft_supervisor.core.protocol.output_settings import Logs as Logs
from ft_supervisor.core.protocol.output_settings import Metrics as Metrics
from ft_supervisor.core.protocol.output_settings import NoticeKind as NoticeKind
from ft_supervisor.core.protocol.output_settings import Notify as Notify
from ft_supervisor.core.protocol.output_settings import Tee as Tee

MAX_RESTARTS = 1_000_000
_ONE_LINE = r"\S|\S.*\S"
"""A regular expression: a line without a blank at either end."""
_RULES = "[{match: any, action: restart, budget: {max: N}}]"
_CHECKS = "[{name: scratch, command: [test, -w, /tmp]}]"
_DOMAIN = keys.Text("a domain's name", _ONE_LINE, 200)
_EXCEPTION = keys.Text(
    "an exception's name, such as RuntimeError", r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", 200
)


class Cause(StrEnum):
    """The kinds of failure."""

    EXIT = "exit"
    """A worker exited with a code other than 0, or was killed by a signal."""
    OOM = "oom"
    """The kernel killed a worker for want of memory."""
    HANG = "hang"
    """A worker, or its agent, sent no heartbeat in time."""
    NODE_LOST = "lost_node"
    HEALTH = "health"
    """A health check failed on an active node."""
    DRAIN = "drain"
    """Slurm drains an active node."""


class Response(StrEnum):
    """A rule's answer to a failure: `action` in the policy file. Actions of the machines are another thing."""

    RESTART = "restart"
    REPLACE_NODE = "replace_node"
    """Restart without the node, which is excluded."""
    FAIL = "fail"
    """End the job, which is not to run again: exit code 93."""
    STOP_FOR_REQUEUE = "stop_for_requeue"
    """End the job as interrupted, and have Slurm run it again."""
    IGNORE = "ignore"
    """Go on as if the worker had exited with 0, or nothing had been noticed."""


class Culprit(StrEnum):
    """Whether the evidence of all ranks says who began a hang."""

    KNOWN = "known"
    UNKNOWN = "unknown"


class RestartMode(StrEnum):
    """How a worker of the next cycle is made, which is the rung of a restart."""

    IN_PROCESS = "in_process"
    """A parked worker, whose function is called again; a new process where none is parked."""
    PROCESS = "process"
    """A new process for each worker."""


class RungReason(StrEnum):
    """What led to the rung of a restart."""

    RULE = "rule"
    """The rule asks for new processes."""
    BEFORE_PROGRESS = "before_progress"
    """The cycle has ended before its first progress."""
    BUDGET = "budget"
    """The rule's budget for restarts in the same processes is spent."""
    ALLOWED = "allowed"
    """Nothing asks for new processes."""


@dataclass(frozen=True)
class Match:
    """The failures that a rule applies to: those that fit every field that is given. Without fields: any failure.

    `exceptions`: class names as torch's error file has them. `nodes`: of the failed worker.
    """

    causes: Annotated[tuple[Cause, ...], keys.Name("cause"), OneOrMore(), "What kind of failure."] = ()
    exit_codes: Annotated[tuple[int, ...], keys.Name("exit_code"), OneOrMore(keys.Whole(1, 255)), "The worker's."] = ()
    signals: Annotated[
        tuple[str, ...], keys.Name("signal"), OneOrMore(keys.Signal(caught=False)), "What killed the worker."
    ] = ()
    exceptions: Annotated[
        tuple[str, ...], keys.Name("exception"), OneOrMore(_EXCEPTION), "With or without its module."
    ] = ()
    log: Annotated[str, keys.Expression(), "RE2, looked for in the last lines of the failed worker."] = ""
    nodes: Annotated[
        tuple[str, ...], keys.Name("node"), Special.HOSTS, "Whose failures: a host list expression, or a list."
    ] = ()
    check: Annotated[str, keys.Text("a health check's name", _ONE_LINE, 100), "The health check that failed."] = ""
    culprit: Annotated[Culprit | None, "Whether it is known who began the hang; only with cause: hang."] = None


@dataclass(frozen=True)
class InProcessBudget:
    """How many restarts that a rule answers may go on in the same processes. Beyond `max` (within `window`, if given)
    all processes are new."""

    max: Annotated[int, keys.Whole(0, MAX_RESTARTS), "So many times; then all processes are new."] = 10
    window: Annotated[float | None, keys.Duration(), "Count only those of so long."] = None


@dataclass(frozen=True)
class Budget:
    """How often a rule may answer. Beyond `max` (within `window`, if given) or after `no_progress` restarts in a row
    without a newer checkpoint the job fails. After more than `same_node` failures of one node that node is replaced,
    unless no node can take its place and `on_exhausted` is fail."""

    max: Annotated[int, keys.Whole(0, MAX_RESTARTS), "So many times; then the job fails."] = 10
    window: Annotated[float | None, keys.Duration(), "Count only those of so long."] = None
    same_node: Annotated[
        int | None, keys.Whole(1, MAX_RESTARTS), "Failures of one node beyond this replace it by a spare."
    ] = None
    no_progress: Annotated[
        int | None, keys.Whole(1, MAX_RESTARTS), "So many restarts in a row without a newer checkpoint."
    ] = None
    in_process: Annotated[InProcessBudget | None, keys.Section(always=False)] = None


@dataclass(frozen=True)
class Backoff:
    """The pause before the n-th new cycle in a row: `first` * 2**(n-1), at most `cap`, each longer or shorter by up to
    `jitter` (a fraction)."""

    first: Annotated[float, keys.Duration(zero=True), "The pause before the first new cycle; it doubles each time."] = (
        0.0
    )
    cap: Annotated[float, keys.Duration(zero=True), "The longest pause."] = 60.0
    jitter: Annotated[float, Special.FRACTION, "By what part of it a pause may be longer or shorter."] = 0.2


@dataclass(frozen=True)
class Rule:
    """One entry of `failures`. `how`: None where the rule leaves that to the budget. `where`: its place in the
    configuration, FILE:LINE."""

    match: Annotated[
        Match, keys.Required(f"write {_RULES}"), "Which failures this rule is for: a word, or all that its keys say."
    ] = Match()
    response: Annotated[Response, keys.Name("action"), keys.Required(f"write {_RULES}"), "What to do about them."] = (
        Response.RESTART
    )
    budget: Annotated[Budget, keys.Section()] = Budget()
    backoff: Annotated[Backoff, keys.Section(brief=True)] = Backoff()
    reason: Annotated[
        str, keys.Text("one line of at most 200 characters", _ONE_LINE, 200), "Said in logs and verdict."
    ] = ""
    how: Annotated[
        RestartMode | None, "process: new processes after these failures; only with workers.restart: in_process."
    ] = None
    where: str = "built-in"


ANY_FAILURE = Rule(budget=Budget(max=10, same_node=2), backoff=Backoff(first=0.1))
"""The built-in rule. One bad node costs three restarts at most where there is a spare; the first restarts come almost
at once, and the pauses of ten in a row add up to 102 s, give or take the jitter."""


@dataclass(frozen=True)
class Pool:
    """Standbys that may replace some nodes: the named nodes, those in the domains, or, with neither, all nodes that are
    in no other pool. `serves`: domains, () for any. `reserve`: so many are kept for replacing; they are not chosen when
    the job begins or grows."""

    name: Annotated[
        str,
        keys.Text("a pool's name: letters, digits, _, . and -", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 100),
        keys.Required("write {name: any}"),
        "What logs call it.",
    ]
    nodes: Annotated[tuple[str, ...], Special.HOSTS, "Its nodes, by name."] = ()
    domains: Annotated[tuple[str, ...], keys.Name("domain"), OneOrMore(_DOMAIN), "Its nodes, by their domains."] = ()
    serves: Annotated[
        tuple[str, ...], OneOrMore(_DOMAIN, any_word="any"), "The domains whose nodes it may replace, or any."
    ] = ()
    reserve: Annotated[int, keys.Whole(0, MOST_NODES), "So many are kept for replacing."] = 0


class OnExhausted(StrEnum):
    """The policy for too few nodes."""

    WAIT = "wait"
    SHRINK = "shrink"
    REQUEUE = "requeue"
    FAIL = "fail"


@dataclass(frozen=True)
class Placement:
    """Which nodes may train. `least`: the fewest active nodes, None for a fixed size (Job.active is the most); it is
    the min of the key nodes.active. `segment` divides least and most. `grow_now`: restart the training as soon as it
    can grow, not only at its next failure."""

    least: int | None = None
    segment: Annotated[
        int,
        keys.Name("nodes.segment"),
        keys.Whole(1, MOST_NODES),
        "Active nodes come in groups of so many of one domain.",
    ] = 1
    pools: Annotated[
        tuple[Pool, ...],
        keys.Name("spares.pools"),
        keys.Records("[{name: any, serves: any}]", 1000, least=1),
        "Which standbys may replace whom.",
    ] = (Pool("any"),)
    on_exhausted: Annotated[OnExhausted, keys.Name("spares.on_exhausted"), "What happens with too few nodes."] = (
        OnExhausted.FAIL
    )
    grow_now: Annotated[
        bool,
        keys.Name("nodes.grow"),
        keys.Words(("at_restart", "now")),
        "When a job with fewer nodes than max takes more.",
    ] = False
    avoid: Annotated[
        tuple[str, ...], keys.Name("nodes.avoid"), Special.HOSTS_OR_NONE, "Chosen last; launch adds some."
    ] = ()


class When(StrEnum):
    """When a health check runs."""

    START = "start"
    BEFORE_CYCLE = "before_cycle"
    STANDBY = "standby"


class OnFail(StrEnum):
    """The effect of a failed check on its node."""

    EXCLUDE = "exclude"
    WARN = "warn"


@dataclass(frozen=True)
class Check:
    """A command that exits with 0 on a healthy node."""

    name: Annotated[
        str,
        keys.Text("a check's name", _ONE_LINE, 100),
        keys.Required(f"write {_CHECKS}"),
        "What logs and `match: {check: ...}` call it.",
    ]
    command: Annotated[
        tuple[str, ...],
        Special.COMMAND,
        keys.Required(f"write {_CHECKS}"),
        "Exits with 0 on a healthy node; not run by a shell.",
    ]
    timeout: Annotated[float, keys.Duration(), "A check that takes longer has failed, and is killed."] = 10.0
    retries: Annotated[int, keys.Whole(0, 10), "So many more tries."] = 0
    when: Annotated[tuple[When, ...], OneOrMore(), "When it is run."] = (When.START,)
    on_fail: Annotated[OnFail, "What becomes of the node."] = OnFail.EXCLUDE


@dataclass(frozen=True)
class Health:
    """The health checks. `min_free`: bytes that run_dir's file system must have free, None where disks are not checked;
    it comes from the key health.disk, as `disk` does. `gpu`: None where NVML is not asked."""

    checks: Annotated[
        tuple[Check, ...],
        keys.Records(_CHECKS, 100),
        "Commands that exit with 0 on a healthy node.",
    ] = ()
    interval: Annotated[float, keys.Duration(), "Between two rounds of checks on a standby."] = 300.0
    min_free: int | None = 100 * 2**20
    disk: Annotated[
        OnFail, Special.DISK, "Whether run_dir and the node's own folder are writable, and run_dir has room."
    ] = OnFail.WARN
    gpu: Annotated[OnFail | None, Special.GPU, "What NVML says of the GPUs."] = None
    clock_offset: Annotated[float, keys.Duration(), "From the coordinator's clock; beyond it there is a warning."] = 1.0

    @property
    def before_cycle(self) -> bool:
        """Whether a node is checked before each cycle. The GPU check always is: see core/daemon/health.py."""
        return self.gpu is not None or any(When.BEFORE_CYCLE in check.when for check in self.checks)


@dataclass(frozen=True)
class Interruption:
    """How the job reacts to its time limit, to signals from Slurm and to drained nodes. Workers get `signal`, and
    SIGKILL `grace` later. Only the coordinator's node asks Slurm."""

    before_end: Annotated[
        float,
        keys.Duration(zero=True),
        keys.Limited("before_end"),
        "So long before its time limit a job is stopped; 0s: never.",
    ] = 180.0
    signal: Annotated[str, keys.Signal(caught=True), "What workers get first."] = "SIGTERM"
    grace: Annotated[float, keys.Duration(zero=True), keys.Limited("interruption_grace"), "Until they get SIGKILL."] = (
        120.0
    )
    requeue: Annotated[bool, "Have Slurm run the job again."] = False
    drain_now: Annotated[
        bool, keys.Name("drain"), keys.Words(("next_cycle", "now")), "When to leave a node that Slurm drains."
    ] = False
    # slurmctld serves a whole cluster: many jobs that ask it all the time would bring it down.
    poll: Annotated[float, keys.Duration(least=1.0), "How often Slurm is asked, by one node; at least 1s."] = 30.0


@dataclass(frozen=True)
class Settings:
    """All settings. `restart`: the lowest rung. `max_growth`: bytes on node and GPU together. `rules` end with
    one for any failure. `step_file`: absolute, or relative to the submit directory; "" for none. `hang`: None where
    heartbeats of workers are not waited for."""

    restart: Annotated[
        RestartMode,
        keys.Name("workers.restart"),
        "in_process: functions of ft_supervisor.worker are called again in the same processes after a failure.",
    ] = RestartMode.PROCESS
    max_growth: Annotated[
        int,
        keys.Name("workers.max_growth"),
        Special.SIZE,
        "A worker that goes on in its process is replaced once it takes so much more memory than after two cycles.",
    ] = 4 * 2**30
    rules: Annotated[
        tuple[Rule, ...],
        keys.Name("failures"),
        keys.Records(_RULES, 1000, least=1, empty="has no rule"),
        "What answers a failure; the first rule that matches.",
    ] = (ANY_FAILURE,)
    fail_fast: Annotated[
        bool, "Whether a job ends, with 93, whose workers crash at their start: twice, on all nodes, in the same way."
    ] = True
    placement: Annotated[Placement, keys.Section("")] = Placement()
    health: Annotated[Health, keys.Section()] = Health()
    hang: Annotated[Hang | None, keys.Section(always=False)] = None
    interruption: Annotated[Interruption, keys.Section()] = Interruption()
    step_file: Annotated[
        str,
        keys.Name("checkpoint.step_file"),
        keys.PathTemplate(empty=True),
        "Where the job writes its newest checkpoint's step.",
    ] = ""
    logs: Annotated[Logs, keys.Section()] = field(default_factory=Logs)
    metrics: Annotated[Metrics, keys.Section()] = field(default_factory=Metrics)
    accounting: Annotated[Accounting, keys.Section()] = field(default_factory=Accounting)
    notify: Annotated[
        tuple[Notify, ...],
        keys.Records("[{when: verdict, command: [./tell]}]", 20),
        "Who is told while the job runs, by a command or a webhook.",
    ] = ()
    memory: Annotated[str, keys.Name("nodes.memory"), keys.OWN_FOLDER, "Where evidence about nodes is kept."] = "own"
    faults: Annotated[bool, keys.Name("faults.allow"), "Whether `ft-supervisor fault` may hurt the job."] = False


DEFAULTS = Settings()
