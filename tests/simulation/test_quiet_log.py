"""At the level info a job's log does not grow with its nodes: what each of them does is at debug."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.plan import parse
from tests.simulation.world import World

from ft_supervisor.core.protocol.actions import Announce
from ft_supervisor.core.protocol.model import Outcome
from ft_supervisor.process.log_lines import render

SIZES = (4, 24)
FAULTS = {"a worker": "fails=1.0", "a node": "node@12:2", "the coordinator and its node": "node@12:0"}


class Logged(World):
    """A world that counts the lines that its machines' facts would make in the log, by event."""

    def __init__(self, text: str) -> None:
        super().__init__(parse(text), history=True)
        self.lines: Counter[str] = Counter()
        self.debug = 0

    def note_action(self, who: str, action: object) -> None:
        if isinstance(action, Announce):
            line = render(action.fact, self.job)
            self.debug += line.level == "debug"
            self.lines[line.event] += line.level != "debug"


def run(nodes: int, fault: str) -> Logged:
    text = f"7 nodes={nodes} active={nodes - 1} work=20 peers=crash slow=0.005 restarts=3 {fault}"
    words = text.split()
    faults = [word for word in words if "@" in word]  # they come last
    world = Logged(" ".join([word for word in words if "@" not in word] + faults))
    world.run()
    assert world.file is not None and world.file.outcome is Outcome.SUCCESS
    assert len(world.checks.ranks) == 2, "one restart"
    return world


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_the_lines_of_a_restart_do_not_grow_with_the_nodes(fault: str) -> None:
    small, large = (run(nodes, fault) for nodes in SIZES)
    assert large.debug > 3 * small.debug, "the nodes' own lines are at debug"
    more = large.lines - small.lines
    assert not more or more == Counter(message_dropped=1), f"{more} more lines with {SIZES[1]} nodes"
