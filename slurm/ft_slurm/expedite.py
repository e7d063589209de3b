"""What `sbatch --requeue=expedite` does to a job (since 25.11, with SlurmctldParameters=enable_expedited_requeue).

slurmctld requeues it whatever code its script ends with, but 0 (before 25.11.3: with 0 too). Where no epilog has failed
it also holds the job, until it is released. So sacct says REQUEUED, and the job does not end. With Requeue=0 it ends as
others do, and keeps its mark (job_mgr.c: _set_job_requeue_exit_value, batch_requeue_fini; measured on 26.05.5 with the
codes 0, 1, 75 and 93). SBATCH_REQUEUE=expedite sets the mark too, which a later plain --requeue leaves (slurm_opt.c:
arg_set_requeue).
"""

from collections.abc import Mapping, Sequence

from ft_slurm.records import JobState
from ft_slurm.sbatch_options import Option

SINCE = (25, 11)
PARAMETER = "enable_expedited_requeue"
VARIABLE = "SBATCH_REQUEUE"
_WORD = "expedite"


def is_asked_for(option: Option) -> bool:
    """Whether this option of sbatch's does it."""
    return option.name == "requeue" and _is_word(option.value)


def is_set(environ: Mapping[str, str], options: Sequence[Option] = ()) -> bool:
    """Whether this environment has sbatch do it, where these options do not forbid any requeue."""
    return _is_word(environ.get(VARIABLE)) and not any(option.name == "no-requeue" for option in options)


def runs_again(job: JobState) -> bool:
    """Whether slurmctld runs this job again after its end."""
    return job.expedited and job.requeue


def _is_word(value: str | None) -> bool:
    return (value or "").lower() == _WORD
