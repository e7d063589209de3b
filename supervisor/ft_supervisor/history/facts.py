"""What a journal's lines say of a run's history, as facts. Pure: lines in, facts out.

It reads with less trust than journal.lines, which replays: a line that is torn, or whose fields are not those
that are expected, is counted and passed over, as a report must work when everything else has failed. It looks only at
what it needs, so that a message with a new field is still understood.

Only the part of a coordinator's journal counts in which it was in charge, that is, has a term.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ft_supervisor.core.protocol.bounds import Rank
from ft_supervisor.core.protocol.codec import from_plain
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.history.fact import LATEST, Told, announced, rank_of
from ft_supervisor.history.from_agent import AgentEvents
from ft_supervisor.history.from_coordinator import CoordinatorEvent

VERSION = 2
"""Of the journal's format, journal.journal."""
_HEARD = 512
"""How many of the newest heartbeats are kept, to tell when a lost node was last heard."""


def facts(lines: Iterable[bytes]) -> Told:
    """Of one journal: its lines with their line ends, and after them those of its part for reading only."""
    reader = _Reader()
    for line in lines:
        if not reader.read(line):
            break
    return reader.end()


class _Reader:
    def __init__(self) -> None:
        self.told = Told()
        self._offset: float | None = None
        self._node_lost = 0.0
        self._heard: deque[bytes] = deque(maxlen=_HEARD)
        self._quiet = b""
        self._spoke: dict[int, float] = {}
        self._agent = AgentEvents(None, 0)
        self._now = 0.0

    def read(self, line: bytes) -> bool:
        """Whether to go on."""
        if not line.endswith(b"\n"):
            self.told.torn += bool(line)
            return True  # the end of a file that somebody writes, or was killed while writing
        try:
            if line.startswith(b"["):
                self._quiet = line
                if line.startswith(b'["Heard"'):
                    self._heard.append(line)
            elif not self._skips(line):
                return self._whole(json.loads(line))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            self.told.torn += 1
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError):
            self.told.strange += 1
        return True

    def _skips(self, line: bytes) -> bool:
        """Heartbeats of workers that have all been heard: most of a journal of an agent that has such workers."""
        return not self._agent.waits_for_beats and b'"event":{"type":"Beat"' in line and b'"actions":[]' in line

    def end(self) -> Told:
        """All of it."""
        self._settle()
        return self.told

    def _settle(self) -> None:
        """Of the heartbeats since the last whole line only the last one's time is looked at: there are millions."""
        line, self._quiet = self._quiet, b""
        if line:
            try:
                now = float(json.loads(line)[1])
                _plausible(now + (self._offset or 0.0))
                self._now = now
            except (ValueError, IndexError, TypeError, RecursionError, OverflowError):
                self.told.strange += 1
            self._touch()

    def _touch(self) -> None:
        if self._offset is not None:
            self.told.last = max(self.told.last or 0.0, self._now + self._offset)

    def _whole(self, value: Any) -> bool:
        self._settle()
        if not isinstance(value, dict):
            self.told.torn += 1
        elif "journal" in value:
            return self._header(value)
        elif "full" in value:
            self.told.full = True
        elif "rest" not in value:
            self._event(value)
        return True

    def _header(self, value: dict[str, Any]) -> bool:
        told = self.told
        if value["journal"] != VERSION:
            told.problem = f"it is of version {value['journal']!r:.20}; this ft-supervisor reads {VERSION}"
            return False
        begin, self._now = value["begin"], float(value["now"])
        job = begin["job"]
        told.machine, told.run_id = str(value["machine"]), str(job["run_id"])
        told.node, told.nodes = from_plain(begin["node"]["infra_rank"], Rank), tuple(map(str, job["nodes"]))
        told.rules = tuple(str(rule["where"]) for rule in job["settings"]["rules"])
        told.per_node, told.active = from_plain(job["per_node"], Rank), from_plain(job["active"], Rank)
        self._node_lost = float(job["timeouts"]["node_lost"])
        self._offset = _plausible(datetime.fromisoformat(value["time"]).timestamp()) - self._now
        told.first = min(told.first or float("inf"), self._now + self._offset)
        self._heard.clear()  # another process's, with another clock
        self._spoke.clear()
        self._agent = AgentEvents(told.node, told.per_node)
        self._touch()
        return True

    def _event(self, value: dict[str, Any]) -> None:
        now = float(value["now"])
        if self._offset is None:  # the part for reading only, without its beginning
            self._offset = datetime.fromisoformat(value["time"]).timestamp() - now
        at = _plausible(now + self._offset)
        self._now = now
        self._touch()
        event, actions = value["event"] or {}, value["actions"] or []
        if self.told.machine == "agent":
            self.told.facts += self._agent.facts(at, event, actions)
        elif self.told.machine == "coordinator":
            message = event.get("message") if event.get("type") == "Received" else None
            if isinstance(message, dict):
                self._spoke[rank_of(message)] = self._now
            if event.get("type") == "Heard":
                self._spoke |= {int(rank): self._now for rank, _ in event["echoes"]}
            if value["term"] is not None or _steps_down(actions):
                said = CoordinatorEvent(
                    at, value["term"], self.told.node, self.told.nodes, self.told.rules, self._last_heard
                )
                self.told.facts += said.facts(message or {}, actions)

    def _last_heard(self, node: int) -> float:
        """A node that was silent for so long has been silent for node_lost."""
        at_most = self._now - self._node_lost
        found = [self._spoke[node]] if node in self._spoke else []
        for line in reversed(self._heard):
            try:
                _, now, _, echoes = json.loads(line)
                if any(node in parse_ranks(ranks) for ranks in echoes.values()):
                    found.append(float(now))
                    break
            except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
                self.told.strange += 1
        return min(max(found, default=at_most), at_most) + (self._offset or 0.0)


def _steps_down(actions: list[Any]) -> bool:
    return any(fact["type"] == "SteppedDown" for fact in announced(actions))


def _plausible(at: float) -> float:
    """Raises ValueError."""
    if not 0 <= at < LATEST:
        raise ValueError(f"{at} is no time")
    return at
