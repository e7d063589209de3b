"""Feeds a journal back through the core: the same events at the same times must give the same actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.launch.interface import LaunchBegin
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.journal.lines import BadJournal, Header, JournalEntry, Notice, checksum, read
from ft_supervisor.journal.tagged import dump, text

Machine = AgentMachine | CoordinatorMachine | DaemonMachine | LaunchMachine


@dataclass(frozen=True)
class Difference:
    """The first line whose actions differ from the core's. `expected` is None if the line has only a checksum."""

    line: int
    event: object
    expected: list[Any] | None
    got: list[Any] | str


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. `events`: number of compared events. `note`: the file's own remark on its end, "" for
    none."""

    events: int
    difference: Difference | None
    note: str = ""


def replay(path: Path) -> Replayed:
    """Replay the journal up to the first difference. Raises BadJournal, and OSError."""
    events, note = 0, ""
    machine: Machine | None = None
    for line, value in read(path):
        match value:
            case Header():
                machine = _make(value, f"{path}:{line}")
            case Notice(full, note_text):
                if not full:
                    return Replayed(events, None, note_text)
                machine, note = None, note_text
            case JournalEntry():
                if machine is None:
                    raise BadJournal(f"{path}:{line}: an event without a header")
                events += 1
                got = _handle(machine, value)
                if not _same(value, got):
                    return Replayed(events, Difference(line, value.event, value.actions, got), note)
    return Replayed(events, None, note)


def _make(header: Header, where: str) -> Machine:
    begin, now = header.begin, header.now
    if isinstance(begin, LaunchBegin):
        return LaunchMachine(begin)
    match header.machine:
        case "agent":
            return AgentMachine(begin.job, begin.node, begin.incarnation, begin.memory, now, begin.epoch, begin.waited)
        case "coordinator":
            return CoordinatorMachine(
                begin.job, begin.node, begin.incarnation, begin.memory, now, begin.epoch, begin.waited
            )
        case "daemon":
            return DaemonMachine(begin.job, begin.node, now, begin.epoch)
    raise BadJournal(f"{where}: no machine is called {header.machine!r:.60}")


def _handle(machine: Any, entry: JournalEntry) -> list[Any] | str:
    """Return the actions as `dump` returns them, or the exception that the machine raised, as text."""
    try:
        actions = machine.start(entry.now) if entry.event is None else machine.handle(entry.event, entry.now)
    except Exception as error:  # any exception is a difference: the recorded run had none
        return f"{type(error).__name__}: {error}"
    return [dump(action) for action in actions]


def _same(entry: JournalEntry, got: list[Any] | str) -> bool:
    if isinstance(got, str):
        return False
    if entry.actions is None:
        return checksum(got) == entry.checksum
    return got == entry.actions or text(got) == text(entry.actions)  # a NaN is not equal to itself


# -- for people


def story(path: Path) -> Iterator[str]:
    """Yield the journal as lines for people. Raises BadJournal, and OSError."""
    quiet = 0
    for _, value in read(path):
        if isinstance(value, JournalEntry) and value.actions is None:
            quiet += 1
            continue
        if quiet:
            yield f"      ... quiet events: {quiet}"
            quiet = 0
        match value:
            case Header():
                yield from _show_header(value)
            case Notice(_, note_text):
                yield f"=== {note_text}"
            case JournalEntry():
                yield from _show_entry(value)
    if quiet:
        yield f"      ... quiet events: {quiet}"


def _show_header(header: Header) -> Iterator[str]:
    begin = header.begin
    if isinstance(begin, LaunchBegin):
        yield f"=== {header.name} of job {begin.job_id}, on {begin.host or 'a login node'}"
        yield f"    {header.time}  made at {header.now}: {show(dump(begin))}"
    else:
        yield f"=== {header.name} of {begin.node.name} (node {begin.node.infra_rank}), run {begin.job.run_id}"
        yield f"    {header.time}  made at {header.now}: Memory{show(dump(begin.memory))}"


def _show_entry(entry: JournalEntry) -> Iterator[str]:
    where = f"term {'-' if entry.term is None else entry.term} cycle {entry.cycle or '-'}"
    event = "start" if entry.event is None else show(dump(entry.event))
    yield f"{entry.time}  {entry.now:.6f}  {where}  {event}"
    yield from (f"      -> {show(action)}" for action in entry.actions or [])
    if entry.reason is not None:
        yield f"      because: {entry.reason}"


def show(value: Any) -> str:
    """Return a dumped value in a short form, without empty fields."""
    match value:
        case {"term": term, "n": n, **rest} if not rest:
            return f"{term}.{n}"
        case {"type": "Log", "event": event, "fields": fields}:
            return " ".join([f"log {event}", *(f"{name}={show(part)}" for name, part in fields)])
        case dict():
            kind = value.get("type", "")
            parts = [
                f"{name}={show(part)}" for name, part in value.items() if name != "type" and part not in (None, "", [])
            ]
            return f"{kind}({', '.join(parts)})"
        case list():
            return f"[{', '.join(map(show, value))}]"
    return text(value) if isinstance(value, str) else str(value)
