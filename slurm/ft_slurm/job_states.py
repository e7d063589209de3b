"""Every state that a job or a step can be in, as sacct, squeue and scontrol call it: one table, from 22.05 to 26.05.

A job has one base state (slurm.h: enum job_states) and any number of flags beside it (slurm.h: SLURM_BIT(8) and up).
JSON tells them all. Other output tells one word, the first flag that is set of those with a code here (and EXPEDITING),
else the base state (slurm_protocol_defs.c: job_state_string). slurmdbd keeps base states, and of the flags RESIZING,
REQUEUED and REVOKED (as_mysql_job.c: as_mysql_job_complete).
"""

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Means(StrEnum):
    """What Slurm says of a job with this state, in the words of verdicts where there is one."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    PART = "part"
    """The record ends here, the job goes on in another one."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class State:
    """`code` is squeue's short form, empty where it has none. `flag`: it stands beside a base state, and `beneath` is
    which one that must be, where only one can. `about`: one line for people."""

    name: str
    code: str
    means: Means
    about: str
    flag: bool = False
    beneath: str = ""

    @property
    def over(self) -> bool:
        """Nothing of the job runs any more, and nothing will."""
        return self.means in (Means.SUCCESS, Means.FAILED, Means.INTERRUPTED, Means.CANCELLED)


_BASE = (
    State("PENDING", "PD", Means.PENDING, "waits for its nodes"),
    State("RUNNING", "R", Means.RUNNING, "has its nodes"),
    State("SUSPENDED", "S", Means.RUNNING, "has its nodes, but its processes are stopped"),
    State("COMPLETED", "CD", Means.SUCCESS, "its script has exited with 0"),
    State("CANCELLED", "CA", Means.CANCELLED, "by its user or an administrator"),
    State("FAILED", "F", Means.FAILED, "its script has exited with another code than 0, or could not be started"),
    State("TIMEOUT", "TO", Means.INTERRUPTED, "its time limit was over"),
    State("NODE_FAIL", "NF", Means.INTERRUPTED, "one of its nodes was lost, and --no-kill not given"),
    State("PREEMPTED", "PR", Means.INTERRUPTED, "a job of higher priority has its nodes now"),
    State("BOOT_FAIL", "BF", Means.INTERRUPTED, "its nodes did not boot"),
    State("DEADLINE", "DL", Means.INTERRUPTED, "it could not end by its --deadline"),
    State("OUT_OF_MEMORY", "OOM", Means.FAILED, "the kernel has killed processes of it for want of memory"),
)
_RUNS, _WAITS, _OPEN = (Means.RUNNING, "RUNNING"), (Means.PENDING, "PENDING"), (Means.UNKNOWN, "")


def _flag(name: str, code: str, told: tuple[Means, str], about: str) -> State:
    means, beneath = told
    return State(name, code, means, about, flag=True, beneath=beneath)


_FLAGS = (
    _flag("COMPLETING", "CG", (Means.RUNNING, ""), "it ends: processes are killed, epilogs run"),
    _flag("STAGE_OUT", "SO", (Means.RUNNING, ""), "it has ended; its burst buffer is copied"),
    _flag("CONFIGURING", "CF", _RUNS, "its nodes boot, or their prologs run"),
    _flag("RESIZING", "RS", (Means.PART, "RUNNING"), "it lost or gave up nodes, and goes on in a newer record"),
    _flag("REQUEUED", "RQ", (Means.PART, "PENDING"), "this run is over; the job is to run again"),
    _flag("REQUEUE_FED", "RF", _WAITS, "requeued in another cluster of the federation"),
    _flag("REQUEUE_HOLD", "RH", _WAITS, "requeued, and held until somebody releases it"),
    _flag("SPECIAL_EXIT", "SE", _WAITS, "requeued and held, with a mark"),
    _flag("STOPPED", "ST", _RUNS, "has its nodes; its processes got SIGSTOP"),
    _flag("REVOKED", "RV", (Means.PART, ""), "another cluster of the federation runs it"),
    _flag("RESV_DEL_HOLD", "RD", _WAITS, "held, as its reservation was deleted"),
    _flag("SIGNALING", "SI", _RUNS, "a signal is on its way to it"),
    # These have no code. JSON tells them, and of them a command's one word may be EXPEDITING alone.
    _flag("LAUNCH_FAILED", "", _OPEN, "it could not be started on its nodes; a prolog failed, for example"),
    _flag("UPDATE_DB", "", _OPEN, "the database is to be told of its start once more; up to 24.05"),
    _flag("RECONFIG_FAIL", "", _OPEN, "its nodes could not be set up as it asked"),
    _flag("POWER_UP_NODE", "", _RUNS, "its nodes are being powered up"),
    _flag("EXPEDITING", "", _WAITS, "requeued before all others; since 25.11"),
)
STATES = {state.name: state for state in (*_BASE, *_FLAGS)}
BASE_STATES = frozenset(state.name for state in _BASE)


def find(word: str) -> State:
    """The state that sacct's `State` names; one with an unknown meaning for a word that is not in the table.

    Of `CANCELLED by 1000` the first word counts, and of a column that sacct has cut (`OUT_OF_ME+`) what one state
    alone begins with.
    """
    name = word.split(" ")[0]
    if (state := STATES.get(name)) is not None:
        return state
    if name.endswith("+"):
        begin_so = [state for known, state in STATES.items() if known.startswith(name[:-1])]
        if len(begin_so) == 1:
            return begin_so[0]
    return State(name[:40], "", Means.UNKNOWN, "this state is not known here")
