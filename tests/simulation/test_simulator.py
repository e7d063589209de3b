"""Tests the simulator itself: a seed always gives the same run, failing plans are shrunk, breaches are printed."""

from __future__ import annotations

from itertools import islice

import pytest
from tests.simulation.clockwork import Breach
from tests.simulation.draw import draw
from tests.simulation.plan import IN_CHARGE, Fault, Plan, parse
from tests.simulation.runner import main
from tests.simulation.shrink import shrink
from tests.simulation.world import TIMEOUTS, World

from ft_supervisor.config.cross_checks import check_timeouts
from ft_supervisor.config.errors import Problems
from ft_supervisor.config.validator import BUILT_IN, Setting


def test_the_timeouts_of_the_simulation_are_allowed() -> None:
    problems = Problems()
    check_timeouts({f"timeouts.{name}": Setting(value, BUILT_IN) for name, value in vars(TIMEOUTS).items()}, problems)
    problems.raise_all()


def test_two_runs_with_the_same_seed_are_the_same_job() -> None:
    for seed in range(10):
        first, second = (World(draw(seed), history=True) for _ in range(2))
        first.run()
        second.run()
        assert first.history == second.history


def test_a_plan_can_be_written_and_parsed() -> None:
    for seed in range(500):
        plan = draw(seed)
        assert str(parse(str(plan))) == str(plan)
    with pytest.raises(ValueError, match="is no fault"):
        parse("1 burns@3:1")


def test_shrinking_keeps_the_breach_and_drops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(world: World) -> None:
        kinds = [fault.kind for fault in world.plan.faults]
        if "node" in kinds and "agent" in kinds:
            raise Breach("9", "as wanted")

    monkeypatch.setattr(World, "run", breaks)
    plan = next(plan for plan in map(draw, range(10_000)) if {"node", "agent"} <= {fault.kind for fault in plan.faults})
    small = shrink(plan)
    assert sorted(fault.kind for fault in small.faults) == ["agent", "node"]


def test_a_failing_seed_fails_the_command_and_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = World.run

    def breaks(world: World) -> None:
        run(world)
        if world.plan.nodes > 2:
            raise Breach("9", "as wanted")

    monkeypatch.setattr(World, "run", breaks)
    failing = next(islice((seed for seed in range(100) if draw(seed).nodes > 2), 1))
    assert main(["--seeds", "1", "--first-seed", str(failing), "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert f"seed {failing} breaks 9: as wanted" in printed
    assert f"replay: scripts/simulate --replay '{failing} nodes=3" in printed


def test_the_command_replays_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(7, nodes=3, active=2, faults=(Fault("coordinator", 9.0, (IN_CHARGE,)),))
    assert main(["--replay", str(plan), "--match", "FAULT"]) == 0
    assert "coordinator@9:charge at [0]" in capsys.readouterr().out
