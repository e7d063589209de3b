"""Writes and reads the journal's lines. journal.journal describes their format."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from ft_supervisor.core.launch.interface import LaunchBegin
from ft_supervisor.core.protocol.actions import Announce, ClaimClose, CopyVerdict, Leave, Pulse, Tell, WriteVerdict
from ft_supervisor.core.protocol.codec import CodecError, from_plain
from ft_supervisor.core.protocol.events import Heard, Looked, Ordered, Tick
from ft_supervisor.core.protocol.model import PROTOCOL
from ft_supervisor.core.protocol.orders import Alive, Begin
from ft_supervisor.core.protocol.ranks import format_ranks, parse_ranks
from ft_supervisor.journal.tagged import EVENTS, brief, dump, load, text

VERSION = 2
"""Version 1 had log lines instead of facts, and other names for the stages of the verdict."""


@dataclass(frozen=True)
class Header:
    """The first line of a process: a machine of the kind `machine` was made from `begin` at `now` (its clock,
    seconds)."""

    journal: int
    protocol: int
    machine: str
    name: str
    time: str
    now: float
    begin: LaunchBegin | Begin


@dataclass(frozen=True)
class JournalEntry:
    """An event (None: the start) and its actions, as `dump` returns them.

    A quiet event has only the actions' checksum, and neither time, term, cycle nor reason: those of the former entry
    still hold.
    """

    now: float
    event: object
    actions: list[Any] | None
    checksum: int
    time: str = ""
    term: int | None = None
    cycle: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Notice:
    """A line for people: the bound is reached (`full`), or the read-only part begins here."""

    full: bool
    text: str


class BadJournal(Exception):
    """The file is no journal, is damaged, or has another version. The message names the place."""


# -- writing


def header_line(name: str, begin: Begin | LaunchBegin, now: float) -> str:
    """Return the first line of a process."""
    header = Header(VERSION, PROTOCOL, name.partition("-")[0], name, wall(), now, begin)
    return text(dump(header))


def event_line(now: float, event: object, actions: Sequence[object], term: int | None, cycle: str | None) -> str:
    """Return the line of an event that is not quiet."""
    line = {
        "time": wall(),
        "now": now,
        "term": term,
        "cycle": cycle,
        "event": dump(event),
        "actions": dump(actions),
        "reason": reason_of(actions),
    }
    return text(line)


def is_quiet(event: object, actions: Sequence[object]) -> bool:
    """Return whether the event comes with every heartbeat, and only the usual heartbeat follows from it."""
    if not all(isinstance(one, Pulse) or (isinstance(one, Tell) and isinstance(one.order, Alive)) for one in actions):
        return False
    if isinstance(event, Heard):
        return _fold_echoes(event) is not None
    return isinstance(event, Tick | Looked) or (isinstance(event, Ordered) and isinstance(event.order, Alive))


def quiet_line(now: float, event: object, actions: Sequence[object]) -> str:
    """Return the line of an event for which is_quiet returns True."""
    name, *parts = ["Heard", _fold_echoes(event)] if isinstance(event, Heard) else brief(event)
    return text([name, now, checksum(dump(actions)), *parts])


def checksum(actions: Sequence[object]) -> int:
    """Return the checksum of actions as `dump` returns them; 0 for no actions."""
    return zlib.crc32(text(actions).encode()) if actions else 0


def reason_of(actions: Sequence[object]) -> str | None:
    """Return the reason of the first action that has one."""
    for action in actions:
        match action:
            case Leave(reason=reason):
                return reason
            case Announce(fact):
                if isinstance(why := getattr(fact, "reason", None), str):
                    return why
            case WriteVerdict(verdict=verdict) | ClaimClose(verdict=verdict) | CopyVerdict(verdict=verdict):
                return verdict.reason
    return None


def wall() -> str:
    """Return the time of day in UTC, for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _fold_echoes(heard: Heard) -> dict[str, str] | None:
    """Return the ranks that have read each round, as ranges; None if the order of the event would be lost.

    Nearly all of ten thousand nodes have read the same round: this takes a few bytes instead of 100 KB twice a second.
    """
    if any(one >= other for (one, _), (other, _) in pairwise(heard.echoes)):
        return None
    rounds: dict[int, list[int]] = {}
    for rank, round_ in heard.echoes:
        rounds.setdefault(round_, []).append(rank)
    return {str(round_): format_ranks(ranks) for round_, ranks in rounds.items()}


# -- reading


def read(path: Path) -> Iterator[tuple[int, Header | JournalEntry | Notice]]:
    """Yield the whole lines of the file with their numbers. Torn lines, which a killed process leaves, are skipped.

    Raises BadJournal, and OSError.
    """
    torn: BadJournal | None = None
    with path.open("rb") as file:
        for number, data in enumerate(file, 1):
            if not data.endswith(b"\n"):
                return  # torn, or not completely written yet
            try:
                value = parse(data)
            except CodecError as error:
                torn = torn or BadJournal(f"{path}:{number}: {error}")
                continue
            if torn and not isinstance(value, Header):
                raise torn  # a kill does not do that: after a torn line there is a new process's header, or nothing
            torn = None
            yield number, value
    if torn:
        raise torn


def parse(data: bytes) -> Header | JournalEntry | Notice:
    """Parse one line. Raises CodecError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not JSON: {error}") from None
    if isinstance(value, list):
        return _quiet(value)
    if not isinstance(value, dict):
        raise CodecError("neither an object nor a list")
    if "journal" in value:
        return _header(value)
    if "rest" in value:
        return Notice("full" in value, f"{value.get('full', value['rest'])}")
    if value.keys() != {"time", "now", "term", "cycle", "event", "actions", "reason"}:
        raise CodecError("not the fields of an event")
    if value["event"] is not None:
        value["event"] = load(value["event"], EVENTS)
    if not isinstance(value["actions"], list):
        raise CodecError("actions: a list expected")
    now = from_plain(value.pop("now"), float)
    return JournalEntry(now=now, checksum=checksum(value["actions"]), **value)


def _header(value: dict[str, Any]) -> Header:
    found = value.get("journal"), value.get("protocol")
    if found != (VERSION, PROTOCOL):
        is_of = f"a journal of (version, protocol) {found!r:.60}"
        raise CodecError(f"{is_of}: this ft-supervisor replays {(VERSION, PROTOCOL)} only")
    if isinstance(value.get("begin"), dict):
        value["begin"].pop("type", None)
    header: Header = from_plain(value, Header)
    return header


def _quiet(value: list[Any]) -> JournalEntry:
    if len(value) < 3:
        raise CodecError("too short for a quiet event")
    name, now, crc, *parts = value
    if name == "Heard":
        parts = [_unfold_echoes(*parts)]
    event = load([name, *parts], EVENTS)
    return JournalEntry(now=from_plain(now, float), event=event, actions=None, checksum=from_plain(crc, int))


def _unfold_echoes(folded: object = None) -> list[list[int]]:
    if not isinstance(folded, dict):
        raise CodecError("Heard: an object of ranks by round expected")
    try:
        return sorted([rank, int(round_)] for round_, ranks in folded.items() for rank in parse_ranks(ranks))
    except (ValueError, AttributeError) as error:
        raise CodecError(f"Heard: {error}") from None
