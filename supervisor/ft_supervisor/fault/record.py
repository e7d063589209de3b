"""`<run folder>/faults.jsonl`: the faults of a game day, so that a run's report can mark the failures they caused.

One JSON object a line, as messages.Act: `time` (UTC), `act` (kill, freeze, thaw, cut, heal), `target`, `node`, `pids`,
`rank`, `seconds`, `seed`, `note`. A freeze and its thaw are two lines.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ft_supervisor.core.protocol.codec import to_plain
from ft_supervisor.fault.messages import Act
from ft_supervisor.process import atomic
from ft_supervisor.process.background import Background, Hangs

NAME = "faults.jsonl"
BOUND = 2.0
"""Seconds that the file gets: the shared file system may hang."""


def append(run_folder: Path, act: Act) -> str:
    """Add the line. Returns "", or why it could not be added. The caller must leave by os._exit: a thread may hang."""
    line = json.dumps(to_plain(act), separators=(",", ":")).encode() + b"\n"
    writing = Background(f"{run_folder / NAME}", lambda: _append(run_folder / NAME, line))
    try:
        writing.result(BOUND)
    except (OSError, Hangs) as problem:
        return f"not recorded: {problem}"
    return ""


def _append(path: Path, line: bytes) -> None:
    fd = atomic.append(path, 0o644)
    try:
        if os.write(fd, line) != len(line):
            raise OSError(f"{path}: only a part of the line could be written")
    finally:
        os.close(fd)
