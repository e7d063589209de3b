"""Reports errors of the commands: one line each on stderr and exit code 2, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ft_slurm.errors import SlurmError
from ft_supervisor.cli.output import abandon
from ft_supervisor.config import ConfigError, misspelt
from ft_supervisor.core.protocol.model import CONFIG_ERROR
from ft_supervisor.core.words import one_line


def complain(problem: object) -> int:
    """Print the problem as one line and return the exit code."""
    try:
        if sys.stderr is not None:  # print takes None for stdout
            print(f"ft-supervisor: {one_line(str(problem), 2000)}", file=sys.stderr, flush=True)
    except OSError:
        abandon(sys.stderr)  # the exit code reports it too
    return CONFIG_ERROR


def warn_of_variables() -> None:
    """Print a line for each variable of the environment that is nearly a key's."""
    for line in misspelt(os.environ):
        complain(f"warning: {line}")


def guarded(work: Callable[[], int]) -> int:
    """Return the exit code of `work`; CONFIG_ERROR when the configuration or Slurm's environment is wrong."""
    try:
        return work()
    except ConfigError as error:
        return max(map(complain, error.lines))
    except SlurmError as error:
        return complain(error)
