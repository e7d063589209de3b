"""One terminal for many nodes: each line with its node's name, and one that says who does what when that changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_OURS = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT[0-9:.]+Z) (?P<level>\w+) event=(?P<event>\w+)")
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S*)""")
IN_CHARGE = ("in_charge", "cycle_started")
"""What only the coordinator in charge says."""
NOT_IN_CHARGE = ("stepped_down", "coordinator_lost")
STATES = ("joining", "standby", "checking", "active", "stopping", "succeeded", "closing")


@dataclass(frozen=True)
class _Ours:
    """One of our own log lines. `time` as it stands there: all nodes have one clock."""

    time: str
    level: str
    event: str
    process: str
    fields: Mapping[str, object]


def _parse(text: str) -> _Ours | None:
    """In either form; None for what somebody else has printed."""
    if (found := _OURS.match(text)) is not None:
        pairs = _FIELD.findall(text)
        # an event's own fields come first, then who says so
        return _Ours(found["time"], found["level"], found["event"], dict(pairs).get("proc", ""), dict(reversed(pairs)))
    if not text.startswith('{"time":"'):
        return None
    try:
        told = json.loads(text)
        who = str(told["time"]), str(told["level"]), str(told["event"]), str(told["proc"])
        return _Ours(*who, dict(told["fields"]))
    except (ValueError, KeyError, TypeError, RecursionError):  # a worker's, that looks like ours
        return None


class Terminal:
    """Prints what the daemons and workers print, and keeps what each node does. `put` gets each line."""

    def __init__(self, names: Sequence[str], quiet: bool, put: Callable[[str], None]) -> None:
        self._states = dict.fromkeys(names, "starting")
        self._since = dict.fromkeys(names, "")
        self._put = put
        self._in_charge = ""
        self._quiet = quiet
        self._width = max(map(len, names))
        self._said = ""

    def line(self, name: str, text: str) -> bool:
        """One line of a node's output. True when it tells that the node now does something else."""
        ours = _parse(text)
        if ours is None or not self._quiet or ours.level in ("warning", "error"):
            self._put(f"{name:>{self._width}}| {text}")
        return ours is not None and self._changed(name, ours)

    def gone(self, name: str, how: str) -> None:
        """The node's daemon has ended."""
        self._states[name] = how
        self._charge(name, False)

    def status(self) -> None:
        """Who does what, unless that is what was said last."""
        said = ", ".join(f"{name} {state}" for name, state in self._states.items())
        said += f"; in charge: {self._in_charge}" if self._in_charge else ""
        if said != self._said:
            self._said = said
            self.say(said)

    def say(self, text: str) -> None:
        """A line of our own."""
        self._put(f"{'local':>{self._width}}| {text}")

    def _changed(self, name: str, ours: _Ours) -> bool:
        event, process, fields = ours.event, ours.process, ours.fields
        if "gone" in self._states[name]:
            return False
        if process == "agent" and event in STATES:
            rank = f" {fields['group_rank']}" if event == "active" and "group_rank" in fields else ""
            return self._becomes(name, event + rank, ours.time)
        if process == "daemon" and event == "agent_lost":
            return self._becomes(name, "restarting", ours.time)
        if process == "coordinator" and event == "node_lost":
            return self._becomes(str(fields.get("node")), "lost", ours.time)
        if process == "coordinator" and event in IN_CHARGE:
            return self._charge(name, True)
        return process in ("coordinator", "daemon") and event in NOT_IN_CHARGE and self._charge(name, False)

    def _becomes(self, name: str, state: str, time: str) -> bool:
        """Whether that is news: what others say of a node comes by another pipe, and may be older than what it says."""
        before = self._states.get(name, "gone")
        if "gone" in before or time < self._since[name]:
            return False
        self._states[name], self._since[name] = state, time
        return before != state

    def _charge(self, name: str, takes: bool) -> bool:
        """Whether somebody else, or nobody any more, is in charge now."""
        before = self._in_charge
        if takes:
            self._in_charge = name
        elif before == name:
            self._in_charge = ""
        return before != self._in_charge
