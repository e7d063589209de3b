"""Determines how each of a user's jobs has ended: joins Slurm's records with our verdicts. Pure.

Slurm calls a job FAILED when its script ends with srun after a node's death, and COMPLETED when its script ends in
`exit 0`, even after a failure. The true outcome is in our part of the job's Comment (core.protocol.summary.line), and
in the run's verdict.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ft_slurm import comment, job_states
from ft_slurm.job_states import Meaning, StateInfo
from ft_slurm.records import ExitCode, JobRow
from ft_supervisor.core.protocol.model import EXIT_CODES, NEVER_AGAIN, Outcome
from ft_supervisor.core.words import one_line
from ft_supervisor.run_folder.verdict_file import Content

OUTCOMES = ("success", "failed", "interrupted", "cancelled", "running", "pending", "unknown")
_SUMMARY_LINE = re.compile(rf"({'|'.join(Outcome)})(?: \(([a-z0-9 ,]{{1,60}})\))?(?:, (.*))?", re.DOTALL)
_RESTART = re.compile(r"(?:^|, )restart ([0-9]{1,9})")


@dataclass(frozen=True)
class JobVerdict:
    """The verdict of one run. `source`: comment or file, where it was found; `code`: its exit code; `restart`: the
    run's restart count; `exit_code`: whether the policy allows setting DerivedExitCode; `reason`: "" in a comment."""

    source: str
    outcome: Outcome
    code: int
    restart: int
    summary: str
    exit_code: bool = True
    reason: str = ""


@dataclass(frozen=True)
class ListedJob:
    """One job. `row`: Slurm's newest record of it; `began`: when that run began, in seconds since the epoch (a run that
    lost nodes has several records); `restarts`: number of known runs before it; `records`: all of Slurm's, the oldest
    first. `outcome` is one of OUTCOMES; without a `verdict` it comes from Slurm's state."""

    row: JobRow
    began: int | None
    restarts: int
    outcome: str
    verdict: JobVerdict | None = None
    records: tuple[JobRow, ...] = ()

    @property
    def state(self) -> StateInfo:
        """The job's state in Slurm."""
        return job_states.find(self.row.state)

    @property
    def contradicts(self) -> bool:
        """Whether the job succeeded and Slurm calls it a failure, or the other way round."""
        if self.verdict is None or not self.state.over:
            return False
        return (self.state.means is Meaning.SUCCESS) != (self.verdict.outcome is Outcome.SUCCESS)

    @property
    def wrong_code(self) -> bool:
        """Whether its DerivedExitCode differs from the verdict's exit code, and may be set."""
        if self.verdict is None or not self.state.over or not self.verdict.exit_code:
            return False
        return self.row.derived_exit_code != ExitCode(self.verdict.code, 0)


def join(rows: Iterable[JobRow]) -> list[ListedJob]:
    """Return the jobs, with the outcomes from their records and comments, in the order of their submission."""
    by_id: dict[int, list[JobRow]] = {}
    for row in rows:
        by_id.setdefault(row.job_id, []).append(row)
    jobs = [_job(sorted(found, key=_age)) for found in by_id.values()]
    return sorted(jobs, key=lambda job: _age(job.row))


def judge(job: ListedJob, content: Content | None) -> ListedJob:
    """Return the job with the outcome of its run's verdict.json, which takes precedence over the comment. `content`:
    None without such a file."""
    verdict = _of_file(content) if content is not None else None
    if verdict is None or verdict.restart < job.restarts:
        return job
    return replace(_decided(job.row, job.began, job.restarts, verdict), records=job.records)


def _age(row: JobRow) -> tuple[int, float]:
    return row.submit or 0, float("inf") if row.start is None else row.start


def _job(rows: Sequence[JobRow]) -> ListedJob:
    """Return the job of these records, of which the newest is last."""
    row, began, restarts, resizing = rows[-1], rows[-1].start, 0, True
    for earlier in reversed(rows[:-1]):
        if job_states.find(earlier.state).name != "RESIZING":
            restarts, resizing = restarts + 1, False
        elif resizing:
            began = earlier.start if earlier.start is not None else began
    verdict = _of_comment(row)
    # The comment may be of an earlier run, which was requeued: the newest one has not ended yet.
    known = verdict if verdict is not None and verdict.restart >= restarts else None
    return replace(_decided(row, began, restarts, known), records=tuple(rows))


def _decided(row: JobRow, began: int | None, restarts: int, verdict: JobVerdict | None) -> ListedJob:
    state = job_states.find(row.state)
    if state.over:
        outcome = verdict.outcome.value if verdict is not None else state.means.value
    elif state.means is Meaning.PART:
        outcome = state.beneath.lower() or Meaning.UNKNOWN.value
    else:
        outcome = state.means.value
    return ListedJob(row, began, restarts, outcome, verdict)


def _of_comment(row: JobRow) -> JobVerdict | None:
    match = _SUMMARY_LINE.fullmatch(comment.part(row.comment, comment.MARK))
    if match is None:
        return None
    outcome, restart = Outcome(match[1]), _RESTART.search(match[2] or "")
    code = EXIT_CODES[outcome]
    if outcome is Outcome.FAILED and row.exit_code == ExitCode(NEVER_AGAIN, 0):
        code = NEVER_AGAIN
    return JobVerdict("comment", outcome, code, int(restart[1]) if restart else 0, one_line(match[3] or ""))


def _of_file(content: Content) -> JobVerdict | None:
    verdict, restart = content.verdict, content.run_id.rpartition(".")[2]
    match = _SUMMARY_LINE.fullmatch(content.summary)
    summary = match[3] if match and match[3] else verdict.reason
    number = int(restart) if re.fullmatch(r"[0-9]{1,9}", restart) else 0
    reason = one_line(verdict.reason)
    return JobVerdict("file", verdict.outcome, verdict.exit_code, number, one_line(summary), content.exit_code, reason)
