"""Tests the effects of known faults, each in many worlds that differ only by chance."""

from __future__ import annotations

import pytest
from tests.simulation.plan import parse
from tests.simulation.world import TIMEOUTS, World

from ft_supervisor.core.protocol.model import Cycle, Outcome
from ft_supervisor.core.quorum.roster import survivable_losses


def run_plan(text: str) -> World:
    """Run the job of this plan and return its world."""
    world = World(parse(text))
    world.run()
    return world


def codes(world: World) -> list[int | None]:
    """Return the daemons' exit codes; None for a daemon that was killed."""
    return [node.code for node in world.nodes]


QUIET = "peers=crash slow=0.005 restarts=3"


def test_without_faults_a_job_succeeds_everywhere() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=5 active=3 {QUIET}")
        assert codes(world) == [0] * 5
        assert world.checks.ranks == {Cycle(0, 0): {0: 0, 1: 1, 2: 2}}
        assert world.file is not None and world.file.outcome is Outcome.SUCCESS


def test_a_killed_coordinator_is_replaced_and_the_training_goes_on() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=4 active=3 gentle=1 work=20 {QUIET} coordinator@12:charge")
        assert codes(world) == [0] * 4
        assert len(world.checks.terms) == 2 and list(world.checks.ranks) == [Cycle(0, 0)]


def test_the_first_node_dies_while_it_trains() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=4 active=3 work=20 {QUIET} node@12:0")
        assert codes(world) == [None, 0, 0, 0]
        assert world.checks.ranks[max(world.checks.ranks)] == {0: 3, 1: 1, 2: 2}
        assert world.file is not None and world.file.outcome is Outcome.SUCCESS


def test_a_standby_with_the_coordinator_dies_and_the_training_goes_on() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=5 active=3 candidates=3,4, work=20 {QUIET} node@12:3")
        assert codes(world) == [0, 0, 0, None, 0]
        assert list(world.checks.ranks) == [Cycle(3, 0)]


def test_two_of_three_candidates_die_at_once() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=6 active=3 candidates=3 work=20 {QUIET} node@12:0 node@12:1")
        assert codes(world) == [None, None, 0, 0, 0, 0]
        assert world.checks.leader == 2


@pytest.mark.parametrize("nodes", range(2, 8))
def test_a_job_survives_as_many_losses_as_survivable_losses_returns(nodes: int) -> None:
    for seed in range(6):
        world = World(parse(f"{seed} nodes={nodes} active=1 work=25 {QUIET}"))
        losses = survivable_losses(world.job)
        dying = " ".join(f"node@12:{rank}" for rank in range(losses))
        world = run_plan(f"{seed} nodes={nodes} active=1 work=25 {QUIET} {dying}")
        assert codes(world) == [None] * losses + [0] * (nodes - losses)


def test_without_a_majority_all_nodes_leave_with_75_and_write_no_file() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=5 active=2 work=60 {QUIET} node@12:0 node@12:1 node@12:2")
        assert codes(world) == [None, None, None, 75, 75]
        assert world.file is None and world.checks.chosen is None
        assert world.now < 12 + TIMEOUTS.takeover + TIMEOUTS.fence


def test_a_job_cut_in_halves_goes_on_in_one_of_them() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=4 active=1 work=40 {QUIET} split@12:0.1~100")
        assert codes(world) == [0, 0, 75, 75]


def test_a_node_that_was_cut_off_comes_back_as_a_standby() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=4 active=3 work=30 {QUIET} cut-node@12:1~12")
        assert codes(world) == [0] * 4
        assert {0: 0, 1: 3, 2: 2} in world.checks.ranks.values()


def test_a_frozen_node_comes_back_to_a_world_that_has_moved_on() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=4 active=3 work=30 {QUIET} freeze-node@12:0~12")
        assert codes(world) == [0] * 4
        assert {0: 3, 1: 1, 2: 2} in world.checks.ranks.values()


@pytest.mark.parametrize("moment", ["closing", "recording", "closed"])
@pytest.mark.parametrize("kind", ["coordinator", "node", "freeze-node", "cut-node"])
def test_the_coordinator_is_lost_while_it_ends_the_job(kind: str, moment: str) -> None:
    for seed in range(20):
        late = seed % 5 * 0.01
        world = run_plan(f"{seed} nodes=5 active=3 {QUIET} {kind}@{moment}+{late}:actor~{0 if kind in KILLS else 15}")
        assert world.checks.chosen is not None and world.checks.chosen.outcome is Outcome.SUCCESS
        assert codes(world) == [None if kind == "node" else 0, 0, 0, 0, 0]


KILLS = ("coordinator", "node")


def test_nodes_that_cannot_start_workers_are_replaced_and_nothing_is_charged() -> None:
    for seed in range(20):
        world = run_plan(f"{seed} nodes=6 active=3 work=20 peers=crash slow=0.005 restarts=0 unable@0:1 unable@0:3")
        assert codes(world) == [0] * 6
        assert world.checks.ranks[max(world.checks.ranks)] == {0: 0, 1: 4, 2: 2}
        assert world.checks.charged == 0


def test_when_no_node_can_start_workers_the_job_soon_ends_with_that_reason() -> None:
    for seed in range(20):
        unable = " ".join(f"unable@0:{rank}" for rank in range(4))
        world = run_plan(f"{seed} nodes=4 active=3 work=20 {QUIET} {unable}")
        assert codes(world) == [75] * 4
        assert world.file is not None and "cannot start workers: read-only" in world.file.reason
        assert world.now < 40


def test_a_signal_cancels_the_job() -> None:
    world = run_plan(f"1 nodes=4 active=3 work=60 {QUIET} signal@10:2")
    assert codes(world) == [130] * 4
    assert world.file is not None and world.file.reason == "n2 was told to end: SIGTERM"


def test_the_spent_budget_fails_the_job_on_every_node() -> None:
    world = run_plan("1 nodes=4 active=3 restarts=2 peers=crash fails=1.0,1.1,1.2")
    assert codes(world) == [1] * 4
    assert world.file is not None and world.file.reason.startswith("2 restarts spent: a worker (n")
    assert len(world.checks.ranks) == 3


def test_workers_that_crash_at_their_start_everywhere_end_the_job() -> None:
    fails = ",".join(f"{rank}.{n}" for n in range(5) for rank in range(3))
    for seed in range(10):
        world = run_plan(f"{seed} nodes=4 active=3 restarts=5 work=1 peers=independent fails={fails}")
        assert codes(world) == [93] * 4
        assert world.file is not None and world.file.reason == "fails at once, the same way, on all nodes: exit code 1"


def test_too_few_nodes_interrupt_the_job() -> None:
    world = run_plan(f"1 nodes=5 active=4 work=60 {QUIET} node@12:3 node@12:4")
    assert codes(world) == [75, 75, 75, None, None]
    assert world.file is not None and "too few nodes: 3 of 4" in world.file.reason


def test_the_only_coordinator_hangs_and_its_daemon_replaces_it() -> None:
    for seed in range(10):
        world = run_plan(f"{seed} nodes=3 active=2 candidates=1 work=20 {QUIET} freeze-coordinator@12:0~100")
        assert codes(world) == [0] * 3


def test_a_run_dir_that_hangs_delays_no_decision() -> None:
    for seed in range(10):
        world = run_plan(f"{seed} nodes=4 active=3 {QUIET} files@1~100")
        assert codes(world) == [0] * 4
        assert world.now < 40


def test_a_stranger_at_the_exit_barrier_ends_no_node() -> None:
    for seed in range(10):
        strangers = " ".join(f"stranger@{at}:charge" for at in (3, 10, 19))
        world = run_plan(f"{seed} nodes=5 active=3 work=20 gentle=1 {QUIET} {strangers}")
        assert codes(world) == [0] * 5
        assert list(world.checks.ranks) == [Cycle(0, 0)] and len(world.checks.terms) == 1


def test_a_stranger_on_the_first_port_keeps_no_node_from_its_coordinator() -> None:
    for seed in range(20):
        squatters = " ".join(f"squatter@0:{rank}~60" for rank in range(4))
        world = run_plan(f"{seed} nodes=4 active=3 gentle=1 work=20 {QUIET} {squatters} coordinator@12:charge")
        assert codes(world) == [0] * 4
        assert list(world.checks.ranks) == [Cycle(0, 0)] and len(world.checks.terms) == 2


def test_a_stranger_and_no_coordinator_end_no_node_with_0() -> None:
    for seed in range(10):
        lost = "node@14:0 node@14:1 node@14:2"
        world = run_plan(f"{seed} nodes=5 active=2 work=60 {QUIET} stranger@10:charge {lost}")
        assert codes(world) == [None, None, None, 75, 75]


def test_spares_leave_at_once_though_the_coordinator_is_killed_at_the_exit_barrier() -> None:
    for seed in range(40):
        late = seed % 10 * 0.005
        world = run_plan(f"{seed} nodes=5 active=3 {QUIET} coordinator@succeeding+{late}:charge")
        assert codes(world) == [0] * 5
        assert world.checks.chosen is not None and world.checks.chosen.outcome is Outcome.SUCCESS
        for spare in (3, 4):
            assert world.checks.left_at[spare] - world.checks.worked_at < 1.0


def test_a_verdict_set_from_outside_in_the_store_ends_the_job() -> None:
    for seed in range(10):
        world = run_plan(f"{seed} nodes=4 active=3 work=60 {QUIET} outside@10:charge")
        assert codes(world) == [1] * 4
        assert world.file is not None and world.file.reason == "from outside"
