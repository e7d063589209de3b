"""On a node: which processes are those of a job.

A daemon is known by the journal that it keeps open for appending in its own folder, /tmp/ft-<uid>/<run id>/<node>/: no
file claims a pid that another process may have by now. Agent and coordinator are its children, workers are the agent's.
Only processes of this uid are looked at; the files of anybody else cannot be seen. Facts from proc(5).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ft_supervisor.core.protocol.orders import Begin
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.fault.messages import NotAllowed, NotThere, Seen, Worker
from ft_supervisor.journal import lines
from ft_supervisor.process import tree
from ft_supervisor.run_folder import runs, verdict_file, worker_ranks

AGENT, COORDINATOR = b"ft_supervisor.agent", b"ft_supervisor.coordinator"
_DAEMON = "journal-daemon"


def look(wanted: runs.Wanted) -> list[Seen]:
    """The living daemons on this machine (in this PID namespace) of the job's runs, by run and node.

    Raises NotAllowed when our own folder is not ours, NotThere when a journal cannot be read.
    """
    folders = _folders(wanted)
    if not folders:
        return []
    daemons = _daemons(folders)
    processes = tree.scan()
    seen = (_seen(folder, pid, processes) for folder, pid in daemons.items())
    return sorted((each for each in seen if each), key=lambda each: (each.run_id, len(each.node), each.node))


def find(run_id: str, node: str) -> tuple[Seen, Begin]:
    """One daemon, and what it has begun with. Raises NotThere, NotAllowed."""
    wanted = runs.parse(run_id)
    for seen in look(wanted) if wanted else []:
        if (seen.run_id, seen.node) == (run_id, node):
            return seen, _begin(_base() / run_id / node)
    raise NotThere(f"no daemon of run {run_id} lives on {node}")


def ended(wanted: runs.Wanted) -> str | None:
    """How a job ended whose runs have left their folders on this machine; None when there are none."""
    folders = _folders(wanted)
    if not folders:
        return None
    for folder in folders:
        with suppress(OSError, verdict_file.BadVerdictFile):
            if verdict := verdict_file.read(folder):
                return f"{verdict.outcome}: {verdict.reason}"
    return "no verdict"


def _base() -> Path:
    return local_folder("x").parent


def _folders(wanted: runs.Wanted) -> list[Path]:
    base = _base()
    try:
        found = base.lstat()
    except FileNotFoundError:
        return []
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise NotAllowed(f"{base} is not a directory of uid {os.getuid()}")
    return [path.parent for run in runs.folders(base, wanted) for path in run.glob(f"*/{_DAEMON}.jsonl")]


def _daemons(folders: list[Path]) -> dict[Path, int]:
    """The process that keeps each folder's journal of the daemon, where one lives."""
    files: dict[tuple[int, int], Path] = {}
    for folder in folders:
        for path in folder.glob(f"{_DAEMON}*.jsonl"):
            with suppress(OSError):
                files[_identity(path)] = folder
    holders: dict[Path, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - faster
        if name.isdecimal():
            for identity, _ in _journals(int(name), f"/{_DAEMON}"):
                if identity in files:
                    holders.setdefault(files[identity], []).append(int(name))
    found = {}
    for folder, pids in holders.items():
        # A child that has not become another program yet has its parent's files for a moment.
        first = [pid for pid in pids if (process := tree.stat(pid)) and process.parent not in pids]
        if len(first) == 1:
            found[folder] = first[0]
    return found


def _journals(pid: int, part: str) -> Iterator[tuple[tuple[int, int], Path]]:
    """Journals that the process has open for appending, by device and inode, with their paths; none of a stranger's.

    The name is looked at first: a look at a file itself may hang where its file system does.
    """
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        if folder.stat().st_uid != os.getuid():
            return
        for fd in (folder / "fd").iterdir():
            with suppress(OSError):
                target = str(fd.readlink())
                if part in target and target.startswith("/tmp/") and _appends(folder / "fdinfo" / fd.name):
                    yield _identity(fd), Path(target)


def _appends(info: Path) -> bool:
    """Return whether a file is open for appending: a process that only reads the journal is no daemon."""
    flags = next(line.split()[1] for line in info.read_text().splitlines() if line.startswith("flags:"))
    return bool(int(flags, 8) & os.O_APPEND) and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _seen(folder: Path, daemon: int, processes: Mapping[int, tree.Process]) -> Seen | None:
    if daemon not in processes or processes[daemon].dead:
        return None
    job = _begin(folder).job
    agent = _child(daemon, AGENT, processes)
    coordinator = _child(daemon, COORDINATOR, processes)
    return Seen(
        run_id=job.run_id,
        node=folder.name,
        allowed=job.settings.faults,
        local=job.signal_workers,
        run_folder=job.run_folder,
        step_file=job.settings.step_file,
        daemon=daemon,
        agent=agent,
        coordinator=coordinator,
        in_charge=None if coordinator is None else _in_charge(folder, coordinator),
        workers=() if agent is None else _workers(agent, processes, worker_ranks.read(folder)),
    )


def _begin(folder: Path) -> Begin:
    """What the daemon itself wrote when it began: the policy that it runs by, whatever files say by now."""
    path = folder / f"{_DAEMON}.jsonl"
    try:
        _, header = next(lines.read(path))
    except StopIteration:
        raise NotThere(f"{path} is empty: nobody knows what its daemon runs") from None
    except (OSError, lines.BadJournal) as problem:
        raise NotThere(f"nobody knows what this daemon runs: {problem}") from None
    if not isinstance(header, lines.Header) or not isinstance(header.begin, Begin):
        raise NotThere(f"{path} does not begin with what its daemon runs")
    return header.begin


def _child(parent: int, module: bytes, processes: Mapping[int, tree.Process]) -> int | None:
    for pid, process in sorted(processes.items()):
        if process.parent == parent and not process.dead and module in _words(pid, "cmdline"):
            return pid
    return None


def _workers(agent: int, processes: Mapping[int, tree.Process], noted: Mapping[int, int]) -> tuple[Worker, ...]:
    """`noted`: the ranks by pid that the agent has written down. While there are any, no other process is a worker:
    one that a worker has left behind is the agent's child too, with the worker's environment."""
    found = []
    for pid, process in sorted(processes.items()):
        if process.parent == agent and not process.dead and (pid in noted or not noted):
            is_worker, rank = (True, noted[pid]) if noted else worker_rank(_words(pid, "environ"))
            if is_worker:
                found.append(Worker(rank, pid))
    return tuple(found)


def worker_rank(environ: list[bytes]) -> tuple[bool, int | None]:
    """Whether an agent's child is a worker, and its rank.

    The agent's helpers have its environment. One that has nothing of it left has changed its title: a worker.
    """
    values = dict(word.split(b"=", 1) for word in environ if b"=" in word)
    if b"RANK" in values and b"LOCAL_RANK" in values and values[b"RANK"].isdigit():
        return True, int(values[b"RANK"])
    return bool(environ) and not {b"PATH", b"SLURM_JOB_ID"} & values.keys(), None


def _words(pid: int, name: str) -> list[bytes]:
    """What is separated by NUL in /proc/<pid>/<name>; [] when there is no such process, or it is not ours."""
    try:
        return [word for word in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0") if word]
    except OSError:
        return []


def _in_charge(folder: Path, coordinator: int) -> int | None:
    """The term in which this coordinator is in charge, by its own journal."""
    term: int | None = None
    for name in sorted({path.name.split(".")[0] for _, path in _journals(coordinator, "/journal-coordinator")}):
        for part in (".jsonl", ".rest-old.jsonl", ".rest.jsonl"):
            with suppress(OSError), (folder / f"{name}{part}").open("rb") as file:
                for line in file:
                    if b'"TookCharge"' in line or b'"SteppedDown"' in line:
                        term = _term(line, term)
    return term


def _term(line: bytes, term: int | None) -> int | None:
    with suppress(ValueError, KeyError, TypeError):  # torn
        for action in json.loads(line)["actions"]:
            kind = action["fact"]["type"] if action["type"] == "Announce" else ""
            if kind == "TookCharge":
                term = int(action["fact"]["term"])
            elif kind == "SteppedDown":
                term = None
    return term
