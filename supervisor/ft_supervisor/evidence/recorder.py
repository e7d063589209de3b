"""Reads torch's record of a process's collectives (torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.x): as the
worker server's JSON, or from the file that torch writes where a script, or NCCL, is asked to.

States are not used: gloo leaves them at "scheduled". Which collective was entered last says enough.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ft_supervisor.core.protocol.evidence import Collective

FILE, PIPE = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
"""Variables with the beginnings of names that end with the rank: of the record's file, and of the pipe on which
ProcessGroupNCCL may be asked for it."""
DEFAULT = "default_pg"
"""What torch calls the group of all ranks."""
_UNNAMED = "undefined"
_MOST = 32 << 20
_LOOK = 0.05
_SAME_SHAPE = {"all_reduce", "allreduce", "broadcast", "reduce", "_allgather_base", "_reduce_scatter_base"}
"""Operations whose input has one shape on all ranks. Others' may differ for good reasons."""
_NAME, _SHAPE = 64, 80
"""Characters."""


class _NoObjects(pickle.Unpickler):
    """Reads numbers, texts and containers. A file that another program may have written must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a record of collectives")


def parse(data: bytes) -> Mapping[str, Any] | None:
    """Return the record in these bytes, JSON or pickled; None if it is none."""
    try:
        found = json.loads(data) if data[:1] == b"{" else _NoObjects(io.BytesIO(data)).load()
    except Exception:  # a pickle's reader raises anything at all
        return None
    return found if isinstance(found, dict) else None


def collectives(record: Mapping[str, Any], since: float = 0.0) -> tuple[Collective, ...]:
    """Return the last collective of each group that was entered at `since` (seconds since the epoch) or later, the
    most recent first. The group of all ranks is among them with the number 0 if nothing was entered in it."""
    entries = record.get("entries")
    known = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    newest: dict[str, tuple[int, Collective]] = {}
    whole = not known or min(_number(entry, "record_id") for entry in known) == 0
    for entry in known:
        if _number(entry, "time_created_ns") < since * 1e9:
            whole = True  # what came before is of another cycle
        elif not entry.get("is_p2p"):
            one, place = _collective(entry), _number(entry, "record_id")
            if place >= newest.get(one.group, (-1, one))[0]:
                newest[one.group] = place, one
    if whole and DEFAULT not in newest:
        newest[DEFAULT] = -1, Collective(DEFAULT, 0)
    return tuple(one for _, one in sorted(newest.values(), key=lambda item: -item[0]))


def offered(pid: int, rank: int, since: float, until: float) -> Mapping[str, Any] | None:
    """Return the record from this worker's file, where its environment names one: written at `since` or later, or when
    its pipe is asked. None if there is none until then (monotonic clock)."""
    environ = _environ(pid)
    if not (begin := environ.get(FILE, environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"))):
        return None
    path = Path(f"{begin}{rank}")
    asked = _ask_pipe(Path(f"{environ[PIPE]}{rank}.pipe")) if environ.get(PIPE) else 0.0
    while True:
        with suppress(OSError):
            if path.stat().st_mtime >= max(since, asked):
                with path.open("rb") as file:
                    if (record := parse(file.read(_MOST))) is not None:
                        return record
        if not asked or time.monotonic() + _LOOK >= until:
            return None
        time.sleep(_LOOK)


def _ask_pipe(path: Path) -> float:
    """Ask for the record. Return when, in seconds since the epoch; 0 if there is no one to ask."""
    with suppress(OSError):
        if stat.S_ISFIFO(path.lstat().st_mode):
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                now = time.time() - 0.01  # a file's time may be a clock tick behind
                os.write(fd, b"1\n")
            finally:
                os.close(fd)
            return now
    return 0.0


def _environ(pid: int) -> dict[str, str]:
    """Return the environment that this process was started with; empty if it cannot be read."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in (word.partition(b"=") for word in words)}


def _collective(entry: Mapping[str, Any]) -> Collective:
    group = entry.get("process_group")
    name, words = (str(group[0]), str(group[1])) if isinstance(group, Sequence) and len(group) > 1 else ("?", "")
    operation = str(entry.get("profiling_name", "")).rpartition(":")[2][:_NAME]
    shape = _shape(entry.get("input_sizes")) if operation in _SAME_SHAPE else ""
    sequence = _number(entry, "collective_seq_id")
    return Collective(_group(name, words), max(0, sequence), operation, shape)


def _group(name: str, words: str) -> str:
    """Return the name of a group that people know, and no other group has."""
    if words == DEFAULT:
        return DEFAULT
    name = name[:12]  # some are hashes
    return name if words in ("", _UNNAMED) else f"{words} ({name})"[:_NAME]


def _shape(sizes: object) -> str:
    if not isinstance(sizes, list):
        return ""
    return ", ".join("x".join(map(str, size)) or "scalar" for size in sizes if isinstance(size, list))[:_SHAPE]


def _number(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    return value if isinstance(value, int) else 0
