"""A cycle stands still when all of its nodes do."""

from ft_supervisor.core.coordinator.standstill import Standstill
from ft_supervisor.core.protocol.activity import gap

AFTER = 600.0


def test_all_nodes_have_to_stand_still() -> None:
    cycle = Standstill(AFTER)
    cycle.hear(0, 700.0, 1000.0)
    assert cycle.lasts([0, 1], 1000.0) is None
    cycle.hear(1, 600.0, 1010.0)
    assert cycle.lasts([0, 1], 1020.0) == 610.0
    assert cycle.lasts([], 1020.0) is None


def test_one_that_works_again_ends_it() -> None:
    cycle = Standstill(AFTER)
    for node in (0, 1):
        cycle.hear(node, 600.0, 1000.0)
    cycle.hear(1, 0.0, 1001.0)
    assert cycle.lasts([0, 1], 1001.0) is None
    assert cycle.lasts([0], 1001.0) == 601.0


def test_a_report_that_is_not_repeated_is_forgotten() -> None:
    cycle = Standstill(AFTER)
    cycle.hear(0, 600.0, 1000.0)
    old = 1000.0 + gap(AFTER)
    assert cycle.lasts([0], old) is not None
    assert cycle.lasts([0], old + 1) is None
