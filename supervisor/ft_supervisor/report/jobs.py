"""A user's jobs and how each has truly ended: Slurm's records joined with our verdicts. Pure.

Slurm calls a job FAILED when its script ends with srun after a node's death, and COMPLETED when its script ends in
`exit 0` whatever happened. What happened is in our part of the job's Comment (core.protocol.summary.line), and in the
run's verdict.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ft_slurm import comment, job_states
from ft_slurm.job_states import Means, State
from ft_slurm.records import ExitCode, JobRow
from ft_supervisor.core.protocol.model import EXIT_CODES, NEVER_AGAIN, Outcome
from ft_supervisor.core.words import one_line
from ft_supervisor.run_folder.verdict_file import Content

OUTCOMES = ("success", "failed", "interrupted", "cancelled", "running", "pending", "unknown")
_TOLD = re.compile(rf"({'|'.join(Outcome)})(?: \(([a-z0-9 ,]{{1,60}})\))?(?:, (.*))?", re.DOTALL)
_RESTART = re.compile(r"(?:^|, )restart ([0-9]{1,9})")


@dataclass(frozen=True)
class JobVerdict:
    """What a verdict says. `source` is comment or file; `code` is the verdict's exit code; `restart` that of the run
    that it is of; `exit_code`: the policy lets DerivedExitCode be put right."""

    source: str
    outcome: Outcome
    code: int
    restart: int
    summary: str
    exit_code: bool = True


@dataclass(frozen=True)
class ListedJob:
    """One job. `row` is Slurm's newest record of it, `began` when that run of it began (it has several records where it
    lost nodes), `restarts` how many runs before it are known. `outcome` is one of OUTCOMES; without `told` it is what
    Slurm says."""

    row: JobRow
    began: int | None
    restarts: int
    outcome: str
    told: JobVerdict | None = None

    @property
    def state(self) -> State:
        """What Slurm says."""
        return job_states.find(self.row.state)

    @property
    def contradicts(self) -> bool:
        """Whether Slurm calls a failure what was a success, or the other way round."""
        if self.verdict is None or not self.state.over:
            return False
        return (self.state.means is Means.SUCCESS) != (self.verdict.outcome is Outcome.SUCCESS)

    @property
    def wrong_code(self) -> bool:
        """Whether its DerivedExitCode is not the verdict's, and may be put right."""
        if self.verdict is None or not self.state.over or not self.verdict.exit_code:
            return False
        return self.row.derived_exit_code != ExitCode(self.verdict.code, 0)


def join(rows: Iterable[JobRow]) -> list[ListedJob]:
    """The jobs, by Slurm's word and their comments, in the order in which they were submitted."""
    by_id: dict[int, list[JobRow]] = {}
    for row in rows:
        by_id.setdefault(row.job_id, []).append(row)
    jobs = [_job(sorted(found, key=_age)) for found in by_id.values()]
    return sorted(jobs, key=lambda job: _age(job.row))


def judge(job: ListedJob, content: Content | None) -> ListedJob:
    """The job by what its run's verdict.json says, which counts for more than the comment, where it has one."""
    told = _of_file(content) if content is not None else None
    return job if told is None or told.restart < job.restarts else _decided(job.row, job.began, job.restarts, told)


def _age(row: JobRow) -> tuple[int, float]:
    return row.submit or 0, float("inf") if row.start is None else row.start


def _job(rows: Sequence[JobRow]) -> ListedJob:
    """Of its records, the newest last."""
    row, began, restarts, resizing = rows[-1], rows[-1].start, 0, True
    for earlier in reversed(rows[:-1]):
        if job_states.find(earlier.state).name != "RESIZING":
            restarts, resizing = restarts + 1, False
        elif resizing:
            began = earlier.start if earlier.start is not None else began
    told = _of_comment(row)
    # Of an earlier run, which was requeued: the newest one has not told its end.
    return _decided(row, began, restarts, told if told is not None and told.restart >= restarts else None)


def _decided(row: JobRow, began: int | None, restarts: int, told: JobVerdict | None) -> ListedJob:
    state = job_states.find(row.state)
    if state.over:
        outcome = told.outcome.value if told is not None else state.means.value
    elif state.means is Means.PART:
        outcome = state.beneath.lower() or Means.UNKNOWN.value
    else:
        outcome = state.means.value
    return ListedJob(row, began, restarts, outcome, told)


def _of_comment(row: JobRow) -> JobVerdict | None:
    match = _TOLD.fullmatch(comment.part(row.comment, comment.MARK))
    if match is None:
        return None
    outcome, restart = Outcome(match[1]), _RESTART.search(match[2] or "")
    code = EXIT_CODES[outcome]
    if outcome is Outcome.FAILED and row.exit_code == ExitCode(NEVER_AGAIN, 0):
        code = NEVER_AGAIN
    return JobVerdict("comment", outcome, code, int(restart[1]) if restart else 0, one_line(match[3] or ""))


def _of_file(content: Content) -> JobVerdict | None:
    verdict, restart = content.verdict, content.run_id.rpartition(".")[2]
    match = _TOLD.fullmatch(content.summary)
    summary = match[3] if match and match[3] else verdict.reason
    number = int(restart) if re.fullmatch(r"[0-9]{1,9}", restart) else 0
    return JobVerdict("file", verdict.outcome, verdict.exit_code, number, one_line(summary), content.exit_code)
