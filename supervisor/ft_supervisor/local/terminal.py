"""One terminal for many nodes: each line with its node's name, and one that says who does what when that changes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_OURS = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z (?P<level>\w+) event=(?P<event>\w+)")
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S*)""")
IN_CHARGE = ("in_charge", "cycle_started")
"""What only the coordinator in charge says."""
NOT_IN_CHARGE = ("stepped_down", "coordinator_lost")
STATES = ("joining", "standby", "active", "stopping", "succeeded", "closing")


@dataclass(frozen=True)
class _Ours:
    """One of our own log lines."""

    level: str
    event: str
    process: str
    fields: Mapping[str, object]


def _parse(text: str) -> _Ours | None:
    """In either form; None for what somebody else has printed."""
    if (found := _OURS.match(text)) is not None:
        fields = dict(_FIELD.findall(text))
        return _Ours(found["level"], found["event"], fields.get("proc", ""), fields)
    if not text.startswith('{"time":"'):
        return None
    try:
        told = json.loads(text)
        return _Ours(str(told["level"]), str(told["event"]), str(told["proc"]), dict(told["fields"]))
    except (ValueError, KeyError, TypeError, RecursionError):  # a worker's, that looks like ours
        return None


class Terminal:
    """Prints to stdout what the daemons and workers print, and keeps what each node does."""

    def __init__(self, names: Sequence[str], quiet: bool) -> None:
        self._states = dict.fromkeys(names, "starting")
        self._in_charge = ""
        self._quiet = quiet
        self._width = max(map(len, names))
        self._said = ""
        self.closed = False
        """Whether nobody reads what is printed."""

    def line(self, name: str, text: str) -> bool:
        """One line of a node's output. True when it tells that the node now does something else."""
        ours = _parse(text)
        if ours is None or not self._quiet or ours.level in ("warning", "error"):
            self._print(f"{name:>{self._width}}| {text}")
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
        self._print(f"{'local':>{self._width}}| {text}")

    def _changed(self, name: str, ours: _Ours) -> bool:
        event, process, fields = ours.event, ours.process, ours.fields
        if "gone" in self._states[name]:
            return False
        if process == "agent" and event in STATES:
            rank = f" {fields['group_rank']}" if event == "active" and "group_rank" in fields else ""
            before, self._states[name] = self._states[name], event + rank
            return before != self._states[name]
        if process == "coordinator" and event in IN_CHARGE:
            return self._charge(name, True)
        return process in ("coordinator", "daemon") and event in NOT_IN_CHARGE and self._charge(name, False)

    def _charge(self, name: str, takes: bool) -> bool:
        """Whether somebody else, or nobody any more, is in charge now."""
        before = self._in_charge
        if takes:
            self._in_charge = name
        elif before == name:
            self._in_charge = ""
        return before != self._in_charge

    def _print(self, text: str) -> None:
        if self.closed:
            return
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self.closed = True
            # The interpreter flushes once more when it ends, and must not fail at that.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
