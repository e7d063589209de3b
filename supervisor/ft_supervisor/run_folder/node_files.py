"""The files in which jobs leave evidence about nodes, for later jobs (core.placement.node_memory).

Each run has one small JSON file, RUN_ID.json, below a folder of the user ($XDG_STATE_HOME/ft-supervisor/nodes/CLUSTER,
beside the index of runs), or in a group's folder that `nodes.memory` names:

    {"version": 1, "run_id": "1234.0.0", "blames": [{"node", "cause", "cycle", "time"}]}

Trust. In the user's own folder only files of this user count. In a group's folder files of others count as well, each
owner as one job. A file that others than its owner may write to is left out, and so is a folder to which any user may
write. Sizes and counts are bounded. Forgiven nodes are in the user's own folder, and concern this user alone.

Functions may hang for as long as the file system does.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ft_supervisor.core.placement.node_memory import FORGOTTEN, Blame, NodeRecord, records
from ft_supervisor.core.words import count
from ft_supervisor.process import atomic
from ft_supervisor.run_folder import run_index, runs, smallfile

VERSION = 1
OWN, NONE = "own", "none"
"""Words for `nodes.memory`, which else is a folder."""
MOST_FILES = 2000
"""Files that are read, the newest."""
MOST_BLAMES = 16
"""Entries of one job that count."""
_LONGEST = 16 * 1024
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CAUSE = re.compile(r"[a-z_]{1,30}")
_FORGIVEN = "forgiven.json"
_LATEST = 1e11
"""Seconds since the epoch. A greater number is no time, and may be too large for a float."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Entry:
    """One entry of a run's file. `time`: seconds since the epoch."""

    node: str
    cause: str
    cycle: str
    time: float


@dataclass(frozen=True)
class NodeFolder:
    """A folder with such files. `shared`: it is a group's."""

    path: Path
    shared: bool


@dataclass(frozen=True)
class Known:
    """All that is recorded about nodes, the worst first, and lines for people."""

    records: tuple[NodeRecord, ...]
    notes: tuple[str, ...]


def folder(environ: Mapping[str, str], cluster: str | None, setting: str) -> NodeFolder | None:
    """Return the folder that the setting `nodes.memory` leads to; None where nothing is to be kept."""
    if setting == NONE:
        return None
    if setting != OWN:
        return NodeFolder(Path(setting), shared=True)
    own = run_index.beside(environ, "nodes", cluster)
    return None if own is None else NodeFolder(own, shared=False)


def write(where: NodeFolder, run_id: str, entries: Iterable[Entry]) -> None:
    """Add the entries to the run's file; what is in it already stays. Raises OSError."""
    if not where.shared:
        where.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = where.path / f"{run_id}.json"
    known = _entries(_load(path, run_id)) if _is_mine(path) else []
    all_of_them = list(dict.fromkeys([*known, *entries]))[:MOST_BLAMES]
    blames = [{"node": each.node, "cause": each.cause, "cycle": each.cycle, "time": each.time} for each in all_of_them]
    text = json.dumps({"version": VERSION, "run_id": run_id, "blames": blames})
    atomic.replace(path, text.encode() + b"\n", 0o644 if where.shared else 0o600)
    _prune(where.path)


def read(where: NodeFolder) -> tuple[list[Blame], list[str]]:
    """Return the evidence of all jobs, and lines for people on files that do not count. Raises OSError."""
    try:
        found = where.path.stat()
    except FileNotFoundError:
        return [], []
    if found.st_mode & stat.S_IWOTH or (not where.shared and found.st_uid != os.geteuid()):
        return [], [f"{where.path} does not count: others may write to it"]
    blames, refused = [], 0
    for path in _newest(where.path):
        run = runs.parse(path.stem)
        try:
            with smallfile.opened(path) as file:
                state = os.fstat(file.fileno())
                data = file.read(_LONGEST + 1)
        except (OSError, smallfile.NotSmall):
            refused += 1
            continue
        if run is None or state.st_mode & _OTHERS or (not where.shared and state.st_uid != os.geteuid()):
            refused += 1
            continue
        entries = _entries(_parsed(data, path.stem))
        blames += [Blame(each.node, each.cause, each.time, run.job_id, state.st_uid) for each in entries]
    notes = [f"{count(refused, 'file')} in {where.path} not counted: unreadable, or others may write to it"]
    return blames, notes if refused else []


def known(environ: Mapping[str, str], cluster: str | None, setting: str, now: float) -> Known:
    """Return all that is recorded for the setting `nodes.memory`, without forgiven nodes' old evidence. Raises
    OSError."""
    where = folder(environ, cluster, setting)
    if where is None:
        return Known((), ())
    blames, notes = read(where)
    return Known(records(blames, now, os.geteuid(), forgiven(environ, cluster)), tuple(notes))


def forgiven(environ: Mapping[str, str], cluster: str | None) -> dict[str, float]:
    """Return the nodes that this user has forgiven, with the time. Raises OSError."""
    own = run_index.beside(environ, "nodes", cluster)
    if own is None:
        return {}
    try:
        value = json.loads(smallfile.read(own / _FORGIVEN, 64 * _LONGEST))
    except (FileNotFoundError, smallfile.NotSmall, ValueError, RecursionError):
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: float(at) for name, at in pairs if type(at) in (int, float) and 0 <= at <= _LATEST}


def forgive(environ: Mapping[str, str], cluster: str | None, names: Sequence[str], now: float) -> None:
    """Forgive these nodes up to `now`. Raises OSError; does nothing without a home folder."""
    own = run_index.beside(environ, "nodes", cluster)
    if own is None:
        return
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = {name: at for name, at in forgiven(environ, cluster).items() if now - at < FORGOTTEN}
    text = json.dumps(kept | dict.fromkeys(names, now))
    atomic.replace(own / _FORGIVEN, text.encode() + b"\n", 0o600)


def _newest(path: Path) -> list[Path]:
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith(".json") and entry.name != _FORGIVEN:
                with suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [Path(each) for _, each in sorted(found, reverse=True)[:MOST_FILES]]


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _load(path: Path, run_id: str) -> dict[str, Any]:
    try:
        return _parsed(smallfile.read(path, _LONGEST), run_id)
    except (OSError, smallfile.NotSmall):
        return {}


def _parsed(data: bytes, run_id: str) -> dict[str, Any]:
    """Return the object in a file of this run; {} for anything else, and for a later version."""
    try:
        value = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or value.get("run_id") != run_id or value.get("version") != VERSION:
        return {}
    return value


def _entries(value: Mapping[str, Any]) -> list[Entry]:
    blames = value.get("blames")
    entries = map(_entry, blames[:MOST_BLAMES] if isinstance(blames, list) else ())
    return [entry for entry in entries if entry is not None]


def _entry(value: object) -> Entry | None:
    match value:
        case {"node": str(node), "cause": str(cause), "cycle": str(cycle), "time": int() | float() as at}:
            if _NODE.fullmatch(node) and _CAUSE.fullmatch(cause) and 0 <= at <= _LATEST:
                return Entry(node, cause, cycle[:50], float(at))
    return None


def _prune(path: Path) -> None:
    """Remove this user's files that do not count any more."""
    for each in path.glob("*.json"):
        with suppress(OSError):
            old = time.time() - each.lstat().st_mtime > FORGOTTEN
            if old and each.name != _FORGIVEN and _is_mine(each) and runs.parse(each.stem) is not None:
                each.unlink()
