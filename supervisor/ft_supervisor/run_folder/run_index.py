"""The user's index of runs: the places of each job's runs, for commands that are typed in another folder.

Each job has one small JSON file: $XDG_STATE_HOME/ft-supervisor/runs/CLUSTER/JOB, below ~/.local/state without that
variable (the XDG Base Directory Specification). A task of a job array has a second one under the name that Slurm
prints, 123_4. The index may be wrong: a run that is not in the place that it names is searched elsewhere. Functions may
hang as long as the file system does.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ft_supervisor.process import atomic
from ft_supervisor.run_folder import smallfile

LOCAL = "local"
"""The cluster's name for runs of `ft-supervisor local`."""
UNKNOWN = "slurm"
"""The cluster's name if Slurm has not given it."""
KEPT = 2000
"""Jobs of one cluster that the index keeps; the lowest ids are removed beyond that."""
_LONGEST = 64 << 10
_NAME = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,10})?")


@dataclass(frozen=True)
class IndexEntry:
    """One job. `run_dir`: the absolute path of the folder that contains its runs."""

    job_id: int
    run_dir: Path


def note(environ: Mapping[str, str], cluster: str | None, entry: IndexEntry, task: str = "") -> None:
    """Write a job into the index, and replace an older entry. `task`: an array task's name, 123_4. Raises OSError.

    Does nothing without a home folder.
    """
    top = _top(environ)
    if top is None:
        return
    folder = top / _folder_name(cluster)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps({"job_id": entry.job_id, "run_dir": str(entry.run_dir)}).encode() + b"\n"
    for name in filter(None, (str(entry.job_id), task)):
        atomic.replace(folder / name, text, 0o600)
    _prune(folder)


def task_name(environ: Mapping[str, str]) -> str:
    """Return the name of the array task in whose environment we run; "" outside of arrays."""
    name = f"{environ.get('SLURM_ARRAY_JOB_ID', '')}_{environ.get('SLURM_ARRAY_TASK_ID', '')}"
    return name if _NAME.fullmatch(name) else ""


def look(environ: Mapping[str, str], name: str) -> list[IndexEntry]:
    """Return the entries of the job or array task of this name, one for each cluster, newest first. Raises OSError."""
    top = _top(environ)
    if top is None or not _NAME.fullmatch(name):
        return []
    found = []
    for path in top.glob(f"*/{name}"):
        if (entry := _read(path)) is not None:
            with suppress(FileNotFoundError):
                found.append((path.stat().st_mtime, entry))
    return [entry for _, entry in sorted(found, key=lambda each: each[0], reverse=True)]


@dataclass(frozen=True)
class NamedEntry:
    """An entry with its place in the index. `name`: the job's id, or the array task's name; `cluster`: LOCAL for runs
    of `ft-supervisor local`; `written`: seconds since the epoch."""

    name: str
    cluster: str
    written: float
    entry: IndexEntry


def newest(environ: Mapping[str, str], most: int) -> list[NamedEntry]:
    """Return the index's newest entries, `most` jobs, newest first; an array task's entry has the task's name. Raises
    OSError."""
    top = _top(environ)
    if top is None or not top.is_dir():
        return []
    places = []
    for path in top.glob("*/*"):
        if _NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # another process has just removed it
                places.append((path.stat().st_mtime, path))
    found: dict[tuple[str, int], NamedEntry] = {}
    for written, path in sorted(places, reverse=True):
        if len(found) >= 2 * most:  # a task of an array has two entries
            break
        if (entry := _read(path)) is None:
            continue
        cluster = path.parent.name
        key = cluster, entry.job_id
        if key not in found or "_" in path.name:
            found[key] = NamedEntry(path.name, cluster, written, entry)
    return sorted(found.values(), key=lambda each: each.written, reverse=True)[:most]


def _top(environ: Mapping[str, str]) -> Path | None:
    """Return the index's folder; None without a home folder."""
    state = _state(environ)
    return None if state is None else state / "runs"


def beside(environ: Mapping[str, str], kind: str, cluster: str | None) -> Path | None:
    """Return the cluster's folder for files of another kind, beside the index; None without a home folder."""
    state = _state(environ)
    return None if state is None else state / kind / _folder_name(cluster)


def _state(environ: Mapping[str, str]) -> Path | None:
    """Return our folder of the user's state. XDG: a relative path counts as unset."""
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "ft-supervisor"
    home = environ.get("HOME", "")
    return Path(home) / ".local" / "state" / "ft-supervisor" if home.startswith("/") else None


def _folder_name(cluster: str | None) -> str:
    return cluster if cluster and re.fullmatch(r"[\w.-]{1,40}", cluster) and cluster.strip(".") else UNKNOWN


def _read(path: Path) -> IndexEntry | None:
    """Return the entry in the file; None if it contains none."""
    try:
        value = json.loads(smallfile.read(path, _LONGEST))
        job_id, run_dir = value["job_id"], value["run_dir"]
    except (smallfile.NotSmall, ValueError, RecursionError, KeyError, TypeError, FileNotFoundError):
        return None
    if type(job_id) is not int or not 0 <= job_id < 10**18 or not isinstance(run_dir, str):
        return None
    return IndexEntry(job_id, Path(run_dir)) if run_dir.startswith("/") and "\0" not in run_dir else None


def _prune(folder: Path) -> None:
    """Remove the lowest ids beyond KEPT. Slurm's ids grow, so listing the folder once is enough, and no file is
    opened."""
    names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]  # noqa: PTH208 - faster
    if len(names) > KEPT:
        names.sort(key=lambda name: [int(part) for part in name.split("_")])
        for name in names[: len(names) - KEPT]:
            (folder / name).unlink(missing_ok=True)
