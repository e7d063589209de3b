"""What the commands print: a reader that has had enough is no error, and a disk that is full is one line."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO


def put(text: str) -> bool:
    """Prints the text as it is, on stdout. False when nobody reads it any more (`| head`). Raises OSError when it
    cannot be written, as on a disk that is full."""
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


def replace_letters() -> None:
    """From now on a letter that stdout's encoding lacks is a question mark, and no error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def abandon(stream: TextIO | None) -> None:
    """Throw away what is left in the stream, which cannot be written: else the interpreter would try once more at its
    end, and leave with 120."""
    if stream is None:
        return
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:  # those of tests have no descriptor
        os.dup2(nowhere.fileno(), stream.fileno())
