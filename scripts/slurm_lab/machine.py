"""A machine of the lab: namespaces that one process holds open, and the processes in them.

Machines are named by their holder's process id and start time, never by a bare id or namespace number, which the
kernel may have given to another process since. A node's holder is the first process of its PID namespace: when it is
killed, the kernel ends everything on the node at once and takes network and mounts away with it.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .errors import LabError

START_TIMEOUT = 30.0  # seconds until a holder has mounted everything
KILL_TIMEOUT = 30.0  # seconds until the kernel has ended a machine's last process
FREEZE_TIMEOUT = 30.0  # seconds until a machine's last process stands still
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
STOPPED = "TtZX"  # /proc's state letters of what no longer moves
DAEMONS = frozenset({"slurmd", "slurmd-wlm", "slurmstepd", "munged"})


@dataclass(frozen=True)
class Process:
    """One process as the host sees it: /proc's name, state letter and command line."""

    pid: int
    name: str
    state: str
    command: str


@dataclass(frozen=True)
class Machine:
    """One set of namespaces. `kind` names the one that tells its processes from others': pid or mnt."""

    name: str
    pid: int
    start: int
    kind: str = "pid"

    def alive(self) -> bool:
        return start_time(self.pid) == self.start

    def enter(self, *command: str) -> list[str]:
        """Return the command line that runs a command as root here. Without a PID namespace it is one exec."""
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--root", "--wd"]
        if self.kind == "pid":
            namespaces.append("--pid")
        return ["nsenter", "--target", str(self.pid), *namespaces, "--", *command]

    def processes(self) -> list[Process]:
        """Return every process of this machine but its holder, zombies included; none when the machine is dead."""
        try:
            identity = Path(f"/proc/{self.pid}/ns/{self.kind}").readlink()
        except OSError:
            return []
        if not self.alive():
            return []
        others = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        found = (_process(pid, self.kind, identity) for pid in others if pid != self.pid)
        return [process for process in found if process is not None]

    def freeze(self) -> None:
        """Send SIGSTOP to every process but the holder, which only reaps. Raises LabError after FREEZE_TIMEOUT."""
        end = time.monotonic() + FREEZE_TIMEOUT
        while moving := [process for process in self.processes() if process.state not in STOPPED]:
            for process in moving:  # one may have forked before it was stopped: so look again
                _signal(process, signal.SIGSTOP)
            if time.monotonic() > end:
                raise LabError(f"{self.name}: not stopped within {FREEZE_TIMEOUT:.0f} s: {moving}")

    def thaw(self) -> None:
        """Send SIGCONT to every process that is stopped."""
        for process in self.processes():
            if process.state == "T":
                _signal(process, signal.SIGCONT)

    def kill(self) -> None:
        """End the machine and everything on it. Raises LabError when a process is left after KILL_TIMEOUT."""
        if self.kind != "pid":
            for _ in range(100):  # a process may fork while we look
                left = [process for process in self.processes() if process.state != "Z"]
                for process in left:
                    _kill(process.pid, start_time(process.pid))
                if not left:
                    break
        _kill(self.pid, self.start)


def start(
    name: str, command: Sequence[str], specification: dict[str, Any], log: IO[bytes], record: Callable[[Machine], None]
) -> Machine:
    """Start a holder through `command` (unshare, nsenter), have it recorded, and only then let it stay."""
    kind = "pid" if "--pid" in command else "mnt"
    init = str(Path(__file__).with_name("init.py"))
    starter = subprocess.Popen(
        # An orphan from the start, so that the machine's init reaps it, and not the process that started the lab.
        ["setsid", "--fork", *command, sys.executable, "-I", init, log.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=daemon_environment(),
        cwd="/",
    )
    assert starter.stdin is not None and starter.stdout is not None
    with starter.stdin, starter.stdout:  # closed on the way out, upon which a holder that was not let stay ends
        starter.wait()
        starter.stdin.write(json.dumps(specification) + "\n")
        starter.stdin.flush()
        ready, _, _ = select.select([starter.stdout], [], [], START_TIMEOUT)
        line = starter.stdout.readline() if ready else ""
        ticks = start_time(int(line)) if line else None
        if ticks is None:
            raise LabError(f"machine {name} did not start within {START_TIMEOUT:.0f} s; see {log.name}")
        machine = Machine(name, int(line), ticks, kind)
        record(machine)
        starter.stdin.write("go\n")
    return machine


def daemon_environment() -> dict[str, str]:
    """Return the environment of daemons, which has nothing of the caller's."""
    return {"PATH": ":".join(SYSTEM_PATH), "LANG": "C.UTF-8"}


def with_first(environment: Mapping[str, str], first: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with each value of `first` before its own one. Its SLURM_CONF is dropped."""
    own = {name: value for name, value in environment.items() if name != "SLURM_CONF"}
    return own | {name: ":".join(filter(None, (value, own.get(name)))) for name, value in first.items()}


def start_time(pid: int) -> int | None:
    """Return the process's start in clock ticks since boot (proc_pid_stat(5), field 22); None if gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _process(pid: int, kind: str, identity: Path) -> Process | None:
    folder = Path("/proc") / str(pid)
    try:
        if (folder / "ns" / kind).readlink() != identity:
            return None
        name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None  # it ended while we looked, or is a zombie of which the kernel shows no namespaces any more
    return Process(pid, name, rest.split()[0], command)


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it went by itself
        os.kill(process.pid, number)


def _kill(pid: int, start: int | None) -> None:
    """Send SIGKILL to exactly this process, and wait until it is gone (a holder: with everything in its namespace)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start is None or start_time(pid) != start:
            return
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not select.select([handle], [], [], KILL_TIMEOUT)[0]:
            raise LabError(f"process {pid} is still there {KILL_TIMEOUT:.0f} s after SIGKILL")
    except ProcessLookupError:
        pass  # it went by itself
    finally:
        os.close(handle)
