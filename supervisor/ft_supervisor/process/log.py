"""Log lines: an event and its fields as key=value, on stderr."""

from __future__ import annotations

import json
import os
import re
import select
import traceback
from datetime import UTC, datetime

from ft_supervisor.core.actions import Log
from ft_supervisor.core.model import one_line

_STDERR = 2
_MAX_VALUE = 500
"""Characters of one value."""
_MAX_LINE = 4096
"""Bytes: what a pipe takes whole or not at all (pipe(7), PIPE_BUF), so that processes do not write into one another."""
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+")

_who: list[tuple[str, object]] = []
_dropped = 0


def setup(process: str, node: str) -> None:
    """What every later line says of its writer: the process (daemon, agent, coordinator) and its node's name."""
    _who[:] = [("node", node), ("proc", process)]


def log(event: str, level: str = "info", **fields: object) -> None:
    """Write one line; fields that are None are left out. Never waits: a line that stderr does not take is dropped, and
    the next one that it takes says how many were."""
    emit(Log(event, tuple(fields.items()), level))


def file_failed(what: str, error: Exception) -> None:
    """A file could not be written or read; for Background's `failed`."""
    log("file_failed", "warning", what=what, error=f"{type(error).__name__}: {error}")


def journal_failed(reason: str) -> None:
    """This process records nothing any more; for Journal's `failed`."""
    log("journal_failed", "warning", reason=reason)


def current_traceback() -> str:
    """That of the exception being handled, cut at its beginning: what is wrong stands at its end."""
    text = " ".join(traceback.format_exc().split())
    return text if len(text) <= _MAX_VALUE else f"…{text[1 - _MAX_VALUE :]}"


def emit(action: Log) -> None:
    """Write one of the machines' lines. See log."""
    global _dropped
    now = datetime.now(UTC)
    head = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z {action.level} event={_quote(action.event)}"
    dropped = [("dropped", _dropped)] if _dropped else []
    fields = [*action.fields, *dropped, *_who]
    line = " ".join([head, *(f"{key}={_quote(value)}" for key, value in fields if value is not None)])
    data = line.encode(errors="backslashreplace")[: _MAX_LINE - 1] + b"\n"
    try:
        poll = select.poll()
        poll.register(_STDERR, select.POLLOUT)
        # a reader that stopped reading (a hung srun) must not stop us
        if not poll.poll(0):
            raise BlockingIOError
        os.write(_STDERR, data)
        _dropped = 0
    except OSError:
        _dropped += 1  # there is no other place to tell it


def _quote(value: object) -> str:
    text = one_line(str(value), _MAX_VALUE)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
