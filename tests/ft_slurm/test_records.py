"""Tests the meaning of nodes' states."""

import pytest

from ft_slurm.scontrol_text import node


@pytest.mark.parametrize(
    ("state", "draining", "down"),
    [
        ("IDLE", False, False),
        ("MIXED", False, False),
        ("MIXED+DRAIN", True, False),
        ("DRAINING", True, False),
        ("IDLE+DRAIN+REBOOT_REQUESTED", True, False),
        ("DOWN+DRAIN", True, True),
        ("DOWN*", False, True),
        ("ALLOCATED+FAIL", True, False),
        ("IDLE+MAINT+RESERVED", False, False),
        ("IDLE+MAINTENANCE", False, False),
        ("MIXED+NOT_RESPONDING", False, False),
        ("ALLOCATED+PLANNED", False, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, True),
    ],
)
def test_node_is_taken_away_or_gone(state: str, draining: bool, down: bool) -> None:
    found = node("n0", state.split("+"), "")
    assert (found.draining, found.down) == (draining, down)
