"""Chaos notices what is wrong: jobs made up of files, each with one thing that must not be."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.slurm_lab.chaos import worker
from tests.slurm_lab.chaos.checks import overlaps, training
from tests.slurm_lab.chaos.job import EVERY, STEPS, ChaosJob, undisturbed
from tests.slurm_lab.chaos.journals import Journals
from tests.slurm_lab.chaos.schedule import Fault, Moment, Schedule, Victim
from tests.slurm_lab.chaos.strikes import Strikes
from tests.slurm_lab.jobs import LIGHT

from slurm_lab import Lab

NODE_LOST = Schedule(0, (Fault(Victim.ACTIVE_NODE, Moment.RUNNING),))
COORDINATOR_LOST = Schedule(0, (Fault(Victim.COORDINATOR, Moment.RUNNING),))
FROZEN = Schedule(0, (Fault(Victim.FREEZE_LONG, Moment.RUNNING),))
Rows = list[dict[str, Any]]


def rows(cycle: int, first: int, last: int) -> Rows:
    """What rank 0 prints of these steps."""
    return [
        {"step": step, "loss": undisturbed(LIGHT)[step - 1], "world": 4, "resumed_from": first - 1, "cycle": cycle}
        for step in range(first, last + 1)
    ]


@pytest.fixture
def job(tmp_path: Path) -> ChaosJob:
    return ChaosJob(Lab(), 1, tmp_path, Journals(tmp_path / "journals"), LIGHT)


def wrong(job: ChaosJob, schedule: Schedule, printed: Rows) -> list[str]:
    (job.folder / "training").write_text("".join(json.dumps(row) + "\n" for row in printed))
    return list(training(job, schedule))


def test_a_restart_from_the_last_checkpoint_is_well(job: ChaosJob) -> None:
    reached = 3 * EVERY + 2
    assert wrong(job, NODE_LOST, rows(0, 1, reached) + rows(1, 3 * EVERY + 1, STEPS)) == []
    assert wrong(job, COORDINATOR_LOST, rows(0, 1, STEPS)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda old, new: old + new[:-1], f"training ended at step {STEPS - 1}"),
        (lambda old, new: old + new[3:], "made the steps"),
        (lambda old, new: old + rows(1, 2 * EVERY + 1, STEPS), f"resumed from step {2 * EVERY}"),
        (lambda old, new: old + rows(1, 3 * EVERY + 2, STEPS), f"resumed from step {3 * EVERY + 1}"),
        (lambda old, new: old + rows(1, 4 * EVERY + 1, STEPS), f"resumed from step {4 * EVERY}"),
        (lambda old, new: old[:-1] + new[:9] + old[-1:] + new[9:], "wrote into one another's output"),
        (lambda old, new: old + [{**row, "world": 3} for row in new], "was a world of [3]"),
        (lambda old, new: old + [{**row, "loss": row["loss"] * 1.01} for row in new], "did not learn"),
    ],
)
def test_training_that_did_not_go_on_as_it_should_is_noticed(
    job: ChaosJob, change: Callable[[Rows, Rows], Rows], told: str
) -> None:
    old, new = rows(0, 1, 3 * EVERY + 2), rows(1, 3 * EVERY + 1, STEPS)
    assert any(told in each for each in wrong(job, NODE_LOST, change(old, new)))


def test_a_frozen_rank_0_may_end_its_step_late_but_no_second_one(job: ChaosJob) -> None:
    old, new = rows(0, 1, 3 * EVERY + 2), rows(1, 3 * EVERY + 1, STEPS)
    assert wrong(job, FROZEN, old[:-1] + new[:9] + old[-1:] + new[9:]) == []
    assert "wrote into one another's output" in wrong(job, FROZEN, old[:-2] + new[:9] + old[-2:] + new[9:])[0]


def test_training_that_was_to_go_on_undisturbed_is_noticed(job: ChaosJob) -> None:
    (told,) = wrong(job, COORDINATOR_LOST, rows(0, 1, EVERY) + rows(1, EVERY + 1, STEPS))
    assert "undisturbed" in told


@pytest.fixture
def old_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One of cycle 0 that lives on n1."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    held = worker.witness(tmp_path, 0, 1)
    yield
    os.close(held)


def test_workers_of_two_cycles_at_once_are_noticed(job: ChaosJob, old_worker: None) -> None:
    strikes = Strikes(job)
    assert list(overlaps(job, strikes)) == []
    second = worker.witness(job.folder, 1, 0)
    assert list(overlaps(job, strikes)) == ["two cycles at once: worker (cycle.rank.node) 1.0.n1 began beside 0.1.n1"]
    strikes.frozen.add("n1")  # it stands still
    assert list(overlaps(job, strikes)) == []
    os.close(second)
