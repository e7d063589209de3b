"""Whom a fault hits, and what a seed draws."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ft_supervisor.fault.messages import NotThere, Seen, Target, Worker, Wrong
from ft_supervisor.fault.plan import JITTER, Schedule, aim, turns


def node(index: int, *ranks: int | None, charge: int | None = None) -> Seen:
    """n<index>, whose pids begin with 100 times its index; a coordinator runs there if it is in charge of a term."""
    return Seen(
        run_id="7.0.0",
        node=f"n{index}",
        allowed=True,
        local=False,
        run_folder="/runs/7.0.0",
        step_file="",
        daemon=100 * index,
        agent=100 * index + 1,
        coordinator=None if charge is None else 100 * index + 2,
        in_charge=charge,
        workers=tuple(Worker(rank, 100 * index + 10 + number) for number, rank in enumerate(ranks)),
    )


JOB = [node(1, 4, 5, charge=0), node(2, 0, 1, charge=7), node(3)]


@pytest.mark.parametrize(
    ("target", "name", "rank", "pick", "pid"),
    [
        (Target.WORKER, "", 5, None, 111),
        (Target.WORKER, "n1", None, None, 110),
        (Target.WORKER, "n1", 5, None, 111),
        (Target.WORKER, "", None, 0.0, 210),  # in the order of the ranks
        (Target.WORKER, "", None, 0.999, 111),
        (Target.AGENT, "n3", None, None, 301),
        (Target.AGENT, "", None, 0.5, 201),
        (Target.COORDINATOR, "", None, None, 202),  # of the highest term
        (Target.COORDINATOR, "", None, 0.0, 202),
        (Target.COORDINATOR, "n1", None, None, 102),
        (Target.DAEMON, "n2", None, None, 200),
        (Target.NODE, "n2", None, None, 200),
        (Target.NODE, "", None, 0.7, 300),
    ],
)
def test_who_is_hit(target: Target, name: str, rank: int | None, pick: float | None, pid: int) -> None:
    assert aim(JOB, target, node=name, rank=rank, pick=pick).pid == pid


@pytest.mark.parametrize(
    ("target", "name", "rank", "kind", "text"),
    [
        (Target.WORKER, "", 6, NotThere, "no worker of rank 6 runs in this job"),
        (Target.WORKER, "n2", 5, NotThere, "no worker of rank 5 runs on n2"),
        (Target.WORKER, "n3", None, NotThere, "no worker runs on n3"),
        (Target.COORDINATOR, "n3", None, NotThere, "no coordinator runs on n3"),
        (Target.NODE, "n9", None, NotThere, "no daemon lives on n9; there are n1, n2, n3"),
        (Target.WORKER, "", None, Wrong, "which worker? say so by --node or --rank: n2, n1"),
        (Target.AGENT, "", None, Wrong, "which agent? say so by --node: n1, n2, n3"),
    ],
)
def test_who_is_not(target: Target, name: str, rank: int | None, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as refused:
        aim(JOB, target, node=name, rank=rank, pick=None)
    assert text in str(refused.value)


def test_ranks_that_cannot_be_read() -> None:
    job = [node(1, None, None)]
    assert aim(job, Target.WORKER, node="n1", pick=None).pid == 110
    with pytest.raises(NotThere, match="cannot be read"):
        aim(job, Target.WORKER, rank=0, pick=None)


def test_nobody_is_in_charge_between_two_coordinators() -> None:
    job = [replace(each, in_charge=None) for each in JOB]
    with pytest.raises(NotThere, match="no coordinator is in charge"):
        aim(job, Target.COORDINATOR, pick=None)


def test_what_seed_7_draws() -> None:
    """The same with every Python: a game day can be played again."""
    drawn = turns(Schedule(7, 60, 3), Target.ANY)
    assert [(round(turn.at, 3), turn.target.value, round(turn.pick, 3)) for turn in drawn] == [
        (49.43, "worker", 0.651),
        (83.776, "coordinator", 0.366),
        (117.256, "coordinator", 0.037),
    ]


@given(st.integers(0, 2**63), st.floats(0.1, 1e4), st.integers(1, 50), st.sampled_from(Target))
def test_schedules(seed: int, every: float, count: int, target: Target) -> None:
    drawn = turns(Schedule(seed, every, count), target)
    assert drawn == turns(Schedule(seed, every, count), target)
    assert drawn[: count // 2] == turns(Schedule(seed, every, max(1, count // 2)), target)[: count // 2]
    at = 0.0
    for turn in drawn:
        assert every * (1 - JITTER) * 0.999 <= turn.at - at <= every * (1 + JITTER) * 1.001
        assert 0 <= turn.pick < 1 and turn.target is not Target.ANY and target in (Target.ANY, turn.target)
        at = turn.at
