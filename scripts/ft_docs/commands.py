"""Makes docs/reference/commands.md from the --help of every command, on a terminal of 80 columns."""

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
"""The words that run the daemon: it has no subcommand, and begins with an option."""
INTRO = """\
The output of each command for `--help`. All commands print each error as one line on stderr, and exit with 2 when the
command line or the configuration is wrong; [Exit codes](exit-codes.md) has the other codes."""


def names() -> list[tuple[str, ...]]:
    """Return the words of every command, without ft-supervisor: (), then launch and so on, and (policy, explain)."""
    return list(_names(typer.main.get_command(app), ()))


def _names(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _names(below, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    """Return the output of the command for --help."""
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
    """Return the whole page."""
    parts = []
    for words in names():
        parts += [f"## {' '.join(['ft-supervisor', *words])}", f"```text\n{help_of(words)}\n```"]
    daemon = ["## ft-supervisor --config FILE", f"```text\n{help_of(DAEMON)}\n```"]
    return page("Commands", INTRO, *parts, *daemon)
