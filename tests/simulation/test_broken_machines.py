"""Tests that the simulator detects mutants: with one broken rule of the core, some job ends in a breach."""

from __future__ import annotations

import pytest
from tests.simulation.draw import draw
from tests.simulation.mutants import OTHERS, REQUIRED, Mutant
from tests.simulation.shrink import breach

SEEDS = 4000


@pytest.mark.parametrize("mutant", [*REQUIRED, *OTHERS], ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed(mutant: Mutant) -> None:
    for seed in range(SEEDS):
        plan = draw(seed, mutant.theme)
        with mutant.at_work():
            found = breach(plan, mutant.machines)
        if found is not None and found.number in mutant.breaks and breach(plan) is None:
            return
    pytest.fail(f"no breach in {SEEDS} seeds")
