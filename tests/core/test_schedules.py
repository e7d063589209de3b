"""Thousands of random orders of events, faults included, against the invariants of the design.

A failing seed prints its history and the command that replays it.
"""

from __future__ import annotations

import os
import random

import pytest
from tests.core.simworld import Breach, SimNode, World

from ft_supervisor.core import events
from ft_supervisor.core.model import Cycle, Outcome, Verdict

SEEDS = int(os.environ.get("FT_SEEDS", "2000"))
BATCHES = 20


def inject(world: World, plan: random.Random, node: SimNode) -> None:
    """One fault, now."""
    fault = plan.choice(["kill", "agent", "freeze", "cut", "old", "old", "freeze_coordinator"])
    world.note(f"-- {fault} {node.node.name}")
    match fault:
        case "kill" if node.node.infra_rank:
            world.kill_node(node)
        case "agent":
            world.kill_agent(node)
        case "freeze":
            world.freeze_agent(node, plan.uniform(0.1, 8.0))
        case "cut" if node.node.infra_rank:
            world.cut(node, plan.uniform(0.1, 12.0))
        case "old":
            world.repeat_old_messages()
        case "freeze_coordinator":
            world.coordinator_frozen = world.now + plan.uniform(0.1, 4.0)


def plan_faults(world: World, plan: random.Random) -> None:
    """A handful of faults at random moments; sometimes one that ends the job."""
    failing = {(plan.randrange(len(world.nodes)), plan.randrange(3)) for _ in range(plan.randrange(3))}
    world.fails = lambda node, cycle: (node, cycle.n) in failing
    stubborn = plan.randrange(6)
    world.stubborn = lambda node: node == stubborn
    for _ in range(plan.randrange(5)):
        node = plan.choice(world.nodes)
        world.after(plan.uniform(0.0, 30.0), lambda node=node: inject(world, plan, node))  # type: ignore[misc]
    for _ in range(plan.randrange(8)):
        world.after(plan.uniform(3.0, 30.0), world.repeat_old_messages)
    last = plan.random()
    if last < 0.1:
        world.after(plan.uniform(1.0, 20.0), world.kill_coordinator)
    elif last < 0.2:
        node = plan.choice(world.nodes)
        world.after(plan.uniform(0.0, 20.0), lambda: world.tell_daemon(node, events.Signalled("SIGTERM")))
    elif last < 0.3:
        verdict = Verdict(plan.choice([Outcome.FAILED, Outcome.INTERRUPTED]), "from outside")
        world.after(plan.uniform(1.0, 20.0), lambda: world.close_from_outside(verdict))


def live(seed: int) -> World:
    """The whole life of one job under the faults that `seed` draws. Raises Breach."""
    plan = random.Random(f"plan {seed}")
    nodes = plan.randint(2, 6)
    world = World(seed, nodes, plan.randint(1, nodes), max_restarts=plan.randint(0, 4), work=plan.uniform(0.5, 12.0))
    plan_faults(world, plan)
    try:
        world.run()
    except Breach as breach:
        replay = f"SEED={seed} pytest tests/core/test_schedules.py -k replay"
        raise Breach(f"seed {seed}: {breach}\n" + "\n".join(world.log[-80:]) + f"\nreplay with: {replay}") from None
    return world


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_invariants_hold_whatever_happens(batch: int) -> None:
    outcomes: set[Outcome | None] = set()
    for seed in range(batch, SEEDS, BATCHES):
        world = live(seed)
        outcomes.add(world.permanent_close.outcome if world.permanent_close else None)
    assert Outcome.SUCCESS in outcomes


def test_replay() -> None:
    """`SEED=n pytest tests/core/test_schedules.py -k replay -s` prints the history of one seed."""
    seed = os.environ.get("SEED")
    world = live(int(seed) if seed else 1)
    print("\n".join(world.log))
    assert all(not sim.up for sim in world.nodes)


def test_without_faults_a_job_succeeds_and_every_node_leaves_with_0() -> None:
    for seed in range(50):
        world = World(seed, nodes=5, active=3)
        world.run()
        assert [sim.code for sim in world.nodes] == [0] * 5
        assert world.ranks == {Cycle(0, 0): {0: 0, 1: 1, 2: 2}}


def test_a_lost_node_is_replaced_by_the_standby_and_survivors_keep_their_ranks() -> None:
    for seed in range(50):
        world = World(seed, nodes=4, active=3, work=20.0)
        world.after(8.0, lambda world=world: world.kill_node(world.nodes[1]))  # type: ignore[misc]
        world.run()
        assert [sim.code for sim in world.nodes] == [0, None, 0, 0]
        assert world.ranks[Cycle(0, 1)] == {0: 0, 1: 3, 2: 2}


def test_two_nodes_lost_with_one_standby_is_interrupted() -> None:
    world = World(1, nodes=4, active=3, work=30.0)
    for victim in (1, 2):
        world.after(10.0, lambda victim=victim: world.kill_node(world.nodes[victim]))  # type: ignore[misc]
    world.run()
    assert world.permanent_close is not None and world.permanent_close.outcome is Outcome.INTERRUPTED
    assert "too few nodes: 2 of 3" in world.permanent_close.reason
    assert [sim.code for sim in world.nodes] == [75, None, None, 75]


def test_the_spent_budget_fails_the_job_on_every_node() -> None:
    world = World(1, nodes=4, active=3, max_restarts=2)
    world.fails = lambda node, cycle: node == 1
    world.run()
    assert world.permanent_close is not None
    assert world.permanent_close.reason.startswith("2 restarts spent: n1: worker 0 of node 1: exit code 1")
    assert [sim.code for sim in world.nodes] == [1] * 4
    assert len(world.ranks) == 3


def test_a_lost_coordinator_ends_everybody_with_75_within_the_fence() -> None:
    world = World(1, nodes=4, active=3, work=60.0)
    world.after(10.0, world.kill_coordinator)
    world.run()
    assert [sim.code for sim in world.nodes] == [75] * 4
    assert world.now < 10.0 + world.job.timeouts.fence + 3.0


def test_a_signal_cancels_the_job() -> None:
    world = World(1, nodes=4, active=3, work=60.0)
    world.after(10.0, lambda: world.tell_daemon(world.nodes[2], events.Signalled("SIGTERM")))
    world.run()
    assert [sim.code for sim in world.nodes] == [130] * 4
    assert world.permanent_close == Verdict(Outcome.CANCELLED, "n2 was told to end: SIGTERM")


def test_a_spare_that_is_early_takes_no_rank() -> None:
    """Low infra_ranks get the group ranks, in whatever order nodes come."""
    for seed in range(100):
        world = World(seed, nodes=6, active=2)
        world.run()
        assert world.ranks[Cycle(0, 0)] == {0: 0, 1: 1}
