"""One terminal for many nodes: each line with its node's name, and one line that says who does what when that changes.

What the nodes do comes from the run's status.json (`see`), never from what they print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ft_supervisor.run_folder.snapshot import NodeRole, NodeStatus, Snapshot

_STOPPING = "stopping"


class Terminal:
    """Prints what the daemons and workers print, and keeps what each node does. `put` gets each line."""

    def __init__(self, names: Sequence[str], put: Callable[[str], None]) -> None:
        self._states = dict.fromkeys(names, "starting")
        self._gone: set[str] = set()
        self._put = put
        self._in_charge = ""
        self._term = -1
        self._width = max(map(len, names))
        self._said = ""

    def line(self, name: str, text: str) -> None:
        """Print one line of a node's output."""
        self._put(f"{name:>{self._width}}| {text}")

    def see(self, snapshot: Snapshot) -> bool:
        """Take over what a coordinator knows. Returns whether a node does something else now. A snapshot of an older
        term than the newest changes nothing."""
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
        """The node's daemon has ended."""
        self._gone.add(name)
        self._states[name] = how
        if self._in_charge == name:
            self._in_charge = ""

    def status(self) -> None:
        """Print who does what, unless that was printed last."""
        said = ", ".join(f"{name} {state}" for name, state in self._states.items())
        said += f"; in charge: {self._in_charge}" if self._in_charge else ""
        if said != self._said:
            self._said = said
            self.say(said)

    def say(self, text: str) -> None:
        """Print a line of `local` itself."""
        self._put(f"{'local':>{self._width}}| {text}")


def _state(entry: NodeStatus, group_rank: int | None, phase: str) -> str:
    """One or two words."""
    if entry.role is NodeRole.ACTIVE and phase == _STOPPING and entry.running:
        return _STOPPING
    if entry.role is NodeRole.UNREGISTERED:
        return "joining"
    return entry.role.value if group_rank is None or entry.role is not NodeRole.ACTIVE else f"active {group_rank}"
