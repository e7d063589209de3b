"""A job's report: the histories of its runs, joined with Slurm's accounting records. Pure.

Slurm starts a job anew when it is requeued, and each start has its own records: one of the job (several if it lost
nodes: RESIZING), and one for each step. A run's id, `<job>.<step>.<restart>`, contains the number of the start, by
which histories and records are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ft_slurm import job_states
from ft_slurm.job_states import Meaning
from ft_slurm.records import AccountingRecord
from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.history.model import History
from ft_supervisor.run_folder import left_running, runs
from ft_supervisor.run_folder.left_running import LeftRunning


@dataclass(frozen=True)
class JobStart:
    """One start of the job by Slurm. `rows`: records of the job; `steps`: records of its steps; both in order of
    start."""

    restart: int
    rows: tuple[AccountingRecord, ...]
    steps: tuple[AccountingRecord, ...]


@dataclass(frozen=True)
class Report:
    """All that is known of a job. `runs` and `starts`: the newest first. `contradictions`: lines about Slurm's states
    that contradict a verdict. `notes`: missing data, one line each. `left`: not None if the newest run has its verdict
    and the job still runs in Slurm; `now`: the time of that, in seconds since the epoch."""

    job: str
    runs: tuple[History, ...]
    starts: tuple[JobStart, ...]
    contradictions: tuple[str, ...]
    notes: tuple[str, ...]
    left: LeftRunning | None = None
    now: float = 0.0

    @property
    def alarms(self) -> tuple[str, ...]:
        """The most important messages for people, one line each."""
        return (*((self.left.sentence(self.now),) if self.left else ()), *self.contradictions)

    @property
    def empty(self) -> bool:
        """Whether neither a run nor a record of the job was found."""
        return not self.runs and not self.starts

    @property
    def running(self) -> bool:
        """Whether the job runs, according to Slurm."""
        return bool(self.starts) and job_states.find(self.starts[0].rows[-1].state).means is Meaning.RUNNING

    @property
    def has_journal(self) -> bool:
        """Whether the newest run has a journal."""
        return bool(self.runs) and self.runs[0].start is not None


def join(
    job: str,
    histories: Sequence[History],
    records: Sequence[AccountingRecord],
    notes: Sequence[str] = (),
    *,
    now: float = 0.0,
) -> Report:
    """Return the report. `histories`: the newest first. `records`: as the Slurm client returns them. `now`: seconds
    since the epoch."""
    starts = _starts(records)
    contradictions = _contradictions(histories, starts)
    left = _left(histories[0], starts, now) if histories else None
    return Report(job, tuple(histories), tuple(reversed(starts)), contradictions, tuple(notes), left, now)


def _left(newest: History, starts: Sequence[JobStart], now: float) -> LeftRunning | None:
    """Return whether the job still runs after its verdict: from the run's folder, unless Slurm's records contradict it;
    else from Slurm's records."""
    run = runs.parse(newest.run_id)
    if run is None or newest.verdict is None:
        return None
    start = next((each for each in starts if each.restart == run.restart_count), None)
    state = None if start is None else job_states.find(start.rows[-1].state)
    if state is not None and state.means is not Meaning.RUNNING:
        return None
    if newest.left is not None or state is None or newest.ended is None:
        return newest.left
    return left_running.by_slurm(run.job_id, state.name, newest.ended, now)


def _starts(records: Sequence[AccountingRecord]) -> list[JobStart]:
    """Return the starts, the oldest first. After a RESIZING record the start continues in the next record."""
    found: list[list[AccountingRecord]] = []
    for row in (each for each in records if not each.step):
        if found and found[-1][-1].state == "RESIZING":
            found[-1].append(row)
        else:
            found.append([row])
    steps: list[list[AccountingRecord]] = [[] for _ in found]
    for step in (each for each in records if each.step):
        begun = [i for i, rows in enumerate(found) if _time(rows[0]) <= _time(step)]
        if found:
            steps[begun[-1] if begun else 0].append(step)
    return [JobStart(i, tuple(rows), tuple(steps[i])) for i, rows in enumerate(found)]


def _time(record: AccountingRecord) -> float:
    return float("inf") if record.start is None else record.start


def _contradictions(histories: Sequence[History], starts: Sequence[JobStart]) -> tuple[str, ...]:
    """Return lines about starts that are a success only in Slurm, or only by verdict. Of several runs in a start the
    last one counts, as it does for the batch script."""
    newest: dict[int, History] = {}
    for history in histories:
        run = runs.parse(history.run_id)
        if run is not None and run.restart_count is not None:
            newest.setdefault(run.restart_count, history)
    found = []
    for start in starts:
        last, row = newest.get(start.restart), start.rows[-1]
        state = job_states.find(row.state)
        if last is None or last.verdict is None or not state.over:
            continue
        success = last.verdict.outcome is Outcome.SUCCESS
        if success != (state.means is Meaning.SUCCESS):
            code = f" {row.exit_code}" if row.exit_code else ""
            found.append(f"Slurm calls run {last.run_id} {state.name}{code}; its verdict is {last.verdict.outcome}")
    return tuple(found)
