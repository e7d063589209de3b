"""Turns the lines of a journal into facts. Pure.

journal.lines, which serves replay, is stricter. Here a line that is torn or has unexpected fields is counted and
skipped, because a report must work when everything else has failed. Only the needed fields are read, so that a message
with a new field is still understood.

Of a coordinator's journal only the part counts in which the coordinator was in charge, that is, has a term.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ft_supervisor.core.protocol.bounds import Count, Duration, Rank
from ft_supervisor.core.protocol.codec import from_plain
from ft_supervisor.core.protocol.model import job_name
from ft_supervisor.history.checkpoints import MOST_BEATS
from ft_supervisor.history.fact import LATEST, FactKind, JournalFacts, RunFact, announced
from ft_supervisor.history.from_agent import AgentEventReader
from ft_supervisor.history.from_coordinator import CoordinatorEventReader

VERSION = 2
"""Version of the journal's format (journal.journal)."""
_NOW = re.compile(rb'"now":([0-9]{1,15}(?:\.[0-9]{1,15})?),')


def facts(lines: Iterable[bytes], *, beats: bool = False) -> JournalFacts:
    """Return the facts of one journal. `lines`: its lines with line ends, followed by its read-only part. `beats`:
    whether the times of heartbeats are wanted, too."""
    reader = _Reader(beats)
    for line in lines:
        if not reader.read(line):
            break
    return reader.end()


class _Reader:
    def __init__(self, beats: bool) -> None:
        self.journal = JournalFacts(beats=[array("d")])
        self._room = MOST_BEATS if beats else 0
        self._offset: float | None = None
        self._quiet = b""
        self._agent = AgentEventReader(None, 0)
        self._now = 0.0

    def read(self, line: bytes) -> bool:
        """Read one line; return whether to go on."""
        if not line.endswith(b"\n"):
            self.journal.torn += bool(line)
            return True  # the last line of a file whose writer is still writing it, or was killed
        try:
            if line.startswith(b"["):
                self._quiet = line
            elif not self._skips(line):
                return self._whole(json.loads(line))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            self.journal.torn += 1
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError):
            self.journal.strange += 1
        return True

    def _skips(self, line: bytes) -> bool:
        """Return whether the line is a heartbeat after each worker's first one: most of such a journal."""
        skips = not self._agent.waits_for_beats and b'"event":{"type":"Beat"' in line and b'"actions":[]' in line
        if skips and self._room > 0 and b'"local_rank":0,' in line and (now := _NOW.search(line, 0, 200)):
            self._room -= 1
            self.journal.beats[-1].append(_plausible(float(now[1]) + (self._offset or 0.0)))
        return skips

    def end(self) -> JournalFacts:
        """Return the result."""
        self._settle()
        return self.journal

    def _settle(self) -> None:
        """Take the time of the last heartbeat since the last whole line. The others are skipped: there are millions."""
        line, self._quiet = self._quiet, b""
        if line:
            try:
                now = float(json.loads(line)[1])
                _plausible(now + (self._offset or 0.0))
                self._now = now
            except (ValueError, IndexError, TypeError, RecursionError, OverflowError):
                self.journal.strange += 1
            self._touch()

    def _touch(self) -> None:
        if self._offset is not None:
            self.journal.last = max(self.journal.last or 0.0, self._now + self._offset)

    def _whole(self, value: Any) -> bool:
        self._settle()
        if not isinstance(value, dict):
            self.journal.torn += 1
        elif "journal" in value:
            return self._header(value)
        elif "rest" in value:
            self.journal.full |= "full" in value
            self.journal.beats.append(array("d"))
        else:
            self._event(value)
        return True

    def _header(self, value: dict[str, Any]) -> bool:
        journal = self.journal
        if value["journal"] != VERSION:
            journal.problem = f"it is of version {value['journal']!r:.20}; this ft-supervisor reads {VERSION}"
            return False
        begin, self._now = value["begin"], float(value["now"])
        job = begin["job"]
        journal.machine, journal.run_id = str(value["machine"]), str(job["run_id"])
        journal.node, journal.nodes = from_plain(begin["node"]["infra_rank"], Rank), tuple(map(str, job["nodes"]))
        journal.rules = tuple(str(rule["where"]) for rule in job["settings"]["rules"])
        journal.budgets = tuple(int(rule["budget"]["max"]) for rule in job["settings"]["rules"])
        journal.name = job_name(str(job.get("policy", "")))
        journal.per_node, journal.active = from_plain(job["per_node"], Rank), from_plain(job["active"], Rank)
        self._offset = _plausible(datetime.fromisoformat(value["time"]).timestamp()) - self._now
        waited = from_plain(begin.get("waited", 0.0), Duration)
        journal.first = min(journal.first or float("inf"), _plausible(self._now + self._offset - waited))
        self._agent = AgentEventReader(journal.node, journal.per_node)
        self._touch()
        return True

    def _event(self, value: dict[str, Any]) -> None:
        now = float(value["now"])
        if self._offset is None:  # the read-only part, whose beginning is missing
            self._offset = datetime.fromisoformat(value["time"]).timestamp() - now
        at = _plausible(now + self._offset)
        self._now = now
        self._touch()
        event, actions = value["event"] or {}, value["actions"] or []
        if self.journal.machine == "agent":
            self.journal.facts += self._agent.facts(at, event, actions)
        elif self.journal.machine == "coordinator":
            if event.get("type") == "CheckpointSeen" and value["term"] is not None:
                seen = from_plain(event["step"], Count), _plausible(float(event["written"]))
                self.journal.checkpoints.append(seen)
            message = event.get("message") if event.get("type") == "Received" else None
            if isinstance(message, dict) and message["type"] == "Register":
                self._gpus(message["node"])
            if event.get("type") == "StepRead" and value["term"] is not None and event.get("age") is not None:
                step, age = from_plain(event["step"], Count), from_plain(event["age"], Duration)
                saved = _plausible(at - age)
                self.journal.facts.append(RunFact(at, FactKind.STEP_READ, value["term"], step=step, saved=saved))
            if value["term"] is not None or _steps_down(actions):
                reader = CoordinatorEventReader(
                    at,
                    value["term"],
                    self.journal.node,
                    self.journal.nodes,
                    self.journal.rules,
                    self._offset,
                    self.journal.budgets,
                )
                self.journal.facts += reader.facts(message if isinstance(message, dict) else {}, actions)

    def _gpus(self, node: dict[str, Any]) -> None:
        if node.get("gpus") is not None:
            self.journal.gpus[from_plain(node["infra_rank"], Rank)] = from_plain(node["gpus"], Rank)


def _steps_down(actions: list[Any]) -> bool:
    return any(fact["type"] == "SteppedDown" for fact in announced(actions))


def _plausible(at: float) -> float:
    """Return `at`. Raises ValueError if it is no plausible time in seconds since the epoch."""
    if not 0 <= at < LATEST:
        raise ValueError(f"{at} is no time")
    return at
