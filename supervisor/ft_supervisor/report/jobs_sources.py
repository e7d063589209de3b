"""Collects a list of jobs: one query to sacct, and the verdicts' files of jobs without a verdict in their comments.

All waits are bounded: sacct may be slow, and a file system may hang. If a file system hangs, the caller should end the
process by os._exit, as a thread still waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ft_slurm.cli_client import CliClient
from ft_slurm.errors import Refused, SlurmError
from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.history import read_run
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.report.efficiency import Efficiency
from ft_supervisor.report.job_time import of_job
from ft_supervisor.report.jobs import ListedJob, join, judge
from ft_supervisor.run_folder import run_index, runs, verdict_file
from ft_supervisor.run_folder.runs import Wanted
from ft_supervisor.run_folder.verdict_file import BadVerdictFile, Content

SLURM_BOUND = 60.0
"""Seconds to wait for sacct: a busy database is slow with a month of jobs."""
FILES_BOUND = 10.0
"""Seconds to wait for the verdicts' files of all jobs together."""
JOURNALS_BOUND = 120.0
"""Seconds to wait for the journals of all jobs together."""
JOURNALS = 16 * 1024 * 1024
"""Bytes of agents' journals that are read for one run."""
CHANGE_BOUND = 20.0
"""Seconds to wait for one change in the database."""


@dataclass
class Listing:
    """A list of jobs. `notes`: lines for people on missing data. `hangs`: a thread still waits for a file system.
    `fixed`: jobs whose DerivedExitCode was set to the verdict's exit code; `accounts`: of the jobs' time, by job id."""

    jobs: list[ListedJob]
    notes: list[str] = field(default_factory=list)
    hangs: bool = False
    fixed: list[ListedJob] = field(default_factory=list)
    accounts: dict[int, Efficiency] = field(default_factory=dict)


def ask(client: CliClient, since: str, user_id: int) -> Listing:
    """Return the user's jobs since then, from Slurm's records and comments. Raises what CliClient.jobs_since raises."""
    rows, bad = client.jobs_since(since, user_id, timeout=SLURM_BOUND)
    return Listing(join(rows), [f"sacct printed {bad} more records that make no sense"] if bad else [])


def read_verdicts(
    listing: Listing,
    templates: Sequence[str],
    index: Mapping[str, str] | None = None,
    *,
    of_all: bool,
    bound: float = FILES_BOUND,
) -> None:
    """Read the verdict's file of each job that is over and has no verdict of success in its comment, which has no
    reason; with `of_all` of each job that is over. `templates`: run_dirs, relative to where the job was submitted;
    `index`: the environment that leads to the user's index of runs, which is used for other places (None: it is not
    used); `bound`: seconds."""
    jobs = [job for job in listing.jobs if job.state.over and (of_all or _lacks_reason(job))]
    found: dict[int, Content] = {}
    problems: list[str] = []

    def read() -> None:
        for job in jobs:
            try:
                if (content := _newest(job, templates, index)) is not None:
                    found[job.row.job_id] = content
            except (OSError, ValueError, BadVerdictFile) as error:
                problems.append(f"{job.row.name}: {error}")

    if jobs and not Background("the verdicts' files", read).wait(bound):
        listing.hangs = True
        listing.notes.append(f"a file system does not answer within {bound:g} s: some jobs' verdicts were not read")
    if problems:
        many = f", and of {len(problems) - 1} more" if len(problems) > 1 else ""
        listing.notes.append(f"the verdict's file cannot be read of job {problems[0]}{many}")
    known = dict(found)
    listing.jobs = [judge(job, known.get(job.row.job_id)) for job in listing.jobs]


def read_accounts(
    listing: Listing,
    templates: Sequence[str],
    index: Mapping[str, str] | None,
    now: float,
    bound: float = JOURNALS_BOUND,
) -> None:
    """Read the journals of all runs of each job that has begun, the newest jobs first, for the accounts of their time.
    `now`: seconds since the epoch; `bound`: seconds; jobs that were not read by then have no account."""
    jobs = [job for job in reversed(listing.jobs) if any(row.start is not None for row in job.records)]
    found: dict[int, Efficiency] = {}
    problems: list[str] = []

    def read() -> None:
        for job in jobs:
            try:
                folders = next(filter(None, (_runs(place, job) for place in _places(job, templates, index))), [])
                histories = [read_run.read(folder, JOURNALS, costs=True) for folder in folders]
            except (OSError, ValueError) as error:
                problems.append(f"{job.row.name}: {error}")
                histories = []
            found[job.row.job_id] = of_job(job.records, histories, now)

    if jobs:
        try:
            Background("journals", read).result(bound)
        except Hangs:
            listing.hangs = True
            listing.notes.append(f"not all journals were read within {bound:g} s: the oldest jobs have no ratio")
    if problems:
        many = f", and of {len(problems) - 1} more" if len(problems) > 1 else ""
        listing.notes.append(f"the journals cannot be read of job {problems[0]}{many}")
    listing.accounts = dict(found)


def _runs(parent: Path, job: ListedJob) -> list[Path]:
    return list(runs.folders(parent, Wanted(job.row.job_id)))


def _lacks_reason(job: ListedJob) -> bool:
    return job.verdict is None or job.verdict.outcome is not Outcome.SUCCESS


def _newest(job: ListedJob, templates: Sequence[str], index: Mapping[str, str] | None) -> Content | None:
    """Return the verdict's file of the newest run; None if that run has none, even if older ones have."""
    for parent in _places(job, templates, index):
        if (folder := next(runs.folders(parent, Wanted(job.row.job_id)), None)) is not None:
            content = verdict_file.read_all(folder)
            return content if content is not None and content.run_id == folder.name else None
    return None


def _places(job: ListedJob, templates: Sequence[str], index: Mapping[str, str] | None) -> Iterator[Path]:
    for template in templates:
        yield runs.run_dir(template, Path(job.row.work_dir or "/"), job.row.job_id)
    if index is not None:
        yield from (entry.run_dir for entry in run_index.look(index, str(job.row.job_id)))


def fix_exit_codes(client: CliClient, listing: Listing) -> None:
    """Set each job's DerivedExitCode to the verdict's exit code, where they differ and the policy allows it.

    The job cannot do this itself, because slurmctld sends its own value when the job ends. This stops at the first
    error: the site does not allow it, or the database is away.
    """
    wrong = [job for job in listing.jobs if job.wrong_code]
    for job in wrong:
        assert job.verdict is not None
        try:
            client.set_derived_exit_code(job.row.name, job.verdict.code, timeout=CHANGE_BOUND)
        except SlurmError as error:
            why = "this site does not allow it" if isinstance(error, Refused) else "trying again may help"
            left = len(wrong) - len(listing.fixed)
            listing.notes.append(f"the DerivedExitCode of {left} jobs is not set ({why}): {error}")
            return
        listing.fixed.append(job)
