"""Runs another program with a bound on its time and output: Slurm's commands wait long for a slurmctld that is away."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from ft_slurm.errors import OutputTooLong, Unanswered

__all__ = ["CommandResult", "Unanswered", "run"]

TIMEOUT = 60.0
"""Seconds for one question. scontrol itself gave up after 18 s when slurmctld was away (24.11, MessageTimeout=10)."""
KILL_BOUND = 5.0
"""Seconds to wait for a killed command's end."""
LONGEST_OUTPUT = 64 << 20
"""Bytes that a command may print. JSON of a job lists every core of every node."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command. `code` is negative when a signal ended it.

    Where another part of the process reaps all children, `code` is 0 for a command that this other part has reaped. So
    a code of 0 alone is no proof of success.
    """

    stdout: str
    stderr: str
    code: int

    @property
    def problem(self) -> str:
        """Return the last line that the command printed, for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        ended = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return lines[-1].strip() if lines else ended


def run(
    command: Sequence[str], timeout: float, environ: Mapping[str, str], stdin: IO[bytes] | int = subprocess.DEVNULL
) -> CommandResult:
    """Run the command to its end. After `timeout` seconds kill it, with the processes that it started.

    `stdin` is a file for it to read. Raises Unanswered when it took too long or cannot be started, OutputTooLong when
    it printed more than LONGEST_OUTPUT.
    """
    end = time.monotonic() + timeout
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,  # so that a site's wrapper script does not leave the real command behind
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Unanswered(f"{command[0]} cannot be started: {why}") from error
    try:
        stdout, stderr = _read(process, end)
        process.wait(max(0.0, end - time.monotonic()))
    except OutputTooLong as error:
        raise OutputTooLong(f"{command[0]} printed {error}{_kill(process)}") from error
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"{command[0]} has not answered within {timeout:.3g} s{_kill(process)}") from error
    except BaseException:
        _kill(process)
        raise
    finally:
        _close(process)
    return CommandResult(stdout, stderr, process.returncode)


def _read(process: subprocess.Popen[bytes], end: float) -> tuple[str, str]:
    """Return all that the process prints, stdout and stderr. Raises TimeoutExpired, OutputTooLong."""
    said: list[bytearray] = []
    room = LONGEST_OUTPUT
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            said.append(bytearray())
            selector.register(pipe, selectors.EVENT_READ, said[-1])
        while selector.get_map():
            if (seconds := end - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(seconds):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.extend(data)
                room -= len(data)
                if room < 0:
                    raise OutputTooLong(f"more than {LONGEST_OUTPUT} bytes")
    stdout, stderr = (text.decode(errors="replace") for text in said)
    return stdout, stderr


def _kill(process: subprocess.Popen[bytes]) -> str:
    """Kill the process and its group before it is reaped, while its number is still its own. Return the problem if it
    does not end."""
    # Reaped by another part of this process, and gone; or another user's by now, and then not ended either.
    with suppress(ChildProcessError, ProcessLookupError, PermissionError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=KILL_BOUND)
    except subprocess.TimeoutExpired:
        return f", nor ended {KILL_BOUND:.0f} s after SIGKILL"
    return ""


def remaining(end: float) -> float:
    """Return the seconds until `end` of the monotonic clock, for the next of several commands; always above 0."""
    return max(0.1, end - time.monotonic())


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
