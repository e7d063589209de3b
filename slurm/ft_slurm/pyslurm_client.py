"""Asks Slurm through pyslurm, for sites that have it and not Slurm's commands.

Each question runs in a process of its own (`pyslurm_worker`), as each command does, because libslurm may hang or end
its process. pyslurm is an optional extra, works with exactly one release of Slurm, and is never imported here.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ft_slurm import command, comment, expedite, pyslurm_answers, pyslurm_worker
from ft_slurm.command import TIMEOUT
from ft_slurm.errors import BadOutput, Refused, SlurmError, Unanswered
from ft_slurm.preemption import MARKS_SINCE, in_grace, is_requeued, requeues_itself
from ft_slurm.records import AccountingRecord, JobState, JobStep, NodeState

PROBE = 10.0
"""Seconds to find out whether pyslurm works here."""


def why_not(environ: Mapping[str, str], *, timeout: float = PROBE) -> str:
    """Return why pyslurm cannot be used here, in one line; "" when it can."""
    if importlib.util.find_spec("pyslurm") is None:
        return "pyslurm is not installed"
    try:
        PyslurmClient(environ).ask("ready", timeout=timeout)
    except SlurmError as error:
        return f"pyslurm does not work here: {error}"
    return ""


class PyslurmClient:
    """A `SlurmClient` that uses pyslurm. Call `why_not` first."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        kept = {key: value for key, value in environ.items() if key != "SLURM_CLUSTERS"}
        self._environ = {**kept, "PYSLURM_DISABLE_AUTO_INIT": "1"}

    def job(self, job_id: int, *, timeout: float = TIMEOUT) -> JobState | None:
        return pyslurm_answers.job(self.ask("job", job_id, timeout=timeout))

    def nodes(self, names: Sequence[str], *, timeout: float = TIMEOUT) -> dict[str, NodeState]:
        return pyslurm_answers.nodes(self.ask("nodes", list(names), timeout=timeout))

    def running_steps(self, job: JobState, *, timeout: float = TIMEOUT) -> tuple[JobStep, ...]:
        return pyslurm_answers.running_steps(self.ask("steps", job.job_id, timeout=timeout))

    def configuration(self, *, timeout: float = TIMEOUT) -> dict[str, str]:
        return pyslurm_answers.configuration(self.ask("configuration", timeout=timeout))

    def set_comment(
        self, job_id: int, text: str, *, mark: str = comment.MARK, keep: str = "", timeout: float = TIMEOUT
    ) -> bool:
        end = time.monotonic() + timeout
        job = self._only(job_id, end)
        if keep and comment.has(job.comment, mark, keep):
            return True
        after = comment.with_part(job.comment, mark, text)
        if after != job.comment:
            self.ask("comment", job_id, after, timeout=command.remaining(end))
        return bool(comment.part(after, mark))

    def requeue(self, job: JobState, *, timeout: float = TIMEOUT) -> bool:
        end = time.monotonic() + timeout
        now = self._only(job.job_id, end)
        if is_requeued(job, now) or (in_grace(now) and self._requeues_itself(now, end)):
            return False
        self.ask("requeue", job.job_id, timeout=command.remaining(end))
        return True

    def _requeues_itself(self, job: JobState, end: float) -> bool:
        """Decide by the cluster's PreemptMode: pyslurm's own release is the cluster's, and new enough."""
        mode = self.configuration(timeout=command.remaining(end)).get("PreemptMode", "")
        return requeues_itself(job, MARKS_SINCE, mode)

    def end_for_good(self, job_id: int, restart_count: int, *, timeout: float = TIMEOUT) -> bool:
        """Keep the job from running again. Does so for any job that may be requeued, where the cluster has expedited
        requeue: pyslurm does not show which jobs asked for it."""
        end = time.monotonic() + timeout
        if expedite.PARAMETER not in self.configuration(timeout=command.remaining(end)).get("SlurmctldParameters", ""):
            return False
        job = self._only(job_id, end)
        if job.restart_count != restart_count or not job.requeue:
            return False
        self.ask("end_for_good", job_id, timeout=command.remaining(end))
        return True

    def accounting(self, job_id: int, *, timeout: float = TIMEOUT) -> tuple[AccountingRecord, ...]:
        """Return the newest run's records alone, as pyslurm has no others.

        An exit code above 127 comes without its 128, as from sacct before 25.11 (utils/helpers.pyx, _get_exit_code).
        """
        return pyslurm_answers.accounting(self.ask("accounting", job_id, timeout=timeout), job_id)

    def _only(self, job_id: int, end: float) -> JobState:
        """Return the job, if its number is its own: pyslurm gives a whole array the number of one of its tasks."""
        job = self.job(job_id, timeout=command.remaining(end))
        if job is None:
            raise Refused(f"slurmctld has no job {job_id}")
        if job.array_job_id == job_id:
            raise Refused(f"pyslurm cannot distinguish job {job_id} from the array that it is a task of")
        return job

    def ask(self, question: str, *arguments: object, timeout: float) -> object:
        """Return the worker's answer to a question. Raises Refused, Unanswered."""
        worker = [sys.executable, "-P", str(Path(pyslurm_worker.__file__).resolve())]
        done = command.run([*worker, question, *map(json.dumps, arguments)], timeout, self._environ)
        try:
            return pyslurm_answers.answer(done.stdout)
        except BadOutput as error:
            raise Unanswered(f"pyslurm ended its process: {done.problem}") from error
