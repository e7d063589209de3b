"""Runs the daemons of all pretended nodes, shows their output, and leaves no process of theirs behind."""

from __future__ import annotations

import json
import math
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ft_supervisor.config import JobConfig
from ft_supervisor.core.launch.interface import VerdictRead
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, INTERRUPTED, KILL_BOUND, Outcome, Verdict
from ft_supervisor.daemon import identity, parent
from ft_supervisor.launch.watch import Seen, VerdictWatch, in_folders
from ft_supervisor.local import environment
from ft_supervisor.local.lines import Lines
from ft_supervisor.local.printer import Printer
from ft_supervisor.local.snapshots import follow
from ft_supervisor.local.terminal import Terminal
from ft_supervisor.process import atomic, signals, tree
from ft_supervisor.process.background import Background, Hangs
from ft_supervisor.process.log import LEAST_LEVEL
from ft_supervisor.run_folder import run_index, runs
from ft_supervisor.run_folder.runs import what_next
from ft_supervisor.run_folder.snapshot import Snapshot

END_MARGIN = 15.0
"""Seconds beyond the job's own graces until daemons that were asked to end, or should have ended, are killed."""
DRAIN_BOUND = 2.0
"""Seconds for the last lines once all daemons are gone: processes that still have their output open do not count."""
STATUS_PAUSE = 0.1
"""Seconds in which changes are collected before they are shown in one line."""
ROOM_PAUSE = 0.05
"""Seconds between two checks whether a slow reader has made room for more output."""
LOOK_PAUSE = 1.0
"""Seconds between two checks whether all daemons that are left are stopped."""
_STDERR = 2
FILE_BOUND = 2.0
"""Seconds for run_dir to take local.json."""


def run(daemon: Sequence[str], config: JobConfig, nodes: int, quiet: bool, environ: Mapping[str, str]) -> int:
    """Run one `daemon` for each of `nodes` pretended nodes and return the verdict's exit code. Without a verdict return
    130 if it was asked to end, else the highest code of a daemon that has ended by itself, 75 if there is none.

    Main thread only.
    """
    where = "/tmp"
    try:
        _fill_standard()
        job = environment.new_job_id()
        where = "run_dir"
        folder = runs.run_dir(config.run_dir, Path.cwd(), job) / environment.run_id(job)
        folder.mkdir(parents=True)
    except OSError as error:
        print(f"ft-supervisor: {where}: {error}", file=sys.stderr)
        return CONFIG_ERROR
    entry = run_index.IndexEntry(job, folder.parent)
    Background("run index", lambda: run_index.note(environ, run_index.LOCAL, entry), _not_in_index)
    tree.become_subreaper()
    local = _Local(config, nodes, folder, quiet)
    try:
        local.start(daemon, environ, job)
        local.loop()
    finally:
        local.sweep()
    return local.end()


def _fill_standard() -> None:
    """Open /dev/null where stdin, stdout or stderr was closed from the beginning (`>&-`), so that no other file gets
    its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(fd)


def _not_in_index(_what: str, error: Exception) -> None:
    print(f"ft-supervisor: the run is not in your index of runs: {error}", file=sys.stderr)


class _Local:
    def __init__(self, config: JobConfig, nodes: int, folder: Path, quiet: bool) -> None:
        self._config = config
        self._names = environment.names(nodes)
        self._folder = folder
        self._nonce = secrets.token_hex(16)
        self._job = 0
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._codes: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._outputs = selectors.DefaultSelector()
        """The daemons' output: a selector inside the other one, so that all of it can wait while stdout is not read."""
        self._signalled, self._wakeup = socket.socketpair()
        self._signalled.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in signals.heeded(signals.TERMINATING):
            signal.signal(number, signals.nothing)
        self._selector.register(self._signalled, selectors.EVENT_READ, self._on_signals)
        self._asked = False
        self._ended: Verdict | None = None
        """The verdict, once it is known."""
        self._kill_at = self._give_up_at = self._status_at = self._stopped_until = math.inf
        self._printer = Printer(self._wake)
        self._terminal = Terminal(self._names, self._printer.put)
        self._quiet = quiet
        self._seen: Snapshot | None = None
        """The newest status.json, set by another thread."""
        self._verdicts = self._watch()

    def start(self, daemon: Sequence[str], environ: Mapping[str, str], job: int) -> None:
        """Start all daemons, and print where they are. Raises OSError."""
        self._job = job
        # If this process is killed, its daemons must not stay: they see the end of this pipe.
        end, self._life = os.pipe()
        for infra_rank, name in enumerate(self._names):
            environ_of_it = environment.of_node(environ, job, len(self._names), infra_rank, Path.cwd(), self._nonce)
            if self._quiet:
                environ_of_it[LEAST_LEVEL] = "warning"
            with signals.held():  # it has no handlers yet, and may be asked to end at once
                process = subprocess.Popen(
                    daemon,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**environ_of_it, parent.FD_ENV: str(end)},
                    pass_fds=[end],
                    start_new_session=True,
                )
            self._daemons[name] = process
            self._selector.register(
                os.pidfd_open(process.pid), selectors.EVENT_READ, lambda fd, name=name: self._on_exit(name, fd)
            )
            assert process.stdout is not None
            lines = Lines()
            self._outputs.register(
                process.stdout.fileno(),
                selectors.EVENT_READ,
                lambda fd, name=name, lines=lines: self._on_output(name, lines, fd),
            )
        os.close(end)
        self._write_state()
        follow(self._folder, self._on_snapshot)
        self._terminal.say(f"run {self._folder.name} in {self._folder}; Ctrl-C ends it")

    def loop(self) -> None:
        """Run until all daemons are gone, and their output has been read."""
        drain_at = math.inf
        while self._outputs.get_map() or len(self._codes) < len(self._daemons):
            if len(self._codes) < len(self._daemons) or not self._printer.has_room:
                drain_at = math.inf
            else:
                drain_at = min(drain_at, time.monotonic() + DRAIN_BOUND)
            self._wait(drain_at)
            now = time.monotonic()
            if now >= min(drain_at, self._give_up_at):
                return
            if now >= self._kill_at:
                self._kill()
            if now >= self._status_at or self._printer.closed:
                self._on_pause()
            self._look_for_stopped(now)

    def _wait(self, until: float) -> None:
        """Wait for the next event, and handle it."""
        until = min(until, self._kill_at, self._give_up_at, self._status_at)
        if self._codes and self._ended is None:
            until = min(until, time.monotonic() + LOOK_PAUSE)
        if not self._has_room():  # no descriptor becomes ready when it has
            until = min(until, time.monotonic() + ROOM_PAUSE)
        pause = None if until == math.inf else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(pause):
            key.data(key.fd)

    def _has_room(self) -> bool:
        """Read the daemons' output only while there is room for it. Return whether there is."""
        reads, may_read = self._outputs in self._selector.get_map(), self._printer.has_room
        if may_read and not reads:
            self._selector.register(self._outputs, selectors.EVENT_READ, self._on_outputs)
        elif reads and not may_read:
            self._selector.unregister(self._outputs)
        return may_read

    def sweep(self, keep: Collection[int] = ()) -> None:
        """SIGKILL all processes below this one, except those in `keep` and below them."""
        try:
            left = tree.sweep(os.getpid(), keep)
        except OSError as error:
            self._terminal.say(f"cannot look for what is left behind: {error}")
            return
        if left:
            self._terminal.say(f"still there in spite of SIGKILL: {', '.join(map(str, left))}")

    def end(self) -> int:
        """Print the closing lines and return the exit code."""
        self._terminal.last()
        verdict, problem = self._verdicts.last()
        if verdict is not None:
            code = verdict.exit_code
            self._terminal.say(f"{verdict.outcome}: {verdict.reason} (exit code {code})")
        else:
            codes = [process.returncode for process in self._daemons.values()]
            own = [code for code in codes if code is not None and code >= 0]  # neither killed nor hanging in the kernel
            code = EXIT_CODES[Outcome.CANCELLED] if self._asked else max(own, default=INTERRUPTED)
            self._terminal.say(f"{problem}; exit code {code}")
        self._terminal.say(what_next(self._job, code))
        self._printer.finish(self._interrupted)
        return code

    def _watch(self) -> VerdictWatch:
        """Look for the verdict in the run's folder, and in the nodes' own, which are there when the former is full,
        read-only or gone."""
        run_id = self._folder.name
        own = [identity.local_folder(run_id) / name for name in self._names]

        def seen(found: Seen) -> None:
            if isinstance(found, VerdictRead):
                self._ended = found.verdict
                self._wake()

        return VerdictWatch([in_folders(run_id, [self._folder]), in_folders(run_id, own)], self._nonce, seen)

    def _wake(self) -> None:
        """Make the loop check its state. For other threads."""
        with suppress(BlockingIOError):
            self._wakeup.send(b"\0")

    def _write_state(self) -> None:
        """Write local.json, for a person who wants to kill a node. A failure does not end the run."""
        path = self._folder / "local.json"
        nodes = [
            {"name": name, "pid": process.pid, "infra_rank": index}
            for index, (name, process) in enumerate(self._daemons.items())
        ]
        data = json.dumps({"nodes": nodes}, indent=1).encode() + b"\n"
        try:
            Background(str(path), lambda: atomic.replace(path, data)).result(FILE_BOUND)
        except (OSError, Hangs) as error:
            self._terminal.say(f"{path} is not written: {error}")

    def _on_outputs(self, _fd: int) -> None:
        for key, _ in self._outputs.select(0):
            key.data(key.fd)

    def _on_output(self, name: str, lines: Lines, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._outputs.unregister(fd)
        for text in lines.feed(data):
            self._terminal.line(name, text)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        """Keep the snapshot. Called in the thread that follows status.json."""
        self._seen = snapshot
        self._wake()

    def _on_exit(self, name: str, fd: int) -> None:
        """Handle a daemon's end. One that was killed leaves orphans, which are children of this process now."""
        self._selector.unregister(fd)
        os.close(fd)
        code = self._daemons[name].wait()
        self._codes[name] = code if code >= 0 else 128 - code
        self.sweep([process.pid for process in self._living()])
        self._terminal.gone(name, f"gone ({self._codes[name]})")
        self._status_soon()

    def _status_soon(self) -> None:
        self._status_at = min(self._status_at, time.monotonic() + STATUS_PAUSE)

    def _on_pause(self) -> None:
        self._status_at = math.inf
        self._terminal.status()
        if self._printer.closed and not self._asked:  # stdout has no reader any more, as in `| head`
            self._ask(signal.SIGTERM)

    def _on_signals(self, _fd: int) -> None:
        if self._seen is not None and self._terminal.see(self._seen):
            self._status_soon()
        for number in self._signalled.recv(4096):
            if number and not self._asked:
                self._ask(number)
            elif number == signal.SIGINT:
                self._kill()
        if self._ended is not None:
            success = self._ended.outcome is Outcome.SUCCESS
            self._kill_by(self._bound(0.0 if success else self._config.last_grace(self._ended.outcome)))

    def _interrupted(self) -> bool:
        """Return whether a signal asks not to wait any longer for the reader of the output."""
        try:
            return any(self._signalled.recv(4096))
        except BlockingIOError:
            return False

    def _ask(self, number: int) -> None:
        """Send this signal to the daemons, so that they end in their own way, within a bound."""
        self._asked = True
        bound = self._bound(self._config.longest_grace)
        self._kill_by(bound)
        self._terminal.say(f"{signals.name(number)}: ending all nodes, within {bound:g} s; Ctrl-C kills them at once")
        for process in self._living():
            process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def _bound(self, grace: float) -> float:
        """Return the seconds within which daemons that are to end do so."""
        return grace + self._config.timeouts.close_grace + KILL_BOUND + END_MARGIN

    def _kill_by(self, bound: float) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + bound)

    def _look_for_stopped(self, now: float) -> None:
        """Kill the rest where some daemons are gone and all others are stopped: there will be no verdict, and the job
        would not end."""
        if not self._codes or self._asked or self._ended is not None:
            return
        living = self._living()
        if not living or not all(_is_stopped(process.pid) for process in living):
            self._kill_at = math.inf if self._kill_at == self._stopped_until else self._kill_at
            self._stopped_until = math.inf
        elif self._stopped_until == math.inf:
            bound = self._bound(self._config.longest_grace)
            self._stopped_until = self._kill_at = now + bound
            self._terminal.say(f"all nodes that are left are stopped; killing them in {bound:g} s")

    def _kill(self) -> None:
        """SIGKILL all daemons; processes below them are swept when they are gone."""
        self._kill_at, self._give_up_at = math.inf, time.monotonic() + KILL_BOUND
        for name, process in self._daemons.items():
            if process.returncode is None:
                self._terminal.say(f"killing {name}, which has not ended by itself")
                process.kill()

    def _living(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._daemons.values() if process.returncode is None]


def _is_stopped(pid: int) -> bool:
    try:
        found = tree.stat(pid)
    except OSError:  # unknown
        return False
    return found is not None and found.state in "Tt"
