"""The daemon's health checks: each is run by a process of its own (examiner.py), which this starts, hears and ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ft_supervisor.core import codec
from ft_supervisor.core.health_types import DISK, GPU, CheckOutcome, Result, Round, time_allowed
from ft_supervisor.core.model import Job, Node
from ft_supervisor.core.settings import Check
from ft_supervisor.process import signals, tree

UNCHECKED_CODE = 3
"""The exit code of a built-in check that could not look."""
_MAX_ANSWER = 2**16
_SWEEP_PIECE = 0.2
"""Seconds that the end of one silent examiner may keep the daemon's loop."""
_SWEEP_PAUSE = 5.0
"""Seconds until that is tried again."""
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
    """The commands of the built-in checks, for Runner. `gpus`: how many there have to be; None if nobody has said."""
    disk = (sys.executable, "-I", "-S", str(Path(__file__).with_name("disk.py")))
    gpu = (sys.executable, "-P", "-m", "ft_supervisor.daemon.nvml")
    return {
        DISK: (*disk, str(job.settings.health.min_free or 0), node.name, job.run_folder, job.local_folder),
        GPU: gpu if gpus is None else (*gpu, "--expect", str(gpus)),
    }


@dataclass
class _Examiner:
    """The process that runs one check. `outcome`: what it has said, or what is said of it. `pid` None: reaped. `stays`:
    something below it cannot be killed."""

    check: Check
    pid: int | None
    socket: socket.socket | None
    until: float
    heard: bytearray = field(default_factory=bytearray)
    outcome: CheckOutcome | None = None
    stays: bool = False

    @property
    def gone(self) -> bool:
        """Whether it was both reaped and heard to its end."""
        return self.pid is None and self.socket is None


class Runner:
    """One round at a time. Main thread only; the caller polls `filenos` until `wake`, and then asks `collect`.

    `pids` are for nobody else to kill, sweep or reap. A process that cannot be killed keeps its examiner among them
    after the round, until it ends; its check fails at once meanwhile, so that there is never a second one.
    """

    def __init__(self, job: Job, node: Node, commands: Mapping[str, Sequence[str]]) -> None:
        self._environ = {"FT_SUPERVISOR_NODE": node.name, "FT_SUPERVISOR_RUN_ID": job.run_id}
        self._commands = commands
        self._round: Round | None = None
        self._now: list[_Examiner] = []
        """Those of the round."""
        self._former: list[_Examiner] = []
        """Those of rounds that are over, and who are not gone yet."""

    @property
    def pids(self) -> list[int]:
        """Our children: to be left alone, with all below them."""
        return [examiner.pid for examiner in (*self._now, *self._former) if examiner.pid is not None]

    def filenos(self) -> list[int]:
        """What to poll for reading, besides SIGCHLD."""
        return [examiner.socket.fileno() for examiner in (*self._now, *self._former) if examiner.socket is not None]

    @property
    def wake(self) -> float | None:
        """When to ask `collect` although no file descriptor says so (time.monotonic); None: not at all."""
        if self._round is not None and all(examiner.outcome is not None for examiner in self._now):
            return 0.0
        return min((examiner.until for examiner in self._now if examiner.outcome is None), default=None)

    def begin(self, round_: Round) -> None:
        """Start all its checks; `collect` tells of their end within the round's bound."""
        if self._round is not None:
            raise RuntimeError(f"round {self._round.number} is not over")
        self._round = round_
        self._now = [self._start(check) for check in round_.checks]

    def collect(self) -> tuple[Round, tuple[CheckOutcome, ...]] | None:
        """The round that is over now, and what came of its checks, in their order. Waits for nobody but those that do
        not answer: _SWEEP_PIECE seconds each, to end them."""
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
        """End what runs, with all that it has started; the pids that still live after `bound` seconds and a moment. No
        `collect` tells of this round any more."""
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
    """Its pid, and the other end of the socket that is its stdin. Raises OSError, ValueError."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            pid = signals.spawn(command, environ, [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)])
        except BaseException:
            ours.close()
            raise
    return pid, ours


def _failed(check: Check, reason: str) -> _Examiner:
    """One that there never was."""
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
    """Neither the check nor the process that should have ended it has answered."""
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
    """Whether it still lives."""
    if examiner.pid is not None:
        try:
            if os.waitpid(examiner.pid, os.WNOHANG)[0]:
                examiner.pid = None
        except ChildProcessError:
            examiner.pid = None
    return examiner.pid is not None


def _await(examiners: Sequence[_Examiner], bound: float) -> None:
    """Their ends, so long at most."""
    until = time.monotonic() + bound
    while sum(map(_reap, examiners)) and time.monotonic() < until:  # not any(), which asks no further than the first
        time.sleep(0.005)


def _kill(examiner: _Examiner) -> None:
    """What it has started first, and not itself before that is gone: nobody would know any more whose that is."""
    if _reap(examiner) and examiner.pid is not None and not _left(examiner.pid):
        os.kill(examiner.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own


def _left(pid: int) -> bool:
    """Whether anything is, or may be, below this process after a sweep."""
    try:
        return bool(tree.sweep(pid, (), _SWEEP_PIECE))
    except OSError:  # nobody can look just now
        return True
