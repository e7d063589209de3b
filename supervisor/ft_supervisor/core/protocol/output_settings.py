"""Declares the settings of what a job tells people and programs: logs, metrics, Slurm's accounting, notices.

See `core.protocol.settings`, which has all the others.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.keys import OneOrMore, Special


class Tee(StrEnum):
    """The workers whose output goes to the step's output as well as to its files."""

    ALL = "all"
    RANK0 = "rank0"
    FAILED = "failed"
    NONE = "none"


@dataclass(frozen=True)
class Logs:
    """Settings of the workers' output and of our own log. Files in run_dir have at most `max_size` bytes each."""

    tee: Annotated[Tee, "Whose output goes to the job's output too."] = Tee.ALL
    prefix: Annotated[bool, "Begin each line there with its rank and node."] = False
    max_size: Annotated[int, Special.SIZE, "Of one file of a worker's output."] = 256 * 2**20
    keep: Annotated[int, keys.Whole(0, 100), "So many former parts of each file are kept."] = 1
    format: Annotated[str, keys.Words(("text", "json")), "Of ft-supervisor's own log: key=value, or JSON."] = "text"
    level: Annotated[
        str,
        keys.Words(("debug", "info", "warning", "error")),
        "Of its lines that are written: these and graver ones. debug has those of each node's daily work.",
    ] = "info"


@dataclass(frozen=True)
class Metrics:
    """The address at which each coordinator answers Prometheus."""

    listen: Annotated[str, Special.LISTEN, "Where the coordinator answers Prometheus."] = "off"
    port: Annotated[int, keys.Whole(1024, 65535), "The port of that."] = 9474


@dataclass(frozen=True)
class Accounting:
    """The entries in Slurm's accounting: the job's Comment at its end, by the coordinator's node; its DerivedExitCode
    later, by `report --fix-exit-codes`."""

    comment: Annotated[bool, "Write how the job ended into its Comment."] = True
    exit_code: Annotated[bool, "Let `report --fix-exit-codes` put the job's DerivedExitCode right."] = True


class NoticeKind(StrEnum):
    """What somebody may want to be told of while a job runs."""

    RESTART = "restart"
    """A cycle begins after another one."""
    SPARES_LOW = "spares_low"
    """The last spare is gone: a node that is lost now cannot be replaced."""
    NO_PROGRESS = "no_progress"
    """Workers hang, or a whole cycle does nothing any more."""
    VERDICT = "verdict"
    """The job is over."""


@dataclass(frozen=True)
class Notify:
    """One command or one webhook that gets notices, as JSON. `kinds`: () for all of them."""

    kinds: Annotated[
        tuple[NoticeKind, ...],
        keys.Name("when"),
        OneOrMore(),
        "What it is told of; without it of all: restart, spares_low, no_progress, verdict.",
    ] = ()
    command: Annotated[
        tuple[str, ...], Special.COMMAND, "Gets each notice on its standard input; it runs on the coordinator's node."
    ] = ()
    webhook: Annotated[
        str,
        keys.Text("env:NAME or file:PATH", r"\S+", 2000),
        "Gets each notice by POST. Its URL may be a secret: the variable (env:NAME) or the file (file:PATH) with it.",
    ] = ""
