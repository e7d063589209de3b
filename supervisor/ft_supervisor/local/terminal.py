"""One terminal for many nodes: each line with its node's name, and one that says who does what when that changes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

_OURS = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z (?P<level>\w+) event=(?P<event>\w+)")
_FIELD = re.compile(r"""(\w+)=("(?:[^"\\]|\\.)*"|\S*)""")
STATES = ("joining", "standby", "active", "stopping", "succeeded", "closing")


class Terminal:
    """Prints to stdout what the daemons and workers print, and keeps what each node does."""

    def __init__(self, names: Sequence[str], quiet: bool) -> None:
        self._states = dict.fromkeys(names, "starting")
        self._quiet = quiet
        self._width = max(map(len, names))
        self._said = ""
        self.closed = False
        """Whether nobody reads what is printed."""

    def line(self, name: str, text: str) -> bool:
        """One line of a node's output. True when it tells that the node now does something else."""
        ours = _OURS.match(text)
        if ours is None or not self._quiet or ours["level"] in ("warning", "error"):
            self._print(f"{name:>{self._width}}| {text}")
        return ours is not None and ours["event"] in STATES and self._changed(name, ours["event"], text)

    def gone(self, name: str, how: str) -> None:
        """The node's daemon has ended."""
        self._states[name] = how

    def status(self) -> None:
        """Who does what, unless that is what was said last."""
        said = ", ".join(f"{name} {state}" for name, state in self._states.items())
        if said != self._said:
            self._said = said
            self.say(said)

    def say(self, text: str) -> None:
        """A line of our own."""
        self._print(f"{'local':>{self._width}}| {text}")

    def _changed(self, name: str, state: str, text: str) -> bool:
        fields = dict(_FIELD.findall(text))
        if fields.get("proc") != "agent" or "gone" in self._states[name]:
            return False
        rank = f" {fields['group_rank']}" if state == "active" and "group_rank" in fields else ""
        before, self._states[name] = self._states[name], state + rank
        return before != self._states[name]

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
