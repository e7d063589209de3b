"""The kernel's data on a process and its threads (proc(5)), without files whose reading waits for the process's memory
map."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ft_supervisor.process.tree import descendants

_THREADS = 64
_DESCENDANTS = 4


def threads(pid: int) -> str:
    """Return one line for each thread, for people."""
    try:
        found = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError as error:
        return f"It is gone: {error}"
    lines = [_thread(path) for path in found[:_THREADS]]
    if len(found) > _THREADS:
        lines.append(f"and {len(found) - _THREADS} more threads")
    return "\n".join(lines)


def state(pid: int) -> str:
    """Return the state of the process's main thread, as the letter of proc(5); "" if it is gone."""
    words = _state(Path(f"/proc/{pid}"))
    return words[:1]


def totals(pid: int) -> dict[str, int]:
    """Return the counts of /proc/PID/io; {} for another user's process, or without task accounting in the kernel."""
    lines = _read(Path(f"/proc/{pid}/io")).splitlines()
    return {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}


def written(pid: int) -> int:
    """Return the bytes that the process has written since its start: to anything, and again those that go to disks."""
    return written_of(totals(pid))


def written_of(counts: Mapping[str, int]) -> int:
    """Return the same of `totals`."""
    return counts.get("wchar", 0) + counts.get("write_bytes", 0)


def catches(pid: int, number: int) -> bool:
    """Return whether the process catches this signal (SigCgt in proc(5))."""
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def python_below(pid: int) -> list[int]:
    """Return a few Python processes below this one: a shell's Python, the workers of a data loader."""
    found = []
    for child, (letter, name) in sorted(descendants(pid).items()):
        if letter != "Z" and _program(child, name).startswith("python"):
            found.append(child)
    return found[:_DESCENDANTS]


def is_python(pid: int) -> bool:
    """Return whether the process runs a program named like Python."""
    return _program(pid, "").startswith("python")


def _program(pid: int, otherwise: str) -> str:
    """Return the name of the program's file; `otherwise` without permission, or when it has just ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return otherwise


def _thread(path: Path) -> str:
    comm, wchan, syscall = (_read(path / name).strip() or "?" for name in ("comm", "wchan", "syscall"))
    return f"thread {path.name} {comm}: state {_state(path) or '?'}, wchan {wchan}, syscall {syscall}"


def _state(path: Path) -> str:
    lines = [line for line in _read(path / "status").splitlines() if line.startswith("State:")]
    return " ".join(lines[0].split()[1:]) if lines else ""


def _read(path: Path) -> str:
    """Return at most 4,096 bytes of the file; "" if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(4096).decode(errors="replace")
    except OSError:
        return ""
