"""Checks what must hold after a job under any faults. Each check yields a sentence for everything that is wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tests.slurm_lab.chaos.job import EVERY, NAMES, STEPS, ChaosJob, undisturbed
from tests.slurm_lab.chaos.journals import COORDINATOR
from tests.slurm_lab.chaos.schedule import ACTIVE, FREEZES, Schedule
from tests.slurm_lab.chaos.strikes import Strikes, end_orphans

from slurm_lab import JobRecord

LEFT_BOUND = 120.0
"""Seconds from the job's end until no process of it is left: slurmd must have come back on healed nodes."""
NO_MAJORITY = 75
TOLERANCE = 1e-3
"""Relative: four ranks add up a mean in another order than one."""


def check(job: ChaosJob, schedule: Schedule, strikes: Strikes, record: JobRecord) -> list[str]:
    """Everything that is wrong, in words; nothing if all is well. The faults must have ended."""
    left = list(_left(job, strikes))
    job.journals.read()
    return [
        *_ending(job, schedule, record),
        *_codes(job, schedule, strikes),
        *training(job, schedule),
        *overlaps(job, strikes),
        *left,
    ]


def _ending(job: ChaosJob, schedule: Schedule, record: JobRecord) -> Iterator[str]:
    outcome, code = ("success", 0) if schedule.survivable else ("interrupted", 75)
    expected = ("COMPLETED", "0:0") if schedule.survivable else ("FAILED", f"{code}:0")
    if (record.state, record.exit_code) != expected:
        yield f"sacct says {record.state} {record.exit_code}, not {' '.join(expected)}"
    verdict = job.verdict() or {}
    if (verdict.get("outcome"), verdict.get("exit_code")) != (outcome, code):
        yield f"verdict.json says {verdict or 'nothing'}, not {outcome} {code}"
    asked = job.asked_verdict()
    if asked.returncode != code or not asked.stdout.startswith(f"{outcome}: "):
        yield f"ft-supervisor verdict: {asked.returncode} {asked.stdout}{asked.stderr}"


def _codes(job: ChaosJob, schedule: Schedule, strikes: Strikes) -> Iterator[str]:
    code, codes = 0 if schedule.survivable else 75, job.codes()
    for node in NAMES:
        found = codes.get(node)
        if node in strikes.dead or node in strikes.lost_for_good:
            continue  # killed, by us or by Slurm when it was back
        allowed: set[int | None] = {code}
        if node in strikes.cut | strikes.frozen:
            # A node that finds no coordinator with a majority for long may leave before the others have a verdict,
            allowed.add(NO_MAJORITY)
            # and one that is not back when all others have left is ended by Slurm: `launch` ends srun seconds later.
            verdict = job.journals.find(COORDINATOR, "verdict")
            if verdict is not None and strikes.back[node] > verdict.time:
                allowed.add(None)
        if found not in allowed:
            yield f"the daemon of {node} left with {found}, not {code}"


def training(job: ChaosJob, schedule: Schedule) -> Iterator[str]:
    """What is wrong with how the training went on."""
    rows = job.rows()
    if any(fault.victim in FREEZES for fault in schedule.faults):
        rows = _with_late_rows(rows)
    cycles = [(cycle, list(found)) for cycle, found in groupby(rows, lambda row: row["cycle"])]
    numbers = [cycle for cycle, _ in cycles]
    if numbers != sorted(set(numbers)):
        yield f"cycles wrote into one another's output: {numbers}"
    reached = 0
    for cycle, found in cycles:
        yield from _cycle(cycle, found, reached, undisturbed(job.training))
        reached = found[-1]["step"]
    if schedule.survivable and reached != STEPS:
        yield f"training ended at step {reached} of {STEPS}"
    if schedule.undisturbed and numbers != [0]:
        yield f"training was to go on undisturbed, but these cycles ran: {numbers}"


def _with_late_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with one late row of each cycle at its place. A rank 0 that is frozen within a step prints that step's
    row once it moves again, before its agent has ended it; its next step needs peers, which have gone."""
    late: dict[int, dict[str, Any]] = {}
    placed: list[dict[str, Any]] = []
    for row in rows:
        cycle = row["cycle"]
        if placed and cycle < placed[-1]["cycle"] and cycle not in late:
            late[cycle] = row
            end = max((index for index, other in enumerate(placed) if other["cycle"] <= cycle), default=-1) + 1
            placed.insert(end, row)
        else:
            placed.append(row)
    return placed


def _cycle(cycle: int, rows: list[dict[str, Any]], reached: int, expected: tuple[float, ...]) -> Iterator[str]:
    """One cycle, after one that came to the step `reached`; `expected` is the loss of each step."""
    resumed = {row["resumed_from"] for row in rows}
    steps = [row["step"] for row in rows]
    begin = min(resumed)
    if len(resumed) != 1 or steps != list(range(begin + 1, begin + 1 + len(steps))):
        yield f"cycle {cycle} resumed from {sorted(resumed)} and made the steps {steps}"
    if begin % EVERY or not reached - EVERY <= begin <= reached:
        yield f"cycle {cycle} resumed from step {begin}, after step {reached} (checkpoints: every {EVERY})"
    if {row["world"] for row in rows} != {ACTIVE}:
        yield f"cycle {cycle} was a world of {sorted({row['world'] for row in rows})}"
    wrong = [row["step"] for row in rows if not math.isclose(row["loss"], expected[row["step"] - 1], rel_tol=TOLERANCE)]
    if wrong:
        yield f"cycle {cycle} did not learn what an undisturbed training learns in the steps {wrong}"


def overlaps(job: ChaosJob, strikes: Strikes) -> Iterator[str]:
    """Cycles that ran at once. But a frozen worker does nothing, and is ended as soon as it moves again."""
    for each in job.overlaps():
        if not {each["worker"].rpartition(".")[2], each["beside"].rpartition(".")[2]} & strikes.frozen:
            yield f"two cycles at once: worker (cycle.rank.node) {each['worker']} began beside {each['beside']}"


def _left(job: ChaosJob, strikes: Strikes) -> Iterator[str]:
    for node in strikes.dead:
        end_orphans(job, node)
    end = time.monotonic() + LEFT_BOUND
    while left := {name: found for name in NAMES if (found := job.lab.node_processes(name))}:
        if time.monotonic() > end:
            yield f"processes are left: {left}"
            return
        time.sleep(0.1)
