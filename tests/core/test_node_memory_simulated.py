"""What the node memory saves, simulated: tests/simulation/node_memory.py."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.node_memory import failures, table


def test_the_bad_nodes_cause_few_failures_once_they_are_known() -> None:
    off, last, add = failures("off"), failures("last"), failures("add")
    assert 0.3 < off[1] < 0.6
    assert last[0] < 0.85 * off[0] and last[1] < 0.75 * off[1]
    assert add[0] < 0.85 * off[0] and add[1] < 0.5 * off[1]


def test_the_documentation_has_these_numbers() -> None:
    assert f"\n{table()}\n" in Path("docs/jobs.md").read_text()
