"""Lists every state of a job or a step, by its name in sacct, squeue and scontrol, in one table for 22.05 to 26.05.

A job has one base state (slurm.h: enum job_states) and any number of flags beside it (slurm.h: SLURM_BIT(8) and up).
JSON contains all of them. Other output contains one word: the first flag that is set of those with a code here (and
EXPEDITING), else the base state (slurm_protocol_defs.c: job_state_string). slurmdbd keeps base states, and of the flags
RESIZING, REQUEUED and REVOKED (as_mysql_job.c: as_mysql_job_complete).
"""

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Meaning(StrEnum):
    """The meaning of a state for a job, in the words of verdicts where there is one."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    PART = "part"
    """The record ends here, and the job goes on in another one."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One state. `code` is squeue's short form, "" where it has none. `flag`: it stands beside a base state; `beneath`
    is that base state where only one is possible, else "". `about`: one line for people."""

    name: str
    code: str
    means: Meaning
    about: str
    flag: bool = False
    beneath: str = ""

    @property
    def over(self) -> bool:
        """True when nothing of the job runs any more, and nothing will."""
        return self.means in (Meaning.SUCCESS, Meaning.FAILED, Meaning.INTERRUPTED, Meaning.CANCELLED)


_BASE = (
    StateInfo("PENDING", "PD", Meaning.PENDING, "waits for its nodes"),
    StateInfo("RUNNING", "R", Meaning.RUNNING, "has its nodes"),
    StateInfo("SUSPENDED", "S", Meaning.RUNNING, "has its nodes, but its processes are stopped"),
    StateInfo("COMPLETED", "CD", Meaning.SUCCESS, "its script has exited with 0"),
    StateInfo("CANCELLED", "CA", Meaning.CANCELLED, "by its user or an administrator"),
    StateInfo("FAILED", "F", Meaning.FAILED, "its script has exited with another code than 0, or could not be started"),
    StateInfo("TIMEOUT", "TO", Meaning.INTERRUPTED, "its time limit was over"),
    StateInfo("NODE_FAIL", "NF", Meaning.INTERRUPTED, "one of its nodes was lost, and --no-kill not given"),
    StateInfo("PREEMPTED", "PR", Meaning.INTERRUPTED, "a job of higher priority has its nodes now"),
    StateInfo("BOOT_FAIL", "BF", Meaning.INTERRUPTED, "its nodes did not boot"),
    StateInfo("DEADLINE", "DL", Meaning.INTERRUPTED, "it could not end by its --deadline"),
    StateInfo("OUT_OF_MEMORY", "OOM", Meaning.FAILED, "the kernel has killed processes of it for want of memory"),
)
_RUNS, _WAITS, _OPEN = (Meaning.RUNNING, "RUNNING"), (Meaning.PENDING, "PENDING"), (Meaning.UNKNOWN, "")


def _flag(name: str, code: str, meaning: tuple[Meaning, str], about: str) -> StateInfo:
    means, beneath = meaning
    return StateInfo(name, code, means, about, flag=True, beneath=beneath)


_FLAGS = (
    _flag("COMPLETING", "CG", (Meaning.RUNNING, ""), "it ends: processes are killed, epilogs run"),
    _flag("STAGE_OUT", "SO", (Meaning.RUNNING, ""), "it has ended; its burst buffer is copied"),
    _flag("CONFIGURING", "CF", _RUNS, "its nodes boot, or their prologs run"),
    _flag("RESIZING", "RS", (Meaning.PART, "RUNNING"), "it lost or gave up nodes, and goes on in a newer record"),
    _flag("REQUEUED", "RQ", (Meaning.PART, "PENDING"), "this run is over; the job is to run again"),
    _flag("REQUEUE_FED", "RF", _WAITS, "requeued in another cluster of the federation"),
    _flag("REQUEUE_HOLD", "RH", _WAITS, "requeued, and held until a user or an administrator releases it"),
    _flag("SPECIAL_EXIT", "SE", _WAITS, "requeued and held, with a mark"),
    _flag("STOPPED", "ST", _RUNS, "has its nodes; its processes got SIGSTOP"),
    _flag("REVOKED", "RV", (Meaning.PART, ""), "another cluster of the federation runs it"),
    _flag("RESV_DEL_HOLD", "RD", _WAITS, "held, as its reservation was deleted"),
    _flag("SIGNALING", "SI", _RUNS, "a signal is on its way to it"),
    # These have no code. They are in JSON only; of them a command's one word can be EXPEDITING alone.
    _flag("LAUNCH_FAILED", "", _OPEN, "it could not be started on its nodes; a prolog failed, for example"),
    _flag("UPDATE_DB", "", _OPEN, "its start has to be sent to the database once more; up to 24.05"),
    _flag("RECONFIG_FAIL", "", _OPEN, "its nodes could not be set up as it asked"),
    _flag("POWER_UP_NODE", "", _RUNS, "its nodes are being powered up"),
    _flag("EXPEDITING", "", _WAITS, "requeued before all others; since 25.11"),
)
STATES = {state.name: state for state in (*_BASE, *_FLAGS)}
BASE_STATES = frozenset(state.name for state in _BASE)


def find(word: str) -> StateInfo:
    """Return the state that sacct's `State` column names; one with Meaning.UNKNOWN for a word that is not in the table.

    Of `CANCELLED by 1000` the first word counts. A word that sacct has cut (`OUT_OF_ME+`) is completed where only one
    state begins so.
    """
    name = word.split(" ")[0]
    if (state := STATES.get(name)) is not None:
        return state
    if name.endswith("+"):
        begin_so = [state for known, state in STATES.items() if known.startswith(name[:-1])]
        if len(begin_so) == 1:
            return begin_so[0]
    return StateInfo(name[:40], "", Meaning.UNKNOWN, "this state is not known here")
