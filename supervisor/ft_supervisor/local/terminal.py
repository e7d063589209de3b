"""Shows many nodes in one terminal: each line with its node's name, and one with the states that have changed.

The nodes' states come from the run's status.json (`see`), never from their output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ft_supervisor.core.protocol.model import JobPhase
from ft_supervisor.run_folder.snapshot import NodeRole, NodeStatus, Snapshot


class Terminal:
    """Prints the output of daemons and workers, and keeps the state of each node. `put` gets each line."""

    def __init__(self, names: Sequence[str], put: Callable[[str], None]) -> None:
        self._states = dict.fromkeys(names, "starting")
        self._shown: dict[str, str] = {}
        """The states that were printed last."""
        self._gone: set[str] = set()
        self._put = put
        self._in_charge = ""
        self._term = -1
        self._width = max(map(len, names))
        self._leader = ""
        """The node that was printed last as the one in charge."""

    def line(self, name: str, text: str) -> None:
        """Print one line of a node's output."""
        self._put(f"{name:>{self._width}}| {text}")

    def see(self, snapshot: Snapshot) -> bool:
        """Take over the states in a snapshot. Returns whether a node's state has changed. A snapshot of an older term
        than the newest changes nothing."""
        term = -1 if snapshot.coordinator.term is None else snapshot.coordinator.term
        if term < self._term:
            return False
        before = dict(self._states), self._in_charge
        self._term = term
        for name, _, group_rank, entry in snapshot.each():
            if name in self._states and name not in self._gone:
                self._states[name] = _state(entry, group_rank, snapshot.phase)
        leads = snapshot.coordinator.in_charge and snapshot.coordinator.node not in self._gone
        self._in_charge = snapshot.coordinator.node if leads else ""
        return before != (self._states, self._in_charge)

    def gone(self, name: str, how: str) -> None:
        """Note the end of the node's daemon."""
        self._gone.add(name)
        self._states[name] = how
        if self._in_charge == name:
            self._in_charge = ""

    def status(self) -> None:
        """Print the states of those nodes whose state has changed since it was printed, and which node is in charge if
        that has changed."""
        changed = {name: state for name, state in self._states.items() if self._shown.get(name) != state}
        said = ", ".join(f"{name} {state}" for name, state in changed.items())
        if self._in_charge not in ("", self._leader):
            self._leader = self._in_charge
            said += f"{'; ' if said else ''}in charge: {self._in_charge}"
        self._shown |= changed
        if said:
            self.say(said)

    def last(self) -> None:
        """Print the states of all nodes, once all have ended."""
        self.say(", ".join(f"{name} {state}" for name, state in self._states.items()))

    def say(self, text: str) -> None:
        """Print a line of `local` itself."""
        self._put(f"{'local':>{self._width}}| {text}")


def _state(entry: NodeStatus, group_rank: int | None, phase: JobPhase) -> str:
    """Return a node's state in one or two words."""
    if entry.role is NodeRole.ACTIVE and phase is JobPhase.STOPPING and entry.running:
        return phase.value
    if entry.role is NodeRole.UNREGISTERED:
        return "joining"
    return entry.role.value if group_rank is None or entry.role is not NodeRole.ACTIVE else f"active {group_rank}"
