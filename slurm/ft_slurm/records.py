"""Defines Slurm's records of a job, its steps, its nodes and its past, in the form that every client returns.

Times are seconds since the epoch, durations seconds. None stands for a value that Slurm does not have or has not set.
"""

from dataclasses import dataclass

HIDDEN = "UNKNOWN"
"""The base state where the output has only a flag: `scontrol show job` as text prints COMPLETING for any state
beneath."""
_GONE = frozenset({"DOWN", "POWERED_DOWN", "POWERING_DOWN", "FUTURE"})
_LEAVING = frozenset({"DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING"})


@dataclass(frozen=True, slots=True)
class ExitCode:
    """An exit code and the signal that ended the process, which sacct writes as `75:0` and `0:9`."""

    code: int
    signal: int

    def __str__(self) -> str:
        return f"{self.code}:{self.signal}"


@dataclass(frozen=True, slots=True)
class JobState:
    """One job, as slurmctld has it now.

    `state` is one of job_states.BASE_STATES, or HIDDEN; `flags` are the words beside it, such as COMPLETING, REQUEUED.
    `nodes` is a host list expression without the nodes that slurmctld has taken out. `batch_host` stays the one that
    was taken out, until slurmctld is started anew: then it is the first of `nodes`, which never ran the script
    (measured on 22.05 and 24.11). `end_time` of a running job is the time at which its time limit ends it, a year after
    its start without a limit. `time_limit` is None for none. `preempt_time` is None until the job is preempted.
    `reason` is "" for none. `requeue`: Slurm may start the job again. `expedited`: Slurm does so after each end that is
    no success (ft_slurm.expedite), which pyslurm does not show.
    """

    job_id: int
    state: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    user_id: int | None = None
    has_batch_script: bool = False
    heterogeneous: bool = False
    restart_count: int = 0
    requeue: bool = False
    expedited: bool = False
    batch_host: str = ""
    nodes: str = ""
    partition: str = ""
    array_job_id: int | None = None
    array_task_id: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    time_limit: int | None = None
    preempt_time: int | None = None
    exit_code: ExitCode | None = None
    comment: str = ""

    @property
    def name(self) -> str:
        """The name that only this job has, and that its steps begin with: `12_3`, with the array's number, for an
        array's task."""
        if self.array_job_id is None or self.array_task_id is None:
            return str(self.job_id)
        return f"{self.array_job_id}_{self.array_task_id}"

    @property
    def alive(self) -> bool:
        """True while the job has its nodes, and is not about to lose them."""
        return self.state in ("RUNNING", "SUSPENDED") and "COMPLETING" not in self.flags

    @property
    def shown(self) -> str:
        """All the words of its state, for a person."""
        return "+".join([self.state, *sorted(self.flags)])


@dataclass(frozen=True, slots=True)
class JobStep:
    """One step. `name` is a number for each srun's step, else `batch`, `extern` or `interactive`; `nodes` is a host
    list expression.

    The `batch` step shows the script's host. After that host was taken out, 24.11 no longer lists the step, while 22.05
    lists it as RUNNING for ever, also after a restart of slurmctld (measured).
    """

    name: str
    nodes: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node: its state, such as MIXED, and the flags beside it, such as DRAIN and NOT_RESPONDING."""

    name: str
    state: str
    flags: frozenset[str] = frozenset()
    reason: str = ""

    @property
    def words(self) -> frozenset[str]:
        return self.flags | {self.state}

    @property
    def shown(self) -> str:
        """All the words of its state, for a person."""
        return "+".join([self.state, *sorted(self.flags)])

    @property
    def draining(self) -> bool:
        """True when Slurm gives the node no new jobs, because it is to be taken away. A maintenance that is only
        reserved does not count."""
        return bool(self.words & _LEAVING)

    @property
    def down(self) -> bool:
        """True when slurmctld has set the node DOWN."""
        return bool(self.words & _GONE)


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """One row of sacct: of a job (`step` is "") or one of its steps (`batch`, `extern`, `0`).

    A job has several where it lost nodes (RESIZING) or was run again (REQUEUED). `state` is one word, CANCELLED without
    `by 0`. Steps have no derived exit code and no comment.
    """

    job_id: int
    step: str
    state: str
    exit_code: ExitCode | None
    derived_exit_code: ExitCode | None
    start: int | None
    end: int | None
    elapsed: int | None
    nodes: str
    comment: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """One record of a job, in a list of jobs. There can be several for one `job_id`: see AccountingRecord.

    `name` is the job's name in sacct: `12_3` for a task of an array, `12_[4-9]` for those that wait, `12+1` for a part
    of a heterogeneous job, else its number. `state` is as sacct prints it, `CANCELLED by 1000` for example.
    """

    job_id: int
    name: str
    state: str
    exit_code: ExitCode | None
    derived_exit_code: ExitCode | None
    submit: int | None
    start: int | None
    end: int | None
    user_id: int | None
    nodes: str
    job_name: str
    work_dir: str
    comment: str
