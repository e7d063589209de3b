"""Makes docs/reference/log-events.md: every event of the log.

The events that the core announces are in process.log_lines.FORMS. Those of the shells are the calls of `log` in their
sources, which are read, not run. `event_words.WORDS` explains each event to people.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ft_docs.event_words import WORDS
from ft_docs.text import code, page, table
from ft_supervisor.process.log import LEVELS
from ft_supervisor.process.log_lines import FORMS

INTRO = """\
ft-supervisor's own log is on stderr, one event a line: time, level, `event=NAME`, the event's fields, and the process
that logs it (`writer=`, `proc=`). Fields without a value are left out. A line that stderr does not take at once is
written later, so go by the times. `dropped=5` in a line: five lines before it are lost, because the output was not read
for long, or the disk is full.

`logs.level` chooses which lines are written, by default `info` and graver ones. What each node does in the course of a
job is `debug`, so that the log of a job with a thousand nodes is no longer than that of one with three: a restart is
some ten lines of the coordinator's, and agents and daemons write what should not be, and how the job was ended in
Slurm. The nodes' journals have everything at any level, and `report` reads them.

`grep event=cycle_failed` over a job's output finds each failure, and `grep -E ' (warning|error) event='` the lines that
deserve a look. [At 3 a.m.](../3am.md) tells what to do about them."""

COMPUTED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("coordinator/metrics_server.py", "_tell"): ("metrics_client_failed", "metrics_failed", "metrics_not_served"),
}
"""Events whose names are not constants, by file and function."""

_LOGS = {"log", "_log", "make_line"}
_FOLDERS = {"agent": "agent", "coordinator": "coordinator", "daemon": "daemon", "launch": "launch"}
_READERS = {"cli", "history", "journal", "report", "status"}
"""Folders whose modules read the journal and its facts, and log nothing."""
_FORMS = "process/log_lines.py"


@dataclass(frozen=True)
class Event:
    """One event, from all calls of log with its name. `levels` and `fields` are in the order of the source."""

    name: str
    process: str
    levels: tuple[str, ...]
    fields: tuple[str, ...]


def render(root: Path) -> str:
    """Return the whole page, made from the sources of the checkout at `root`."""
    rows = [
        (
            code(event.name),
            WORDS.get(event.name, ""),
            f"{event.process}, {' or '.join(event.levels)}",
            " ".join(map(code, event.fields)),
        )
        for event in events(root)
    ]
    return page("Log events", INTRO, table(("event", "meaning", "said by, level", "fields"), rows))


def events(root: Path) -> list[Event]:
    """Return all events by name. Raises LookupError for a call whose event's name cannot be found."""
    found: dict[str, Event] = {}
    for form in FORMS.values():
        for name in form.events:
            event = Event(name, form.process, form.levels, tuple(field for field, _ in form.fields))
            found[name] = _both(found.get(name), event)
    for folder in (root / "supervisor" / "ft_supervisor", root / "slurm" / "ft_slurm"):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            if path.relative_to(folder).parts[0] in _READERS or name == _FORMS:
                continue
            for event in _in_file(path, name, _process(folder, path)):
                found[event.name] = _both(found.get(event.name), event)
    return [found[name] for name in sorted(found)]


def _both(old: Event | None, new: Event) -> Event:
    if old is None:
        return new
    process = old.process if new.process in old.process.split(", ") else f"{old.process}, {new.process}"
    levels, fields = dict.fromkeys((*old.levels, *new.levels)), dict.fromkeys((*old.fields, *new.fields))
    return Event(new.name, process, tuple(levels), tuple(fields))


def _process(folder: Path, path: Path) -> str:
    if folder.name == "ft_slurm":
        return "daemon"
    return _FOLDERS.get(path.relative_to(folder).parts[0], "any")


def _in_file(path: Path, name: str, process: str) -> Iterator[Event]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function, call in _calls(tree, "", _LOGS):
        first, told = call.args[0], _fields(call)
        if isinstance(first, ast.Constant):
            yield Event(str(first.value), process, _levels(call), told)
        elif (name, function) in COMPUTED:
            levels, names = _levels(call), COMPUTED[name, function]
            yield from (Event(each, process, levels, told) for each in names)
            passed = ((_named(outer.args[0]), outer) for _, outer in _calls(tree, "", {function}))
            yield from (Event(each, process, levels, _fields(outer)) for each, outer in passed if each in names)
        elif function not in _LOGS:  # these only pass their argument on
            raise LookupError(
                f"{path}:{call.lineno}: the event's name is no constant: add {(name, function)} to COMPUTED"
            )


def _fields(call: ast.Call) -> tuple[str, ...]:
    return tuple(word.arg for word in call.keywords if word.arg is not None and word.arg != "level")


def _named(node: ast.expr) -> str:
    """Return the event that a constant or a member of an enum names."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr.lower() if isinstance(node, ast.Attribute) else ""


def _calls(node: ast.AST, function: str, called: Collection[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of the functions `called`, with the function that contains it."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
    if isinstance(node, ast.Call) and node.args and _called(node.func) in called:
        yield function, node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, function, called)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _levels(call: ast.Call) -> tuple[str, ...]:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "level"] or call.args[1:2]
    if not given:
        return ("info",)
    constants = [node.value for node in ast.walk(given[0]) if isinstance(node, ast.Constant)]
    return tuple(str(each) for each in constants if each in LEVELS) or ("info", "warning")
