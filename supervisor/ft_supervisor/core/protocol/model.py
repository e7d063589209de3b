"""The nouns that every part shares: cycles, verdicts, failures, timeouts, the job and a node's identity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Self

from ft_supervisor.core import words
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.bounds import AnyTerm, Count, LocalRank, Moment, Name, Rank, Term, Text
from ft_supervisor.core.protocol.cycle import Cycle as Cycle
from ft_supervisor.core.protocol.ledger import EMPTY, Ledger
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.settings import DEFAULTS, Cause, RestartMode, Settings

KILL_BOUND = 1.0
"""Seconds from SIGKILL until no process of a node's workers is left, as the inequalities of the timeouts assume."""
SRUN_MARGIN = 5.0
"""Seconds that `launch` gives srun to end by itself after a verdict, beyond the job's graces; then again after
SIGTERM."""

AGENT_RANK = -1
"""The local_rank of a failure of the agent itself."""

NO_PROMISE = -1
"""The promise of a node that has promised nothing yet."""

MOST_NAMES = 8
"""Nodes that one line names."""

PROTOCOL = 3
"""Version of the messages in the store and over the links; different versions do not talk to one another."""


class JobPhase(StrEnum):
    """Where the job is, as one coordinator sees it: the training's phase if it is in charge, else its own role."""

    CANDIDATE = "candidate"
    PREPARING = "preparing"
    JOINING = "joining"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSING = "closing"


class Outcome(StrEnum):
    """How a job can end."""

    SUCCESS = "success"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class Again(StrEnum):
    """Whether the job is to run again, by the verdict."""

    OPEN = "open"
    NEVER = "never"
    """By a rule it would fail again."""
    REQUEUE = "requeue"
    """Slurm is to run it again."""


class Ending(StrEnum):
    """What ended the job, as advice about it is looked up by."""

    UNKNOWN = "unknown"
    TRAINED = "trained"
    BUDGET_SPENT = "budget_spent"
    NO_PROGRESS = "no_progress"
    """Restarts in a row without a newer checkpoint."""
    RULE = "rule"
    """A rule says that another try would end the same way."""
    FAILS_AT_ONCE = "fails_at_once"
    """The workers crash at their start, on all nodes, and a second time."""
    STOPPED_FOR_REQUEUE = "stopped_for_requeue"
    """A rule asks for a new start of the job by Slurm."""
    TOO_FEW_NODES = "too_few_nodes"
    NOT_JOINED = "not_joined"
    NOT_STOPPED = "not_stopped"
    """A node did not stop its workers in time."""
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    """Slurm ends the job or runs it again, for another reason than its time limit."""
    PERSON = "person"


EXIT_CODES = {Outcome.SUCCESS: 0, Outcome.FAILED: 1, Outcome.INTERRUPTED: 75, Outcome.CANCELLED: 130}
CONFIG_ERROR = 2
NEVER_AGAIN = 93
INTERRUPTED = EXIT_CODES[Outcome.INTERRUPTED]


@dataclass(frozen=True)
class Verdict:
    """How the job ended, once and for all; `reason` is one line, and `ending` its kind, by which verdicts are not
    compared."""

    outcome: Outcome
    reason: Text
    again: Again = Again.OPEN
    ending: Ending = field(default=Ending.UNKNOWN, compare=False)

    def __post_init__(self) -> None:
        fits = {Again.NEVER: Outcome.FAILED, Again.REQUEUE: Outcome.INTERRUPTED}.get(self.again, self.outcome)
        if fits is not self.outcome:
            raise ValueError(f"{self.outcome} and again {self.again} contradict each other")

    @property
    def exit_code(self) -> int:
        """The code with which every daemon that knows this verdict leaves."""
        return NEVER_AGAIN if self.again is Again.NEVER else EXIT_CODES[self.outcome]


@dataclass(frozen=True)
class Failure:
    """One failed worker, or with local_rank AGENT_RANK its agent. `time` is when the node noticed, in seconds since the
    epoch by its own clock: for people, never compared. `silent`: for how many seconds a worker that hangs had sent
    nothing by then. `rank`: the worker's RANK in its cycle, None if it is not known. core.protocol.worker_words makes
    a sentence of it.

    `message`: what it said, in one line: the exception that ended it, why it cannot run, how it hangs; "" if it said
    nothing of the kind. `exception`: the class's name, of torch's error file or from the worker. `rules`: which of the
    settings' rules have a log pattern that the worker's last lines match, by index. `last_lines`: the last that it
    printed, as plain text. `lives`: its function has raised that exception and its process lives, so there is no exit
    code.
    """

    infra_rank: Rank
    local_rank: LocalRank
    exit_code: int | None = None
    signal: Name | None = None
    error_file: Text | None = None
    message: Text = ""
    time: Moment = 0.0
    cause: Cause = Cause.EXIT
    exception: Name = ""
    rules: tuple[Rank, ...] = ()
    last_lines: Text = ""
    silent: Moment = 0.0
    lives: bool = False
    rank: Count | None = None


@dataclass(frozen=True)
class Problem:
    """The reason why a node is not chosen any more: the check that failed there, and one line for people."""

    check: Name
    reason: Text


@dataclass(frozen=True)
class Timeouts:
    """The timeouts, in seconds. `config.cross_checks` checks how they relate."""

    heartbeat: Annotated[float, keys.Duration(), "How often agents say that they are alive."] = 0.5
    coordinator: Annotated[float, keys.Duration(), "A silent coordinator counts as lost; at least twice heartbeat."] = (
        1.5
    )
    fence: Annotated[
        float,
        keys.Duration(),
        "A node cut off for so long kills its own workers; at least coordinator + 3 heartbeats + 1s.",
    ] = 5.0
    node_lost: Annotated[float, keys.Duration(), "A silent node counts as lost; at least fence + 1s."] = 6.5
    probe: Annotated[float, keys.Duration(), "How soon a node must answer when a peer's workers have crashed."] = 0.5
    agent: Annotated[float, keys.Duration(), "A silent agent is replaced by its daemon."] = 3.0
    restart_grace: Annotated[
        float,
        keys.Duration(zero=True),
        keys.Limited("restart_grace"),
        "Between SIGTERM and SIGKILL when a new cycle waits.",
    ] = 2.0
    quiesce: Annotated[
        float,
        keys.Duration(),
        keys.Limited("quiesce"),
        "Between the request to leave its function and SIGKILL, for a worker that can be parked.",
    ] = 10.0
    stop_grace: Annotated[
        float, keys.Duration(zero=True), keys.Limited("stop_grace"), "The same at the end of the job."
    ] = 30.0
    join: Annotated[float, keys.Duration(), keys.Limited("join"), "For enough nodes to register."] = 600.0
    exit_barrier: Annotated[float, keys.Duration(), "For the last active nodes to finish."] = 300.0
    takeover: Annotated[
        float,
        keys.Duration(),
        keys.Limited("takeover"),
        "A node without a coordinator that has a majority gives up after so long; more than fence.",
    ] = 60.0
    close_grace: Annotated[float, keys.Duration(zero=True), "For all nodes to hear the verdict."] = 3.0


@dataclass(frozen=True)
class Node:
    """A node's identity, for the job's life. Peers connect to `addr`; `domain_id` is "" where there is none. `gpus`:
    how many Slurm has given to the step there; None if its environment does not say."""

    infra_rank: Rank
    name: Name
    addr: Name
    domain_id: Name = ""
    gpus: Rank | None = None


@dataclass(frozen=True)
class Job:
    """The job as the processes of one node need it: the essence of the configuration and of Slurm's environment.

    `nodes` are Slurm's names by infra_rank. `hosts` are the addresses of the nodes' stores by infra_rank, with
    "" where only the address file has it, and `ports` the ports to try there, in this order.
    `candidates`: how many of the first members keep a coordinator, or the infra_ranks of those that do.
    `run_folder` is shared between nodes, `local_folder` is this node's own; both absolute.
    `listen` is the address of this node that its store listens on, "" for all of them.
    `preload`: modules that a worker is started with ahead of its cycle; () where none is.
    `signal_workers`: this job's daemon passes SIGTERM on to workers (there is no Slurm that does it).
    `policy` is the whole merged configuration as JSON. It must be the same on every node of the job.
    """

    run_id: str
    nodes: tuple[str, ...]
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    run_folder: str
    local_folder: str
    active: int
    per_node: int
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    timeouts: Timeouts = Timeouts()
    candidates: int | tuple[int, ...] = 3
    signal_workers: bool = False
    listen: str = ""
    nonce: str = ""
    settings: Settings = DEFAULTS
    policy: str = ""
    preload: tuple[str, ...] = ()

    def names_of(self, nodes: Sequence[int]) -> str:
        """Return the names of these nodes in one line, the first MOST_NAMES of them."""
        return words.names([self.nodes[node] for node in nodes[:MOST_NAMES]], len(nodes), ",")

    @property
    def max_restarts(self) -> int:
        """How many restarts the rule for any failure allows."""
        return self.settings.rules[-1].budget.max

    def last_grace(self, verdict: Verdict) -> float:
        """Return the seconds that workers get to end by themselves after this verdict."""
        return last_grace(self.timeouts, self.settings, verdict.outcome)

    def log_file(self, cycle: Cycle, rank: int) -> str:
        """Return the path of this rank's output in this cycle; former parts have .1, .2 and so on after that name."""
        return f"{self.run_folder}/logs/{cycle}/rank{rank}.log"

    def bound_of_stop(self, grace: float) -> float:
        """Return the seconds after which every worker that is stopped with this grace has ended, is parked, or gets
        SIGKILL."""
        in_process = self.settings.restart is RestartMode.IN_PROCESS
        return max(grace, self.timeouts.quiesce) if in_process else grace

    @property
    def longest_grace(self) -> float:
        """The most seconds that workers get to end by themselves after any verdict."""
        return max(last_grace(self.timeouts, self.settings, outcome) for outcome in Outcome)


@dataclass(frozen=True)
class Roster:
    """The members as a numbered list, in the order in which they came; infra_ranks as `ranks.format_ranks` writes them.

    `former` is the list that this one replaces, "" once that needs no asking any more. (term, number) is its stamp:
    of two rosters the one with the greater stamp counts.
    """

    term: AnyTerm
    number: Count
    members: str
    former: str = ""

    def __post_init__(self) -> None:
        parse_ranks(self.members), parse_ranks(self.former)  # ValueError

    @property
    def stamp(self) -> tuple[int, int]:
        """(term, number), which identifies the roster."""
        return self.term, self.number


@dataclass(frozen=True)
class Accepted:
    """A verdict that the coordinator of `term` has proposed and this node has accepted: not yet the job's.

    `deputy`: Slurm does not answer that coordinator, so this node ends the job in Slurm.
    """

    term: Term
    verdict: Verdict
    deputy: bool = False


@dataclass(frozen=True)
class Memory:
    """A node's state, which its daemon keeps while agents come and go; it only ever grows.

    `promise`: the highest term that the node has promised. `group`: the active nodes of `newest` by group_rank, as
    `ranks.format_ranks` writes them. `progressed`: the newest cycle in which a worker of the node has made progress.
    `unhealthy`: why it is not to be chosen, None if it may be. `verdict`: the job's.
    """

    promise: AnyTerm = NO_PROMISE
    roster: Roster | None = None
    ledger: Ledger = EMPTY
    newest: Cycle | None = None
    group: str = ""
    succeeded: Cycle | None = None
    failures: tuple[Failure, ...] = ()
    accepted: Accepted | None = None
    unhealthy: Problem | None = None
    verdict: Verdict | None = None
    progressed: Cycle | None = None

    def __post_init__(self) -> None:
        parse_ranks(self.group)  # ValueError

    def newer(self, other: Self) -> Self:
        """Return `other`, a later state of the node, but with the final parts of this one: the first verdict that was
        received stays, and an unhealthy node stays unhealthy."""
        verdict, unhealthy = self.verdict or other.verdict, self.unhealthy or other.unhealthy
        return replace(other, verdict=verdict, unhealthy=unhealthy)


def last_grace(timeouts: Timeouts, settings: Settings, outcome: Outcome) -> float:
    """Return the seconds that workers get to end by themselves once the job has this outcome."""
    return settings.interruption.grace if outcome is Outcome.INTERRUPTED else timeouts.stop_grace


@lru_cache(maxsize=64)
def job_name(policy: str) -> str:
    """Return the configuration's `name`; "" without one. `policy`: JobSpec.policy, the configuration as JSON."""
    try:
        name = json.loads(policy).get("name", "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""
