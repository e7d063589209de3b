"""The `ft-supervisor` command: the daemon when it begins with an option, else the subcommand that it begins with.

The daemon runs beside the training on every node, so its way through here imports neither typer nor rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

CANCELLED = 130
INTERRUPTED = 75
HELP = ("-h", "--help", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of the process, and return the exit code. May raise SystemExit."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0].startswith("-") and words[0] not in HELP:
        return _daemon(words)
    try:
        return _command(words)
    except KeyboardInterrupt:  # before the command has begun, which handles it itself later
        return CANCELLED


def _daemon(words: list[str]) -> int:
    from ft_supervisor.process import signals

    try:
        with signals.held():  # until it has its handlers: it imports and reads files first
            from ft_supervisor.cli import daemon

            return daemon.main(words)
    except KeyboardInterrupt:  # one that came before this, or that the daemon has not handled
        return CANCELLED


def _command(words: list[str]) -> int:
    from ft_supervisor.cli import app
    from ft_supervisor.cli.errors import complain
    from ft_supervisor.cli.output import abandon
    from ft_supervisor.process.threads import guard

    def fail(error: str) -> None:
        complain(error)
        os._exit(INTERRUPTED)

    guard(fail)
    try:
        return app.main(words)
    except OSError as error:  # of stdout; on a full disk, for example
        abandon(sys.stdout)
        return complain(error)
