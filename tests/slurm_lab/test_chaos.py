"""Chaos: a fixed list of schedules which together touch every victim and every moment; see scripts/chaos for more.
Without --all there are four of them, with a takeover, a frozen and a lost batch host, a cut, a worker and an agent.

A failing one prints its faults, the command that repeats it, and the end of all nodes' logs.
"""

import pytest
from tests.slurm_lab.chaos.run import play
from tests.slurm_lab.chaos.schedule import Fault, Moment, Schedule, Victim, draw
from tests.slurm_lab.conftest import only_on
from tests.slurm_lab.jobs import EXAMPLE, LIGHT

from slurm_lab import Lab

SEEDS = (
    8,  # a node is cut off for ever
    166,  # the batch host is frozen, which has the coordinator
    266,  # a node that joins is not reached; another freezes shortly
    301,  # slurmdbd is away at the end, when the coordinator is killed too
    457,  # a node is not heard; an agent is killed at the exit barrier
    622,  # an agent; at the exit barrier a worker
    1634,  # while nodes join, one is cut off shortly, and the batch host dies
    3124,  # an active node; while the others stop, another one's daemon
    4413,  # a standby node; then an active one is cut off, and comes back
    8574,  # the coordinator, and its successor
    12500,  # slurmctld is away, and an active node dies
    17337,  # a worker; while the others stop, the batch host
    19578,  # the batch host; while its replacement is promoted, the new coordinator
)
EVERYWHERE = (8574, 166, 17337, 457)
"""On each release, and without --all, too: then without torch."""
ELSEWHERE = "22.05"
"""The others, as what runs on the default release alone takes about as long."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seed", [*EVERYWHERE, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS if seed not in EVERYWHERE)]
)
def test_schedule(pytestconfig: pytest.Config, release_lab: Lab, seed: int) -> None:
    if seed not in EVERYWHERE:
        only_on(pytestconfig, release_lab, ELSEWHERE)
    training = EXAMPLE if pytestconfig.getoption("--all", default=False) else LIGHT
    result = play(release_lab, draw(seed), training)
    print(result.told)  # pytest -rP shows it of those that went well, too
    assert not result.wrong


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_more_nodes_are_lost_than_there_are_spares(pytestconfig: pytest.Config, release_lab: Lab) -> None:
    """The batch host first: the job is then ended with the verdict's code by the last coordinator."""
    only_on(pytestconfig, release_lab, ELSEWHERE)
    victims = (Victim.BATCH_HOST, Victim.ACTIVE_NODE, Victim.DAEMON)
    schedule = Schedule(0, tuple(Fault(victim, Moment.RUNNING, steps=5) for victim in victims))
    assert not schedule.survivable
    result = play(release_lab, schedule)
    assert not result.wrong, result.told


def test_the_list_touches_every_victim_and_every_moment() -> None:
    schedules = [draw(seed) for seed in SEEDS]
    faults = [fault for schedule in schedules for fault in schedule.faults]
    assert {fault.victim for fault in faults} == set(Victim)
    assert {fault.moment for fault in faults} == set(Moment)
    assert len(schedules) >= 12
    assert sum(len(schedule.faults) == 2 for schedule in schedules) >= 6
    assert set(EVERYWHERE) < set(SEEDS)


def test_a_seed_always_draws_the_same() -> None:
    assert [draw(seed) for seed in range(200)] == [draw(seed) for seed in range(200)]
    assert len({str(draw(seed)) for seed in range(200)}) > 150
