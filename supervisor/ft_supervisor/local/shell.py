"""Runs the daemons of all pretended nodes, shows what they print, and leaves nothing of them behind."""

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
from collections.abc import Mapping, Sequence
from pathlib import Path

from ft_supervisor.config import JobConfig
from ft_supervisor.core.model import CONFIG_ERROR, EXIT_CODES, KILL_BOUND, Outcome, Verdict
from ft_supervisor.local import environment
from ft_supervisor.local.lines import Lines
from ft_supervisor.local.terminal import Terminal
from ft_supervisor.observe import run_index, runs, verdict_file
from ft_supervisor.observe.background import Background
from ft_supervisor.process import tree

END_MARGIN = 15.0
"""Seconds beyond the job's own graces until daemons that were asked to end are killed."""
DRAIN_BOUND = 2.0
"""Seconds for the last lines, once all daemons are gone: whatever still holds their output open is not waited for."""
STATUS_PAUSE = 0.1
"""Seconds that changes are collected for before they are shown in one line."""


def run(daemon: Sequence[str], config: JobConfig, nodes: int, quiet: bool, environ: Mapping[str, str]) -> int:
    """Runs one `daemon` for each of `nodes` pretended nodes; the verdict's exit code, else the highest of theirs.

    Main thread only: the daemons die with the thread that started them.
    """
    where = "/tmp"
    try:
        job = environment.new_job_id()
        where = "run_dir"
        folder = runs.run_dir(config.run_dir, Path.cwd(), job) / environment.run_id(job)
        folder.mkdir(parents=True)
    except OSError as error:
        print(f"ft-supervisor: {where}: {error}", file=sys.stderr)
        return CONFIG_ERROR
    entry = run_index.Entry(job, folder.parent)
    Background("run index", lambda: run_index.note(environ, run_index.LOCAL, entry), _not_in_index)
    tree.become_subreaper()
    local = _Local(config, nodes, folder, Terminal(environment.names(nodes), quiet))
    try:
        local.start(daemon, environ, job)
        local.loop()
    finally:
        left_behind = tree.sweep(os.getpid())
    return local.end(left_behind)


def _not_in_index(_what: str, error: Exception) -> None:
    print(f"ft-supervisor: the run is not in your index of runs: {error}", file=sys.stderr)


class _Local:
    def __init__(self, config: JobConfig, nodes: int, folder: Path, terminal: Terminal) -> None:
        self._config = config
        self._names = environment.names(nodes)
        self._folder = folder
        self._nonce = secrets.token_hex(16)
        self._terminal = terminal
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._codes: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._outputs = 0
        self._signalled, write = socket.socketpair()
        self._asked = self._killed = False
        self._kill_at = self._status_at = math.inf
        write.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        self._wakeup = write
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        self._selector.register(self._signalled, selectors.EVENT_READ, self._on_signals)

    def start(self, daemon: Sequence[str], environ: Mapping[str, str], job: int) -> None:
        """Starts all daemons, and says where they are."""
        line = tree.pdeath_command(daemon)  # should this process be killed, its daemons must not stay
        for infra_rank, name in enumerate(self._names):
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment.of_node(environ, job, len(self._names), infra_rank, Path.cwd(), self._nonce),
                start_new_session=True,
            )
            self._daemons[name] = process
            self._selector.register(
                os.pidfd_open(process.pid), selectors.EVENT_READ, lambda fd, name=name: self._on_exit(name, fd)
            )
            assert process.stdout is not None
            lines = Lines()
            self._selector.register(
                process.stdout.fileno(),
                selectors.EVENT_READ,
                lambda fd, name=name, lines=lines: self._on_output(name, lines, fd),
            )
            self._outputs += 1
        self._write_state()
        self._terminal.say(f"run {self._folder.name} in {self._folder}; Ctrl-C ends it")

    def loop(self) -> None:
        """Until all daemons are gone, and their output has been shown."""
        drain_at = math.inf
        while self._outputs or len(self._codes) < len(self._daemons):
            if len(self._codes) == len(self._daemons):
                drain_at = min(drain_at, time.monotonic() + DRAIN_BOUND)
            until = min(drain_at, self._kill_at, self._status_at)
            pause = None if until == math.inf else max(0.0, until - time.monotonic())
            for key, _ in self._selector.select(pause):
                key.data(key.fd)
            now = time.monotonic()
            if now >= drain_at:
                return
            if now >= self._kill_at:
                self._kill()
            if now >= self._status_at or self._terminal.closed:
                self._on_pause()

    def end(self, left_behind: Sequence[int]) -> int:
        """The closing line; returns the exit code."""
        if left_behind:
            self._terminal.say(f"still there in spite of SIGKILL: {', '.join(map(str, left_behind))}")
        self._terminal.status()
        verdict, problem = self._verdict()
        if verdict is not None:
            self._terminal.say(f"{verdict.outcome}: {verdict.reason} (exit code {verdict.exit_code})")
            return verdict.exit_code
        code = EXIT_CODES[Outcome.CANCELLED] if self._killed else max(self._codes.values())
        self._terminal.say(f"{problem}; exit code {code}")
        return code

    def _verdict(self) -> tuple[Verdict | None, str]:
        try:
            return verdict_file.read(self._folder, self._folder.name, self._nonce), "no verdict"
        except (OSError, verdict_file.BadVerdictFile) as error:
            return None, f"no verdict: {error}"

    def _write_state(self) -> None:
        """local.json, for whoever wants to kill a node."""
        nodes = [
            {"name": name, "pid": process.pid, "infra_rank": index}
            for index, (name, process) in enumerate(self._daemons.items())
        ]
        temporary = self._folder / ".local.json"
        temporary.write_text(json.dumps({"nodes": nodes}, indent=1) + "\n")
        temporary.replace(self._folder / "local.json")

    def _on_output(self, name: str, lines: Lines, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._selector.unregister(fd)
            self._outputs -= 1
        for text in lines.feed(data):
            if self._terminal.line(name, text):
                self._status_soon()

    def _on_exit(self, name: str, fd: int) -> None:
        """A daemon that was killed leaves orphans, which are ours now."""
        self._selector.unregister(fd)
        os.close(fd)
        code = self._daemons[name].wait()
        self._codes[name] = code if code >= 0 else 128 - code
        tree.sweep(os.getpid(), [process.pid for process in self._living()])
        self._terminal.gone(name, f"gone ({self._codes[name]})")
        self._status_soon()

    def _status_soon(self) -> None:
        self._status_at = min(self._status_at, time.monotonic() + STATUS_PAUSE)

    def _on_pause(self) -> None:
        self._status_at = math.inf
        self._terminal.status()
        if self._terminal.closed and not self._asked:  # nobody reads any more, as in `| head`
            self._ask(signal.SIGTERM)

    def _on_signals(self, _fd: int) -> None:
        for number in self._signalled.recv(4096):
            if not self._asked:
                self._ask(signal.Signals(number))
            elif number == signal.SIGINT:
                self._kill()

    def _ask(self, number: signal.Signals) -> None:
        """The daemons' own way to end, within a bound."""
        self._asked = True
        times = self._config.timeouts
        bound = self._config.longest_grace + times.close_grace + KILL_BOUND + END_MARGIN
        self._kill_at = time.monotonic() + bound
        self._terminal.say(f"{number.name}: ending all nodes, within {bound:g} s; Ctrl-C kills them at once")
        for process in self._living():
            process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def _kill(self) -> None:
        """SIGKILL to all daemons; what is below them is swept when they are gone."""
        self._killed, self._kill_at = True, math.inf
        for process in self._living():
            process.kill()

    def _living(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._daemons.values() if process.returncode is None]
