"""Determines the present state of a run from its files: the newest snapshot, its age, and the verdict. For `status`.

`document` is what `ft-supervisor status --json` prints, one object:

    version    1
    state      running; stale (running when last seen, too long ago); ended; unknown (a run without a snapshot that can
               be read); pending (Slurm has not started it); none
    job        the job that was asked for, or the run's id
    folder     the run's folder, null without one
    age        seconds since the snapshot was taken, null without one
    slurm      the job's state in Slurm, if Slurm was asked: {"state", "reason"}, else null
    verdict    {"outcome", "reason", "exit_code", "again", "ending"}, null while there is none
    left_running   {"why", "ends_it", "since", "until"} if the job has its verdict and still runs in Slurm, else null:
               `ends_it` is the command that ends it there; `since` and `until` are seconds since the epoch; a node
               waits until `until` to end the job itself, which is null if none does
    notes      odd or missing files, for people: a list of lines
    status     the snapshot, null without one: its fields are those of the run's status.json, but `nodes` has an
               object for each node: {"name", "infra_rank", "group_rank" (null for none), "role", "domain",
               "heartbeat_age", "silent", "restarts", "losses", "running", "draining", "health"}; `candidates` is a list
               of infra_ranks, and a budget has "left" too; there is no `names`
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ft_supervisor.core.protocol.codec import to_plain
from ft_supervisor.core.protocol.model import Again, Outcome, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.run_folder import left_running, runs, smallfile, snapshot, verdict_file
from ft_supervisor.run_folder.left_running import LeftRunning
from ft_supervisor.run_folder.smallfile import NotSmall
from ft_supervisor.run_folder.snapshot import BadSnapshot, Snapshot

VERSION = 1
STALE = 15.0
"""Seconds. An older snapshot is out of date. A takeover takes less."""
STARTS = 120.0
"""Seconds in which daemons and a coordinator come up: torch may be loaded from a cold file system."""
PATIENCE = 2.5
"""Snapshot intervals to wait for the next snapshot, before the last one is called stale."""
MOST_PATIENCE = 8.0
"""Seconds to wait for the next snapshot, at most."""
POLL = 0.2
UNKNOWN_JOB = 3
"""Exit code of `status`: nothing is known of the job."""
NOT_SURE = 4
"""Exit code of `status`: only a part is known, or only how it was."""


class RunState(StrEnum):
    """The state of the job, as far as its files and Slurm show it; see the module."""

    RUNNING = "running"
    STALE = "stale"
    ENDED = "ended"
    UNKNOWN = "unknown"
    PENDING = "pending"
    NONE = "none"


@dataclass(frozen=True)
class Slurm:
    """Slurm's answer about a job. `state`: all words of the job's state, "" if Slurm has no such job. `over`: nothing
    of the job runs any more. `pending`: it has no nodes yet. `restart_count`: number of the start that the answer is
    about, None if that is unknown."""

    state: str
    reason: str = ""
    over: bool = False
    pending: bool = False
    restart_count: int | None = None

    def runs(self, run: runs.Wanted) -> bool:
        """Return whether the job's start that this run belongs to still has its nodes."""
        same = self.restart_count is None or self.restart_count == run.restart_count
        return bool(self.state) and not self.over and not self.pending and same


@dataclass(frozen=True)
class Files:
    """The contents of a run's folder. `skew`: seconds by which this host's clock is ahead of the clock of the
    snapshot's writer, 0 if no difference was noticed. `problems`: lines for people. `ended`: when the verdict's file
    was written, and `made`: when the folder last got a new entry; both in seconds since the epoch."""

    folder: Path | None = None
    snapshot: Snapshot | None = None
    verdict: Verdict | None = None
    skew: float = 0.0
    problems: tuple[str, ...] = ()
    left: LeftRunning | None = None
    ended: float | None = None
    made: float | None = None


@dataclass(frozen=True)
class JobStatus:
    """All that is known of a job at one moment, `wall`, in seconds since the epoch. `age`: seconds since the snapshot
    was made. `left`: not None if the job has its verdict and still runs in Slurm. `starting`: of a job that is just
    starting, seconds since its folder was made, else None."""

    job: str
    state: RunState
    files: Files
    age: float | None
    slurm: Slurm | None
    notes: tuple[str, ...]
    left: LeftRunning | None = None
    wall: float = 0.0
    starting: float | None = None


def read(folder: Path) -> Files:
    """Return the present contents of the folder. Problems with the files are in the result, and never raised. May hang
    for as long as the file system does."""
    problems: list[str] = []
    shot, verdict = None, None
    try:
        shot = snapshot.load(smallfile.read(folder / snapshot.NAME, snapshot.MAX_BYTES))
        if shot.run_id != folder.name:
            problems.append(f"{folder / snapshot.NAME} is of another run: {shot.run_id}")
            shot = None
    except FileNotFoundError:
        pass
    except BadSnapshot as error:
        problems.append(f"{folder / snapshot.NAME}: {error}")
    except (OSError, NotSmall) as error:
        problems.append(str(error))
    try:
        verdict = verdict_file.read(folder, folder.name)
    except (OSError, verdict_file.BadVerdictFile) as error:
        problems.append(str(error))
    left, ended, made = None, None, None
    with suppress(OSError):
        made = folder.stat().st_mtime
    try:
        if verdict is not None:
            ended = (folder / verdict_file.NAME).stat().st_mtime
            left = left_running.read(folder)
    except (OSError, left_running.BadFile) as error:
        problems.append(str(error))
    if verdict is None and shot is not None:
        verdict = _final(shot)
    return Files(folder, shot, verdict, 0.0, tuple(problems), left, ended, made)


def read_patiently(folder: Path) -> Files:
    """Return the contents of the folder as `read` does, but while the snapshot looks stale wait until the next one
    should have come: the clocks of two hosts may differ, and a takeover takes some time."""
    files = first = read(folder)
    if first.snapshot is None or first.verdict is not None or not is_old(first, time.time()):
        return files
    until = time.monotonic() + min(PATIENCE * first.snapshot.interval, MOST_PATIENCE)
    while time.monotonic() < until:
        time.sleep(POLL)
        files = read(folder)
        if files.verdict is not None or (files.snapshot is not None and files.snapshot.time != first.snapshot.time):
            break
    return with_skew(files, first, time.time())


def with_skew(files: Files, former: Files, wall: float) -> Files:
    """Return `files` with the skew of the writer's clock: a snapshot that has just changed is new, even if its time is
    old. `wall`: seconds since the epoch."""
    if files.snapshot is None or former.snapshot is None:
        return files
    if files.snapshot.time == former.snapshot.time:
        return replace(files, skew=former.skew)
    skew = wall - files.snapshot.time
    return replace(files, skew=skew if abs(skew) > 2 * files.snapshot.interval else 0.0)


def is_old(files: Files, wall: float) -> bool:
    """Return whether the snapshot is out of date, or from the future. `wall`: seconds since the epoch."""
    shot = files.snapshot
    if shot is None:
        return False
    age = wall - shot.time - files.skew
    return age > max(STALE, 5 * shot.interval) or age < -2 * shot.interval


def judge(job: str, files: Files, slurm: Slurm | None, wall: float) -> JobStatus:
    """Return the state of the job. `job`: the name that was asked for; `wall`: seconds since the epoch."""
    shot = files.snapshot
    age = None if shot is None else max(0.0, wall - shot.time - files.skew)
    notes = list(files.problems)
    if files.verdict is not None:
        state = RunState.ENDED
    elif shot is not None:
        state = RunState.STALE if is_old(files, wall) else RunState.RUNNING
    elif slurm is not None and slurm.pending:
        state = RunState.PENDING
    else:
        state = RunState.NONE if files.folder is None else RunState.UNKNOWN
    starting = _starting(files, wall) if state is RunState.UNKNOWN and not notes else None
    if files.skew and shot is not None:
        notes.append(f"the clock of {shot.coordinator.node} is off by {-files.skew:+.0f} s from this host's")
    if state is RunState.STALE:
        notes.append(_why_stale(slurm))
    elif state is RunState.UNKNOWN and not notes and starting is None:
        notes.append("its coordinator has not written a status yet")
    name = job if files.folder is None else files.folder.name
    return JobStatus(name, state, files, age, slurm, tuple(notes), _left(files, slurm, wall), wall, starting)


def _starting(files: Files, wall: float) -> float | None:
    age = -1.0 if files.made is None else wall - files.made
    return age if 0 <= age < STARTS else None


def exit_code(seen: JobStatus) -> int:
    """Return the exit code of `status`: 0 if this is how it is, UNKNOWN_JOB, or NOT_SURE."""
    if seen.state is RunState.ENDED or (seen.state is RunState.RUNNING and not seen.files.problems):
        return 0
    return UNKNOWN_JOB if seen.state is RunState.NONE and not (seen.slurm and seen.slurm.state) else NOT_SURE


def is_over(seen: JobStatus) -> bool:
    """Return whether no later look can show anything else."""
    if seen.state is RunState.ENDED:
        return True
    if seen.state is RunState.RUNNING or seen.files.problems:
        return False
    if seen.slurm is None:
        return seen.state is RunState.NONE
    return seen.slurm.over or not seen.slurm.state


def is_in_doubt(files: Files, wall: float) -> bool:
    """Return whether Slurm has to be asked if the job has really ended. `wall`: seconds since the epoch."""
    return files.left is not None or (files.ended is not None and wall - files.ended >= left_running.USUAL_END)


def _left(files: Files, slurm: Slurm | None, wall: float) -> LeftRunning | None:
    """Return whether the job still runs after its verdict: from the file, unless Slurm's answer contradicts it; from
    Slurm's answer if the process that writes the file had no time for it."""
    run = None if files.folder is None else runs.parse(files.folder.name)
    if run is None or files.verdict is None or (slurm is not None and not slurm.runs(run)):
        return None
    if files.left is not None or slurm is None or files.ended is None:
        return files.left
    return left_running.by_slurm(run.job_id, slurm.state, files.ended, wall)


def _why_stale(slurm: Slurm | None) -> str:
    if slurm is None:
        return "its coordinator is lost, or run_dir hangs on its node"
    if not slurm.state:
        return "Slurm has no such job any more: it has ended, without a verdict"
    if slurm.over:
        return f"Slurm says {slurm.state}: it has ended, without a verdict"
    return f"Slurm says {slurm.state}: its coordinator is lost, or run_dir hangs on its node"


def _final(shot: Snapshot) -> Verdict | None:
    status = shot.verdict
    if status is None or not status.final:
        return None
    try:
        return Verdict(Outcome(status.outcome), status.reason, Again(status.again))
    except ValueError:
        return None


# -- for programs


def document(seen: JobStatus) -> dict[str, Any]:
    """Return the object that the module describes."""
    verdict, shot = seen.files.verdict, seen.files.snapshot
    return {
        "version": VERSION,
        "state": seen.state.value,
        "job": seen.job,
        "folder": None if seen.files.folder is None else str(seen.files.folder),
        "age": None if seen.age is None else round(seen.age, 3),
        "slurm": None if seen.slurm is None else {"state": seen.slurm.state or None, "reason": seen.slurm.reason},
        "verdict": None if verdict is None else {**to_plain(verdict), "exit_code": verdict.exit_code},
        "left_running": None if seen.left is None else left_running.document(seen.left),
        "notes": list(seen.notes),
        "status": None if shot is None else _unfolded(shot),
    }


def _unfolded(shot: Snapshot) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(replace(shot, nodes=(), names=()))
    del plain["names"]
    plain["candidates"] = list(parse_ranks(shot.candidates))
    plain["budgets"] = [{**to_plain(budget), "left": budget.left} for budget in shot.budgets]
    plain["nodes"] = []
    for name, infra_rank, group_rank, entry in shot.each():
        rest = to_plain(entry)
        del rest["infra_ranks"], rest["group_ranks"]
        plain["nodes"].append({"name": name, "infra_rank": infra_rank, "group_rank": group_rank, **rest})
    return plain
