"""Writes this project's own log to stderr: one event per line, as key=value or as JSON.

The last lines of a failed worker (the field `last_lines`) are a field of JSON like any other. In text they follow their
event, one per line with a bar before each, in the same write.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite

from ft_supervisor.core.words import one_line, printable
from ft_supervisor.process.bounded_writer import BoundedWriter, write_some
from ft_supervisor.process.log_lines import Line

LEAST_LEVEL = "FT_SUPERVISOR_LOG_LEVEL"
"""The variable that overrides the level of `setup`: `local --quiet` sets it to "warning" for its daemons."""
LEVELS = ("debug", "info", "warning", "error")
LINES = "last_lines"
"""The only field that may have several lines."""
BAR = "    | "
"""The beginning of each line of that field."""
LAST = 0.5
"""Seconds for stderr to take the last lines of a process that leaves."""
_STDERR = 2
_MAX_VALUE = 500
"""Characters of one value at most."""
_SHORTER = 120, 30
"""Characters of each value at most, if the line would be too long otherwise."""
_MAX_LINE = 4096
"""Bytes: what a pipe takes whole or not at all (pipe(7), PIPE_BUF), so that processes do not write into one another."""
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")

_who: list[tuple[str, str]] = []
_json = False
_least = LEVELS.index("info")
_late: BoundedWriter[None] | None = None
"""Lines that stderr did not take at once, and the thread that writes them in their order; None before the first."""
_dropped = 0


def setup(process: str, node: str, form: str = "text", level: str = "info") -> None:
    """Set the process (daemon, agent, coordinator) and its node's name for all later lines. `form`, `level`: see
    settings.Logs."""
    global _json, _least
    _who[:] = [("writer", node), ("proc", process)]
    _json = form == "json"
    asked = os.environ.get(LEAST_LEVEL, level)
    _least = LEVELS.index(asked if asked in LEVELS else level)


def log(event: str, level: str = "info", **fields: object) -> None:
    """Write one line; fields that are None are left out. Never waits: a line that stderr does not take yet is kept
    until it does. Beyond some MiB lines are dropped, and the next one that is kept has their number."""
    emit(Line(event, tuple(fields.items()), level))


def say(text: str, level: str = "info") -> None:
    """Write a line for people: as it is where the log is text, else as an event. Waits for stderr. The line is lost
    where stderr cannot be written, for example on a full disk."""
    if _json:
        log("note", level, note=text)
        return
    with suppress(OSError):  # a process that waits for a job's verdict must not end for that
        os.write(_STDERR, f"{text}\n".encode(errors="backslashreplace"))


def file_failed(what: str, error: Exception) -> None:
    """Log that a file could not be written or read. For Background's `failed`."""
    log("file_failed", "warning", what=what, error=f"{type(error).__name__}: {error}")


class FailureLog:
    """Logs the failures of work that is done again and again: one line for the same error in a row."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._noted = ""

    def note(self, error: Exception | None) -> None:
        """Log the error of the last attempt, unless the attempt before had the same one; None: it succeeded."""
        text = str(error or "")
        if error is not None and text != self._noted:
            file_failed(self._what, error)
        self._noted = text


def journal_failed(reason: str) -> None:
    """Log that this process records nothing any more. For Journal's `failed`."""
    log("journal_failed", "warning", reason=reason)


def current_traceback(beginning: str = "") -> str:
    """Return `beginning` and the traceback of the exception being handled. The traceback is cut at its beginning,
    because the error stands at its end."""
    text, room = " ".join(traceback.format_exc().split()), _MAX_VALUE - len(beginning)
    return beginning + (text if len(text) <= room else f"…{text[1 - room :]}")


def emit(line: Line) -> None:
    """Write `line` as `log` does."""
    global _dropped
    if LEVELS.index(line.level) < _least:
        return
    now = datetime.now(UTC)
    stamp = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z"
    dropped = (("dropped", _dropped),) if _dropped else ()
    fields = [(key, value) for key, value in (*line.fields, *dropped) if value is not None]
    data = (_as_json if _json else _as_text)(stamp, line, fields)
    try:
        # A reader that has stopped (a hung srun) must not stop this process, and one that lags must not cost lines.
        taken = _written(data) or _kept(data)
    except OSError:  # closed, or its disk is full
        taken = False
    _dropped = 0 if taken else _dropped + 1  # there is no other place to report it


def flush(bound: float = LAST) -> None:
    """Wait until stderr has taken all lines, for `bound` seconds at most. Call it before leaving by os._exit."""
    if _late is not None:
        _late.flush(time.monotonic() + bound)


def _written(data: bytes) -> bool:
    """Write the line at once, unless another line waits. Return whether it was written. Raises OSError."""
    if _late is not None and not _late.flush(0):
        return False
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    try:
        return bool(poll.poll(0)) and os.write(_STDERR, data) > 0
    except BlockingIOError:
        return False


def _kept(data: bytes) -> bool:
    """Keep the line for later, if there is room. Return whether it is kept."""
    global _late
    try:
        _late = _late or BoundedWriter("log", _write_late, 0.0)
    except RuntimeError:  # no thread to be had
        return False
    return _late.put(None, data)


def _write_late(_: None, data: bytes) -> int:
    global _dropped
    at = 0
    try:
        while at < len(data):
            at += write_some(_STDERR, data[at:])
    except OSError:
        _dropped += 1
    return len(data) - at


def _as_text(time: str, line: Line, fields: Sequence[tuple[str, object]]) -> bytes:
    head = f"{time} {line.level} event={_quote(line.event)}"
    taken = {"event", *dict(_who)}
    plain = [(f"{key}_" if key in taken else key, value) for key, value in fields if key != LINES] + _who
    text = " ".join([head, *(f"{key}={_quote(value)}" for key, value in plain)])
    data = text.encode(errors="backslashreplace")[: _MAX_LINE - 1] + b"\n"
    last = [f"{BAR}{printable(each)}\n" for key, value in fields if key == LINES for each in str(value).split("\n")]
    return data + _end([each.encode(errors="backslashreplace") for each in last], _MAX_LINE - len(data))


def _end(lines: list[bytes], room: int) -> bytes:
    """Return as many of the last lines as fit into `room` bytes."""
    kept: list[bytes] = []
    for line in reversed(lines):
        room -= len(line)
        if room < 0:
            break
        kept.insert(0, line)
    return b"".join(kept)


def _as_json(time: str, line: Line, fields: Sequence[tuple[str, object]]) -> bytes:
    """Return {"time", "level", "event", "writer", "proc", "fields"} as one line. A field may have any name."""
    head: dict[str, object] = {"time": time, "level": line.level, "event": line.event, **dict(_who)}
    for limit in (_MAX_VALUE, *_SHORTER):
        head["fields"] = {
            key: _plain(value, limit) if key != LINES else str(value)[-4 * limit :] for key, value in fields
        }
        # ASCII alone: then no character but our newline ends a line
        if len(data := json.dumps(head, separators=(",", ":")).encode()) < _MAX_LINE:
            return data + b"\n"
    head["fields"] = {}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def _plain(value: object, limit: int) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _quote(value: object) -> str:
    text = one_line(str(value), _MAX_VALUE)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
