"""What Slurm knows of a job, its steps, its nodes and its past, as every client tells it.

Times are seconds since the epoch, durations seconds. None stands for what Slurm does not know or has not set.
"""

from dataclasses import dataclass

HIDDEN = "UNKNOWN"
"""The base state where only a flag was told: `scontrol show job` as text says COMPLETING whatever lies beneath."""
_GONE = frozenset({"DOWN", "POWERED_DOWN", "POWERING_DOWN", "FUTURE"})
_LEAVING = frozenset({"DRAIN", "DRAINING", "DRAINED", "FAIL", "FAILING"})


@dataclass(frozen=True, slots=True)
class ExitCode:
    """As sacct writes it, `75:0` and `0:9`: the code, and the signal that ended it."""

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
    (measured on 22.05 and 24.11). `end_time` of a running job is when its time limit ends it, a year after its start
    without one. `time_limit` is None for none. `preempt_time` is None until the job is preempted. `reason` is empty
    for none. `requeue` says whether Slurm may start it again, `expedited` whether it does so after each end that is no
    success (ft_slurm.expedite), which pyslurm does not tell.
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
        """What its steps are called by, and it alone: that of an array's task has the array's number, `12_3`."""
        if self.array_job_id is None or self.array_task_id is None:
            return str(self.job_id)
        return f"{self.array_job_id}_{self.array_task_id}"

    @property
    def alive(self) -> bool:
        """It has its nodes, and is not about to lose them."""
        return self.state in ("RUNNING", "SUSPENDED") and "COMPLETING" not in self.flags

    @property
    def shown(self) -> str:
        """All the words of its state, for a person."""
        return "+".join([self.state, *sorted(self.flags)])


@dataclass(frozen=True, slots=True)
class Step:
    """`name` is a number for each srun's, else `batch`, `extern` or `interactive`; `nodes` a host list expression.

    The `batch` step tells the script's host. Once that was taken out, 24.11 no longer lists it, while 22.05 goes on
    with it for good as RUNNING; a new slurmctld too (measured).
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
        """Slurm gives it no new jobs: somebody wants to take it away. Maintenance that is only reserved is not that."""
        return bool(self.words & _LEAVING)

    @property
    def down(self) -> bool:
        """Slurm has given it up."""
        return bool(self.words & _GONE)


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """One row of sacct: of a job (`step` is empty) or one of its steps (`batch`, `extern`, `0`).

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
    """One record of a job, in a list of jobs. Of one `job_id` there are several: see AccountingRecord.

    `name` is what sacct calls the job: `12_3` for a task of an array, `12_[4-9]` for those that wait, `12+1` for a part
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
