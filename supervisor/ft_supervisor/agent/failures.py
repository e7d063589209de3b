"""Reads what a failed worker's exit code and torch's error file tell about its failure."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""A shell's exit codes for a command that can't be started."""
_IS_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of stat(2) for a file that is missing, or out of reach, on every node alike."""
_LIMIT = 1 << 20
"""Bytes read of an error file, at most."""
_NAME = 500
"""Characters kept of a class's full name."""
_BEGINNING = re.compile(rb'\A\{"message": (?:\{"message": )?"((?:[^"\\]|\\.){1,1000})')
"""Matches the beginning of the message in the first bytes of a file that is longer than _LIMIT."""


@dataclass(frozen=True)
class ErrorFile:
    """The message of an error file, and the exception's class, with its module if that is known; "" if it names
    none."""

    message: str
    exception: str = ""


def look_up(command: str) -> tuple[int, str] | None:
    """Return exit code and message for a command that can't be run; None for one that can. Raises OSError where this
    node cannot find out, for example because a file system is broken here."""
    if shutil.which(command) is not None:
        return None
    if shutil.which(command, mode=os.F_OK) is not None:
        return NOT_EXECUTABLE, f"{command}: not executable"
    for folder in [""] if "/" in command else os.get_exec_path():
        try:
            Path(folder, command).stat()
        except OSError as error:
            if error.errno not in _IS_NOT_THERE:
                raise
    return NOT_FOUND, f"{command}: command not found"


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between the first and the last has no name
        return f"signal {number}"


def was_killed(code: int) -> bool:
    """Return whether a worker with this exit code (Popen's) got SIGKILL, or is a shell whose command did."""
    return code in (-signal.SIGKILL, 128 + signal.SIGKILL)


def read_error(path: Path) -> ErrorFile | None:
    """Read the file that torch's @record left (torch.distributed.elastic.multiprocessing.errors.error_handler: message
    "ClassName: text", and py_callstack, a traceback that ends with the class's full name). Return None when there is no
    file; when it can't be read, the message of the result is the reason."""
    try:
        with path.open("rb") as file:
            data = file.read(_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ErrorFile(f"unreadable error file: {error}")
    try:
        return _told(json.loads(data))
    except (ValueError, RecursionError) as error:
        if len(data) > _LIMIT and (beginning := _BEGINNING.match(data)):
            message = beginning[1].decode(errors="replace")
            return ErrorFile(message, _exception(message, ""))
        return ErrorFile(f"unreadable error file: {error}")


def _told(told: Any) -> ErrorFile:
    message, stack = told.get("message", "") if isinstance(told, dict) else told, ""
    if isinstance(message, dict):
        extra = message.get("extraInfo")
        stack = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else ""
        message = message.get("message", "")
    return ErrorFile(str(message), _exception(str(message), stack))


def _exception(message: str, stack: str) -> str:
    name, colon, _ = message.partition(":")
    if not colon or not name.isidentifier():
        return ""
    # the last such line: a cause or context comes before it, and a message may have several lines
    full = re.findall(rf"^((?:\w+\.)*{name})(?=:|$)", stack, re.MULTILINE)
    return str(full[-1] if full else name)[-_NAME:]
