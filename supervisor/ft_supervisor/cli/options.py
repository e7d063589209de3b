"""Options and arguments that several commands share, and the command lines of the processes that they start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Option("--config", metavar="FILE", parser=Path, help="The job's YAML file.")]
Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- CMD...]", help="Run this instead of the file's workers.command.", show_default=False),
]


def daemon_line(path: Path, command: Sequence[str]) -> list[str]:
    """Return the command line of the daemon, run by this very interpreter."""
    return _line([], path, command)


def subcommand_line(name: str, path: Path, command: Sequence[str]) -> list[str]:
    """Return that of a subcommand with a configuration and a command, run by this very interpreter."""
    return _line([name], path, command)


def _line(words: Sequence[str], path: Path, command: Sequence[str]) -> list[str]:
    # -P: a user's yaml.py or queue.py must not be imported instead of the real one.
    line = [sys.executable, "-P", "-m", "ft_supervisor", *words, "--config", str(path.absolute())]
    return [*line, "--", *command] if command else line
