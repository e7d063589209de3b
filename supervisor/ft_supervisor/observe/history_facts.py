"""What a journal's lines say of a run's history, as facts. Pure: lines in, facts out.

It reads with less trust than observe.journal_lines, which replays: a line that is torn, or whose fields are not those
that are expected, is counted and passed over, as a report must work when everything else has failed. It looks only at
what it needs, so that a message with a new field is still understood.

Only the part of a coordinator's journal counts in which it was in charge, that is, has a term.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ft_supervisor.core.codec import from_plain, to_plain
from ft_supervisor.core.model import Failure, Outcome, Verdict
from ft_supervisor.core.ranks import unfold

VERSION = 1
"""Of the journal's format, observe.journal."""
_HEARD = 512
"""How many of the newest heartbeats are kept, to tell when a lost node was last heard."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that `node` (an infra_rank; None: the coordinator says it) did at `at`. `what` is one of

    in_charge, stepped_down                         of a coordinator; `node` is its own
    registered, lost (`at`: when it was last heard, `told`: when that was noticed),
    unhealthy, left, stopped, succeeded             of a node, told by a coordinator
    known (`group`)                                 a cycle that was there already
    excluded (`group`)                              nodes that a former coordinator's rule has excluded
    began, failed, first_failure, decided, proposed, verdict      of a cycle or the run
    connected, disconnected, standby, run, beats, exited, gone, ends    of a node, told by its agent

    `term` is that of the coordinator; an agent's facts have none. `data`: what else its line says.
    """

    at: float
    what: str
    term: int | None = None
    node: int | None = None
    cycle: str = ""
    group: tuple[int, ...] = ()
    reason: str = ""
    told: float | None = None
    failures: tuple[Failure, ...] = ()
    verdict: Verdict | None = None
    data: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str:
        """A field of its line; "" where there is none."""
        return dict(self.data).get(name, "")


@dataclass
class Told:
    """All that one journal says. `nodes` are the job's, by infra_rank. `torn`: lines that are no whole ones;
    `strange`: lines that make no sense; `full`: it reached its bound; `problem`: why no more could be read."""

    machine: str = ""
    run_id: str = ""
    node: int | None = None
    nodes: tuple[str, ...] = ()
    per_node: int | None = None
    active: int | None = None
    first: float | None = None
    last: float | None = None
    facts: list[Fact] = field(default_factory=list)
    torn: int = 0
    strange: int = 0
    full: bool = False
    problem: str = ""


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
        self._unbeaten: dict[str, set[int]] = {}
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
        except (KeyError, TypeError, AttributeError, IndexError, ValueError):
            self.told.strange += 1
        return True

    def _skips(self, line: bytes) -> bool:
        """Heartbeats of workers that have all been heard: most of a journal of an agent that has such workers."""
        return not any(self._unbeaten.values()) and b'"event":{"type":"Beat"' in line and b'"actions":[]' in line

    def end(self) -> Told:
        """All of it."""
        self._settle()
        return self.told

    def _settle(self) -> None:
        """Of the heartbeats since the last whole line only the last one's time is looked at: there are millions."""
        line, self._quiet = self._quiet, b""
        if line:
            try:
                self._now = float(json.loads(line)[1])
            except (ValueError, IndexError, TypeError, RecursionError):
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
        told.node, told.nodes = int(begin["node"]["infra_rank"]), tuple(map(str, job["nodes"]))
        told.per_node, told.active = int(job["per_node"]), int(job["active"])
        self._node_lost = float(job["timeouts"]["node_lost"])
        self._offset = datetime.fromisoformat(value["time"]).timestamp() - self._now
        told.first = min(told.first or float("inf"), self._now + self._offset)
        for kept in (self._heard, self._spoke, self._unbeaten):  # another process's, with another clock
            kept.clear()
        self._touch()
        return True

    def _event(self, value: dict[str, Any]) -> None:
        self._now = float(value["now"])
        if self._offset is None:  # the part for reading only, without its beginning
            self._offset = datetime.fromisoformat(value["time"]).timestamp() - self._now
        self._touch()
        event, actions = value["event"] or {}, value["actions"] or []
        if self.told.machine == "agent":
            self.told.facts += self._of_agent(event, actions)
        elif self.told.machine == "coordinator":
            message = event.get("message") if event.get("type") == "Received" else None
            if isinstance(message, dict):
                self._spoke[_rank(message)] = self._now
            if event.get("type") == "Heard":
                self._spoke |= {int(rank): self._now for rank, _ in event["echoes"]}
            if value["term"] is not None or any(_log(each, "stepped_down") for each in actions):
                self.told.facts += self._of_coordinator(message or {}, actions, value["term"])

    def _fact(self, what: str, **more: Any) -> Fact:
        assert self._offset is not None
        return Fact(more.pop("at", self._now + self._offset), what, **more)

    # -- a coordinator's

    def _of_coordinator(self, message: dict[str, Any], actions: list[Any], term: int | None) -> Iterator[Fact]:
        kind = message.get("type")
        if kind == "Register":
            memory = message["memory"]
            if memory["newest"]:
                newest = cycle_text(memory["newest"])
                yield self._fact("known", term=term, cycle=newest, group=unfold(memory["group"]))
            if memory.get("unhealthy"):
                yield self._fact("unhealthy", term=term, node=_rank(message), reason=str(memory["unhealthy"]))
        elif kind == "WorkersFailed":
            yield self._fact(
                "exited",
                term=term,
                node=_rank(message),
                cycle=cycle_text(message["cycle"]),
                failures=_failures(message),
            )
        elif kind in ("WorkersStopped", "WorkersSucceeded"):
            what = "stopped" if kind == "WorkersStopped" else "succeeded"
            yield self._fact(what, term=term, node=_rank(message), cycle=cycle_text(message["cycle"]))
        elif kind == "Goodbye":
            yield self._fact("left", term=term, node=_rank(message))
        mails = [each["message"] for each in actions if each["type"] == "Mail"]
        runs = [mail for mail in mails if mail["type"] == "Run"]
        if any(_log(each, "in_charge") for each in actions):  # what it has learnt of its predecessors' rules
            ledgers = {mail["ledger"].get("excluded") for mail in mails if "ledger" in mail} - {"", None}
            yield from (self._fact("excluded", term=term, group=unfold(ranks)) for ranks in ledgers)
        for action in actions:
            if action["type"] == "Log":
                fields = {str(name): "" if part is None else str(part) for name, part in action["fields"]}
                yield from self._of_log(action["event"], fields, term, runs[0] if runs else {})

    def _of_log(self, event: str, fields: dict[str, str], term: int | None, run: dict[str, Any]) -> Iterator[Fact]:
        reason, cycle, data = fields.get("reason", ""), fields.get("cycle", ""), tuple(fields.items())
        match event:
            case "in_charge" | "stepped_down":
                yield self._fact(event, term=int(fields["term"]), node=self.told.node, reason=reason, data=data)
            case "registered":
                yield self._fact("registered", term=term, node=int(fields["infra_rank"]))
            case "cycle_started":
                data = (*data, ("excluded", run.get("ledger", {}).get("excluded", "")))
                group = unfold(run["group"]) if run else ()
                yield self._fact("began", term=term, cycle=cycle, group=group, reason=reason, data=data)
            case "cycle_failed":
                yield self._fact("failed", term=term, cycle=cycle, reason=reason, data=data)
            case "node_lost":
                node, now = self.told.nodes.index(fields["node"]), self._fact("").at
                at = now - (self._now - self._last_heard(node))
                yield self._fact("lost", at=at, term=term, node=node, reason=reason, told=now)
            case "unhealthy":
                yield self._fact("unhealthy", term=term, node=self.told.nodes.index(fields["node"]), reason=reason)
            case "restart" | "replace_node" | "ignore" | "gives_up":
                data = (*data, ("response", event))
                yield self._fact("decided", term=term, cycle=cycle, reason=reason, data=data)
            case "first_failure":
                yield self._fact("first_failure", term=term, cycle=cycle, data=data)
            case "proposed" | "verdict":
                verdict = _verdict(fields)
                yield self._fact(event, term=term, reason=reason, verdict=verdict, data=data)

    def _last_heard(self, node: int) -> float:
        """By this machine's clock. A node that was silent for so long has been silent for node_lost."""
        at_most = self._now - self._node_lost
        found = [self._spoke[node]] if node in self._spoke else []
        for line in reversed(self._heard):
            try:
                _, now, _, echoes = json.loads(line)
                if any(node in unfold(ranks) for ranks in echoes.values()):
                    found.append(float(now))
                    break
            except (ValueError, AttributeError, TypeError):
                self.told.strange += 1
        return min(max(found, default=at_most), at_most)

    # -- an agent's

    def _of_agent(self, event: dict[str, Any], actions: list[Any]) -> Iterator[Fact]:
        node, kind = self.told.node, event.get("type")
        if kind == "WorkersExited" and not event["failures"]:
            yield self._fact("exited", node=node, cycle=cycle_text(event["cycle"]))
        elif kind == "WorkersGone":
            yield self._fact("gone", node=node, cycle=cycle_text(event["cycle"]))
        elif kind == "Beat":
            for cycle, ranks in self._unbeaten.items():
                ranks.discard(int(event["local_rank"]))
                if not ranks:
                    yield self._fact("beats", node=node, cycle=cycle)
            self._unbeaten = {cycle: ranks for cycle, ranks in self._unbeaten.items() if ranks}
        failed = any(_log(each, "worker_failed") for each in actions)  # and no rule says that it is to be ignored
        for action in actions:
            if failed and action["type"] == "Tell" and action["order"]["type"] == "Remember":
                memory = action["order"]["memory"]
                yield self._fact("exited", node=node, cycle=cycle_text(memory["newest"]), failures=_failures(memory))
            elif action["type"] == "Start":
                run = action["run"]
                cycle = cycle_text(run["cycle"])
                self._unbeaten = {cycle: set(range(self.told.per_node or 0))}
                yield self._fact("run", node=node, cycle=cycle, group=unfold(run["group"]))
            elif action["type"] == "Log" and action["event"] in ("connected", "disconnected", "standby"):
                yield self._fact(action["event"], node=node)
            elif action["type"] == "Leave":
                yield self._fact("ends", node=node)


def cycle_text(value: Any) -> str:
    """A dumped Cycle as TERM.N."""
    return f"{int(value['term'])}.{int(value['n'])}"


def _rank(message: dict[str, Any]) -> int:
    return int(message["node"]["infra_rank"] if "node" in message else message["infra_rank"])


def _log(action: Any, event: str) -> bool:
    return bool(action["type"] == "Log" and action["event"] == event)


def _failures(value: dict[str, Any]) -> tuple[Failure, ...]:
    """With what this version knows of them."""
    plain = to_plain(Failure(0, 0))
    known = [plain | {name: part for name, part in each.items() if name in plain} for each in value["failures"]]
    return tuple(from_plain(each, Failure) for each in known)


def _verdict(fields: dict[str, str]) -> Verdict | None:
    try:
        return Verdict(Outcome(fields["outcome"]), fields["reason"])
    except (KeyError, ValueError):
        return None
