"""Runs the daemon's health checks: starts, reads and ends one process for each (examiner.py)."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.health_types import DISK, GPU, CheckOutcome, Result, Round, time_allowed
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.core.protocol.settings import Check
from ft_supervisor.process import signals, tree

UNCHECKED_CODE = 3
"""The exit code of a built-in check that could not look."""
_MAX_ANSWER = 2**16
_SWEEP_PIECE = 0.2
"""Seconds for which ending one silent examiner may block the daemon's loop."""
_SWEEP_PAUSE = 5.0
"""Seconds until a process that could not be ended is tried again."""
# -I -S: a third of the time, and no variable of the job's changes what it is. The check gets them all.
_EXAMINER = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from ft_supervisor.daemon.examiner import main; main()",
    str(Path(__file__).parents[2]),
)


def built_in(job: Job, node: Node, gpus: int | None) -> dict[str, tuple[str, ...]]:
    """Return the commands of the built-in checks, for Runner. `gpus`: how many there have to be; None if unknown."""
    disk = (sys.executable, "-I", "-S", str(Path(__file__).with_name("disk.py")))
    gpu = (sys.executable, "-P", "-m", "ft_supervisor.daemon.nvml")
    return {
        DISK: (*disk, str(job.settings.health.min_free or 0), node.name, job.run_folder, job.local_folder),
        GPU: gpu if gpus is None else (*gpu, "--expect", str(gpus)),
    }


@dataclass
class _Examiner:
    """The process that runs one check. `outcome`: its own, or one made for it. `pid` None: reaped. `stays`: a process
    below it cannot be killed."""

    check: Check
    pid: int | None
    socket: socket.socket | None
    until: float
    heard: bytearray = field(default_factory=bytearray)
    outcome: CheckOutcome | None = None
    stays: bool = False

    @property
    def gone(self) -> bool:
        """Whether it was reaped, and its socket read to the end."""
        return self.pid is None and self.socket is None


class Runner:
    """Runs one round at a time. Main thread only; the caller polls `filenos` until `wake`, and then calls `collect`.

    Other code must not kill, sweep or reap `pids`. A process that cannot be killed keeps its examiner among them
    after the round, until it ends; its check fails at once meanwhile, so that there is never a second one.
    """

    def __init__(self, job: Job, node: Node, commands: Mapping[str, Sequence[str]]) -> None:
        self._environ = {"FT_SUPERVISOR_NODE": node.name, "FT_SUPERVISOR_RUN_ID": job.run_id}
        self._commands = commands
        self._round: Round | None = None
        self._now: list[_Examiner] = []
        """The examiners of the round."""
        self._former: list[_Examiner] = []
        """Examiners of former rounds that are not gone yet."""

    @property
    def pids(self) -> list[int]:
        """The pids of the examiners: other code must not touch them, or what is below them."""
        return [examiner.pid for examiner in (*self._now, *self._former) if examiner.pid is not None]

    def filenos(self) -> list[int]:
        """Return the file descriptors to poll for reading, besides SIGCHLD."""
        return [examiner.socket.fileno() for examiner in (*self._now, *self._former) if examiner.socket is not None]

    @property
    def wake(self) -> float | None:
        """When to call `collect` although no file descriptor is readable (time.monotonic); None: not at all."""
        if self._round is not None and all(examiner.outcome is not None for examiner in self._now):
            return 0.0
        return min((examiner.until for examiner in self._now if examiner.outcome is None), default=None)

    def begin(self, round_: Round) -> None:
        """Start all checks of the round; `collect` returns their outcomes within the round's bound."""
        if self._round is not None:
            raise RuntimeError(f"round {self._round.number} is not over")
        self._round = round_
        self._now = [self._start(check) for check in round_.checks]

    def collect(self) -> tuple[Round, tuple[CheckOutcome, ...]] | None:
        """Return the round that is over now, with the outcomes of its checks in their order; None if none is.

        Waits only for examiners that do not answer: _SWEEP_PIECE seconds each, to end them.
        """
        for examiner in (*self._now, *self._former):
            _hear(examiner)
            lives_on = _reap(examiner) and examiner.socket is None
            if time.monotonic() >= examiner.until and (examiner.outcome is None or lives_on):
                _give_up(examiner)
        self._former = [examiner for examiner in self._former if not examiner.gone]
        outcomes = tuple(examiner.outcome for examiner in self._now if examiner.outcome is not None)
        if self._round is None or len(outcomes) < len(self._now):
            return None
        round_, self._round = self._round, None
        self._former += [examiner for examiner in self._now if not examiner.gone]
        self._now = []
        return round_, outcomes

    def end(self, bound: float) -> Collection[int]:
        """End the examiners and all below them. Returns the pids that still live a moment after `bound` seconds.

        `collect` does not return this round any more.
        """
        examiners, self._now, self._former, self._round = [*self._now, *self._former], [], [], None
        for examiner in examiners:
            _close(examiner)  # they know what it means
        _await(examiners, bound)
        for examiner in examiners:
            _kill(examiner)
        _await(examiners, _SWEEP_PIECE)
        return [examiner.pid for examiner in examiners if examiner.pid is not None]

    def _start(self, check: Check) -> _Examiner:
        stuck = {former.check.name for former in self._former if former.stays and former.pid is not None}
        if check.name in stuck:
            return _failed(check, "the one before cannot be killed")
        code = "-" if check.command else str(UNCHECKED_CODE)
        command = check.command or self._commands[check.name]
        arguments = [check.name, repr(check.timeout), str(check.retries), code, *command]
        environ = {**os.environ, **self._environ, "FT_SUPERVISOR_CHECK": check.name}
        try:
            pid, ours = _spawn([*_EXAMINER, *arguments], environ)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in it
            return _failed(check, f"cannot be started: {error}")
        return _Examiner(check, pid, ours, time.monotonic() + time_allowed(check))


def _spawn(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, socket.socket]:
    """Return its pid and the other end of the socket that is its stdin. Raises OSError, ValueError."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = signals.spawn(command, environ, [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)])
        except BaseException:
            ours.close()
            raise
    return pid, ours


def _failed(check: Check, reason: str) -> _Examiner:
    """Return an examiner that could not be started."""
    return _Examiner(check, None, None, 0.0, outcome=CheckOutcome(check.name, Result.FAILED, reason))


def _hear(examiner: _Examiner) -> None:
    if examiner.socket is None:
        return
    try:
        data = examiner.socket.recv(_MAX_ANSWER, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    except ConnectionError:
        data = b""
    examiner.heard += data
    examiner.stays = examiner.heard.endswith(b"\n\n")
    if examiner.outcome is None and (examiner.stays or not data):
        examiner.outcome = _outcome(examiner)
    if not data:
        _close(examiner)


def _outcome(examiner: _Examiner) -> CheckOutcome:
    line, end, _ = bytes(examiner.heard).partition(b"\n")
    try:
        if end:
            outcome: CheckOutcome = codec.decode(line, [CheckOutcome])
            return outcome
        why = "the process that runs it was killed"
    except codec.CodecError as error:
        why = str(error)
    # that says nothing of the node
    return CheckOutcome(examiner.check.name, Result.UNCHECKED, why)


def _give_up(examiner: _Examiner) -> None:
    """End an examiner that has not answered, neither with an outcome nor by its own bound."""
    name, bound = examiner.check.name, time_allowed(examiner.check)
    examiner.outcome = examiner.outcome or CheckOutcome(name, Result.FAILED, f"no answer within {bound:g} s")
    examiner.stays, examiner.until = True, time.monotonic() + _SWEEP_PAUSE
    _close(examiner)
    _kill(examiner)


def _close(examiner: _Examiner) -> None:
    if examiner.socket is not None:
        examiner.socket.close()
        examiner.socket = None


def _reap(examiner: _Examiner) -> bool:
    """Return whether it still lives."""
    if examiner.pid is not None:
        try:
            if os.waitpid(examiner.pid, os.WNOHANG)[0]:
                examiner.pid = None
        except ChildProcessError:
            examiner.pid = None
    return examiner.pid is not None


def _await(examiners: Sequence[_Examiner], bound: float) -> None:
    """Wait for their ends, so long at most."""
    until = time.monotonic() + bound
    while sum(map(_reap, examiners)) and time.monotonic() < until:  # not any(), which asks no further than the first
        time.sleep(0.005)


def _kill(examiner: _Examiner) -> None:
    """Kill all below the examiner, then itself: without it nothing would say whose the rest is."""
    if _reap(examiner) and examiner.pid is not None and not _left(examiner.pid):
        os.kill(examiner.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own


def _left(pid: int) -> bool:
    """Sweep below this process. Returns whether anything is, or may be, left."""
    try:
        return bool(tree.sweep(pid, (), _SWEEP_PIECE))
    except OSError:  # nobody can look just now
        return True
