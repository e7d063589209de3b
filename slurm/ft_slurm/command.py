"""Runs another program, bounded whatever it does: Slurm's commands wait long for a slurmctld that is away."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ft_slurm.errors import SlurmError

KILL_BOUND = 5.0
"""Seconds that a killed command gets to be gone."""


class Unanswered(SlurmError):
    """There was no answer this time: trying again may help."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed. `code` is negative when a signal ended it.

    Where another part of the process reaps all children, `code` is 0 for a command whose end that part saw: never take
    a 0 alone for a success.
    """

    stdout: str
    stderr: str
    code: int

    @property
    def problem(self) -> str:
        """The last thing it said, in one line."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        ended = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return lines[-1].strip() if lines else ended


def run(command: Sequence[str], timeout: float, environ: Mapping[str, str]) -> Done:
    """Runs the command to its end. After `timeout` seconds it is killed, with the processes that it started.

    Raises Unanswered when it took too long or cannot be started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
            errors="replace",
            start_new_session=True,  # so that a site's wrapper script does not leave the real command behind
        )
    except OSError as error:
        raise Unanswered(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"{command[0]} has not answered within {timeout:.0f} s{_kill(process)}") from error
    except BaseException:
        _kill(process)
        raise
    return Done(stdout, stderr, process.returncode)


def _kill(process: subprocess.Popen[str]) -> str:
    """Ends it and its group, not yet reaped, so that the number is still its own; says so if it can't be ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.communicate(timeout=KILL_BOUND)
    except subprocess.TimeoutExpired:
        return f", nor ended {KILL_BOUND:.0f} s after SIGKILL"
    return ""
