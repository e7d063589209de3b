"""docs/reference/commands.md: what every command says of itself, on a terminal of 80 columns."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

import typer

from ft_docs.text import page
from ft_supervisor.cli.app import app
from ft_supervisor.cli.main import main

COLUMNS = "80"
DAEMON = ("--config", "FILE")
"""What makes the command the daemon: it begins with an option."""
INTRO = """\
What each command prints for `--help`. All of them print errors as one line on stderr, and exit with 2 when the command
line or the configuration is wrong; what other codes mean is in [Exit codes](exit-codes.md)."""


def names() -> list[tuple[str, ...]]:
    """The words of every command, without ft-supervisor: (), then launch and so on, and (policy, explain)."""
    return list(_names(typer.main.get_command(app), ()))


def _names(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _names(below, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    """What the command prints for --help."""
    said = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return "\n".join(line.rstrip() for line in said.getvalue().strip().splitlines())


def render() -> str:
    """The whole page."""
    parts = []
    for words in names():
        parts += [f"## {' '.join(['ft-supervisor', *words])}", f"```text\n{help_of(words)}\n```"]
    daemon = ["## ft-supervisor --config FILE", f"```text\n{help_of(DAEMON)}\n```"]
    return page("Commands", INTRO, *parts, *daemon)
