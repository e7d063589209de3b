"""Runs thousands of whole jobs from seeds, and checks the invariants (docs/concepts.md, What always holds).

`FT_SEEDS=100000` runs more of them; `scripts/simulate` does so on all cores, and shrinks a plan that fails.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.draw import draw
from tests.simulation.runner import explain, run_seed
from tests.simulation.themes import THEMES, Theme
from tests.simulation.world import World

SEEDS = int(os.environ.get("FT_SEEDS", "3000"))
BATCHES = 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_invariants_hold_with_any_faults(batch: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(batch, SEEDS, BATCHES):
        result = run_seed(seed)
        assert not result.breach, explain(seed)
        outcomes[result.outcome] += 1
    assert outcomes["success"] > outcomes.total() / 2


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.__name__)
def test_each_theme_matters(theme: Theme) -> None:
    """Check that the theme's faults happen, and lead to a new cycle or term in one run of forty at least."""
    for seed in range(40):
        world = World(draw(seed, theme), history=True)
        world.run()
        assert world.history is not None
        if any("FAULT" in line for line in world.history) and (
            len(world.checks.terms) > 1 or len(world.checks.ranks) > 1
        ):
            return
    pytest.fail("no run has a second cycle or term")
