"""Reads a run's history from its folder. The files may hang (NFS), so call it in a thread.

Coordinators' journals are read whole, as a stream. Of daemons' journals only the first line is read, of MOST_DAEMONS of
them: that line names all nodes, and all daemons start at the same time. Agents' journals are read until BUDGET is used
up: those of ten thousand nodes would take hours, and add only when workers started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ft_supervisor.core.protocol.model import Verdict
from ft_supervisor.core.words import count
from ft_supervisor.history import game_days
from ft_supervisor.history.builder import build
from ft_supervisor.history.checkpoints import MOST_JOURNALS
from ft_supervisor.history.fact import JournalFacts
from ft_supervisor.history.facts import facts
from ft_supervisor.history.model import CycleStory, Fault, FirstFailedWorker, History
from ft_supervisor.run_folder import left_running, smallfile, verdict_file
from ft_supervisor.run_folder.left_running import LeftRunning

BUDGET = 1024 * 1024 * 1024
"""Bytes of agents' journals that are read."""
MOST_DAEMONS = 64
MAX_LINE = 16 * 1024 * 1024
"""Bytes of one line; the longest, a cycle of ten thousand nodes, takes a quarter of that."""
LAST_LINES = 20
MOST_OUTPUTS = 100
"""Failed cycles whose workers' log files are read."""
MOST_NOTES = 12
MAX_FAULTS = 4 * 1024 * 1024
"""Bytes of faults.jsonl that are read: some ten thousand faults."""
LAUNCH = "journal-launch"
"""Prefix of the journal of `launch`, which contains neither cycles nor workers."""
_TAIL = 64 * 1024
_LONGEST = 1000
"""Characters of one line that are shown."""


def read(folder: Path, budget: int = BUDGET, *, costs: bool = False) -> History:
    """Return the history of the run in `folder`. Files that cannot be read get a line in its notes; without any journal
    it has no cycles. `budget`: bytes of agents' journals to read. `costs`: read the times of heartbeats, which tell
    what checkpoints cost, and not the workers' last lines."""
    notes: list[str] = []
    verdict = _verdict(folder, notes)
    faults = _faults(folder / game_days.NAME, notes)
    journals = _journals(folder, notes)
    contents: list[JournalFacts] = []
    unread = 0
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, path in journals:
        size = _size(path) if name.startswith("agent") else 0
        if size > budget:
            unread += 1
            continue
        budget -= size
        beats = costs and sum(map(_beats, contents)) < MOST_JOURNALS
        beats = beats and any(each.checkpoints for each in contents)  # the coordinators' come first
        contents.append(_read_journal(path, name, folder, notes, beats=beats))
        contents[-1].nodes = names.setdefault(
            contents[-1].nodes, contents[-1].nodes
        )  # thousands of them, in thousands of journals
    if unread:
        notes.append(
            f"{unread} agents' journals were not read, as they are too many: when workers started is uncertain"
        )
    history = build(folder.name, contents, verdict, faults=faults)
    if len(notes) > MOST_NOTES:  # a disk that was full has damaged the journals of all nodes
        notes[MOST_NOTES:] = [f"and {len(notes) - MOST_NOTES} more lines like these"]
    notes += [*_missing(history, contents), *history.notes]
    left = _left(folder, notes) if verdict else None
    return replace(
        history,
        notes=tuple(notes),
        left=left,
        cycles=history.cycles if costs else _with_outputs(history.cycles, folder),
    )


def _beats(journal: JournalFacts) -> bool:
    return any(journal.beats)


def _verdict(folder: Path, notes: list[str]) -> Verdict | None:
    try:
        return verdict_file.read(folder, folder.name)
    except verdict_file.BadVerdictFile as error:
        notes.append(f"verdict: {error}")
    except OSError as error:
        notes.append(f"verdict: {error.strerror}: {folder / verdict_file.NAME}")
    return None


def _left(folder: Path, notes: list[str]) -> LeftRunning | None:
    try:
        return left_running.read(folder)
    except left_running.BadFile as error:
        notes.append(f"{left_running.NAME}: {error}")
    except OSError as error:
        notes.append(f"{left_running.NAME}: {error.strerror}")
    return None


def _faults(path: Path, notes: list[str]) -> list[Fault]:
    """Return the faults in the file, up to MAX_FAULTS bytes."""
    try:
        with smallfile.opened(path) as file:
            data = file.read(MAX_FAULTS + 1)
    except FileNotFoundError:
        return []
    except (OSError, smallfile.NotSmall) as error:
        notes.append(f"{path.name}: {_problem(error)}")
        return []
    if len(data) > MAX_FAULTS:
        notes.append(f"{path.name}: only its first {MAX_FAULTS >> 20} MiB were read")
        data = data[: data.rfind(b"\n", 0, MAX_FAULTS) + 1]
    found, bad = game_days.faults(data.splitlines())
    if bad:
        notes.append(f"{path.name}: {_are(bad, 'line')} cut off or damaged")
    return found


def _problem(error: OSError | smallfile.NotSmall) -> str:
    """Return the problem without the path, which the note has already."""
    return str(error.strerror) if isinstance(error, OSError) else error.problem


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # the error follows when it is read


def _journals(folder: Path, notes: list[str]) -> list[tuple[str, Path]]:
    """Return (name, path) of each journal, the coordinators' first, with MOST_DAEMONS of daemons at most."""
    found: list[tuple[str, Path]] = []
    parent = folder / "journal"
    try:
        nodes = sorted(parent.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"journals: {error.strerror}: {parent}")
        return []
    for node in nodes:
        try:
            names = sorted(path for path in node.iterdir() if path.match("journal-*.jsonl"))
        except NotADirectoryError:
            continue
        except OSError as error:
            notes.append(f"journals: {error.strerror}: {node}")
            continue
        parts = {".rest.jsonl", ".rest-old.jsonl"}
        found += [
            (path.name.removeprefix("journal-"), path)
            for path in names
            if "".join(path.suffixes[-2:]) not in parts and not path.name.startswith(LAUNCH)
        ]
    found.sort(key=lambda each: (not each[0].startswith("coordinator"), each[0], each[1]))
    daemons = [each for each in found if each[0].startswith("daemon")]
    return [*(each for each in found if not each[0].startswith("daemon")), *daemons[:MOST_DAEMONS]]


def _read_journal(path: Path, name: str, folder: Path, notes: list[str], *, beats: bool) -> JournalFacts:
    where = path.relative_to(folder)
    try:
        if name.startswith("daemon"):
            journal = facts(_lines(path, 1))
        else:
            rest = [path.with_suffix(f".{part}.jsonl") for part in ("rest-old", "rest")]
            journal = facts(chain(_lines(path), *(_lines(part) for part in rest if part.exists())), beats=beats)
    except (OSError, smallfile.NotSmall) as error:
        notes.append(f"{where}: {_problem(error)}")
        return JournalFacts()
    if journal.problem:
        notes.append(f"{where}: {journal.problem}")
    if journal.torn:
        notes.append(f"{where}: {_are(journal.torn, 'line')} cut off or damaged")
    if journal.strange:
        notes.append(f"{where}: {_are(journal.strange, 'line')} not understood, of another version perhaps")
    if journal.full:
        notes.append(f"{where}: it reached its bound, and some of it was left out")
    return journal


def _lines(path: Path, most: int | None = None) -> Iterator[bytes]:
    """Yield the lines with their line ends; a line that is too long comes in pieces without one."""
    with smallfile.opened(path) as file:
        while (most is None or most > 0) and (line := file.readline(MAX_LINE)):
            yield line
            most = most - 1 if most is not None else None


def _missing(history: History, contents: list[JournalFacts]) -> Iterator[str]:
    """Yield a line for people on each kind of file that is missing."""
    if not any(each.run_id for each in contents):
        yield "no journal: neither nodes nor cycles are known"
        return
    if not any(each.facts for each in contents if each.machine == "coordinator"):
        yield "no coordinator's journal: why cycles began and failed is known from agents alone"
    if history.verdict is None:
        yield "no verdict (yet); while a job runs its coordinator's journal comes some seconds late"
    began = {node for cycle in history.cycles for node in cycle.nodes}
    agents = {each.nodes[each.node] for each in contents if each.machine == "agent" and each.node is not None}
    if lacking := sorted(began - agents):
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        later = "" if history.verdict else ", which comes when a node ends, unless it dies"
        yield f"no agent's journal of {shown}{later}: when workers started there is not known"


def _are(number: int, word: str) -> str:
    return f"{count(number, word)} {'is' if number == 1 else 'are'}"


def _with_outputs(cycles: Sequence[CycleStory], folder: Path) -> tuple[CycleStory, ...]:
    """Return the cycles, the last MOST_OUTPUTS failed ones with the end of their first failed worker's output."""
    failed = [number for number, cycle in enumerate(cycles) if cycle.first is not None][-MOST_OUTPUTS:]
    found = list(cycles)
    for number in failed:
        if (first := found[number].first) is not None:
            found[number] = replace(found[number], first=_with_lines(first, folder))
    return tuple(found)


def _with_lines(failure: FirstFailedWorker, folder: Path) -> FirstFailedWorker:
    """Return the failure with the end of the worker's log file, if there is one: it is longer than the agent's copy."""
    if failure.rank is None:
        return failure
    path = folder / "logs" / failure.cycle / f"rank{failure.rank}.log"
    lines = _last_lines(path)
    if len(lines) < LAST_LINES:  # the log may just have been rotated (agent.log_files)
        lines = [*_last_lines(path.with_name(f"{path.name}.1")), *lines][-LAST_LINES:]
    shown = tuple(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…" for line in lines)
    stacks = folder / "stacks" / failure.cycle / f"{failure.rank}.txt"
    failure = replace(failure, stacks=str(stacks.relative_to(folder)) if _is_file(stacks) else "")
    return replace(failure, lines=shown, source=str(path.relative_to(folder))) if shown else failure


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _last_lines(path: Path) -> list[str]:
    """Return the last lines of the file; none if it is missing or may not be read."""
    try:
        with smallfile.opened(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read(_TAIL).decode(errors="replace").splitlines()[-LAST_LINES:]
    except (OSError, smallfile.NotSmall):
        return []
