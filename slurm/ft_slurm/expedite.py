"""Describes `sbatch --requeue=expedite` (since 25.11, with SlurmctldParameters=enable_expedited_requeue).

slurmctld requeues such a job after each exit code of its script except 0 (before 25.11.3 after 0 too). Where no epilog
has failed it also holds the job, until a user or an administrator releases it. So sacct shows REQUEUED, and the job
does not end. With Requeue=0 the job ends as others do, and keeps its mark (job_mgr.c: _set_job_requeue_exit_value,
batch_requeue_fini; measured on 26.05.5 with the codes 0, 1, 75 and 93). SBATCH_REQUEUE=expedite sets the mark too, and
a later plain --requeue does not remove it (slurm_opt.c: arg_set_requeue).
"""

from collections.abc import Mapping, Sequence

from ft_slurm.records import JobState
from ft_slurm.sbatch_options import Option

SINCE = (25, 11)
PARAMETER = "enable_expedited_requeue"
VARIABLE = "SBATCH_REQUEUE"
_WORD = "expedite"


def is_asked_for(option: Option) -> bool:
    """Return whether this option of sbatch asks for it."""
    return option.name == "requeue" and _is_word(option.value)


def is_set(environ: Mapping[str, str], options: Sequence[Option] = ()) -> bool:
    """Return whether this environment makes sbatch ask for it. It does not where the options forbid any requeue."""
    return _is_word(environ.get(VARIABLE)) and not any(option.name == "no-requeue" for option in options)


def runs_again(job: JobState) -> bool:
    """Return whether slurmctld runs this job again after its end."""
    return job.expedited and job.requeue


def _is_word(value: str | None) -> bool:
    return (value or "").lower() == _WORD
