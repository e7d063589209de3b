"""Thousands of whole jobs from seeds, against what always holds (docs/concepts.md).

`FT_SEEDS=100000` lives more of them; `scripts/simulate` does so on all cores, and shrinks what fails.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.draw import draw
from tests.simulation.runner import explain, live
from tests.simulation.themes import THEMES, Theme
from tests.simulation.world import World

SEEDS = int(os.environ.get("FT_SEEDS", "3000"))
BATCHES = 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_invariants_hold_whatever_happens(batch: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(batch, SEEDS, BATCHES):
        lived = live(seed)
        assert not lived.breach, explain(seed)
        outcomes[lived.outcome] += 1
    assert outcomes["success"] > outcomes.total() / 2


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.__name__)
def test_each_theme_matters(theme: Theme) -> None:
    """Its faults happen, and change what the job does in one run of forty at least."""
    for seed in range(40):
        world = World(draw(seed, theme), history=True)
        world.run()
        assert world.history is not None
        if any("FAULT" in line for line in world.history) and (
            len(world.checks.terms) > 1 or len(world.checks.ranks) > 1
        ):
            return
    pytest.fail("nothing happens in any of them")
