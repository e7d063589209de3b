"""Prints the commands' output: a reader that closes the pipe is no error, and a full disk is reported in one line."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from ft_supervisor.process import atomic


def put(text: str) -> bool:
    """Print the text as it is, on stdout. Return False when the reader is gone (`| head`). Raises OSError when it
    cannot be written, as on a full disk."""
    if sys.stdout is None:  # closed from the beginning (`>&-`)
        return False
    replace_letters()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        abandon(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise
        return False
    return True


def write_file(text: str, path: Path) -> None:
    """Write the whole text or nothing; into a pipe or a device, which stays in its place, directly. Raises OSError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    atomic.replace(path, text.encode())


def reader_leaves(seconds: float) -> bool:
    """Return whether the reader of stdout goes away within that time: while nothing new is printed, no write reports
    it."""
    if sys.stdout is None:
        return True
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return bool(poll.poll(seconds * 1000))


def replace_letters() -> None:
    """Print a question mark for a letter that stdout's encoding lacks from now on, instead of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def abandon(stream: TextIO | None) -> None:
    """Throw away what is left in the stream, which cannot be written. Otherwise the interpreter would try once more at
    its end, and exit with 120."""
    if stream is None:
        return
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:  # a test's stream has no descriptor
        os.dup2(nowhere.fileno(), stream.fileno())
