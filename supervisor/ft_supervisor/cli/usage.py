"""Reports a wrong command line as one line, as all other errors are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import typer

from ft_supervisor.cli.errors import complain
from ft_supervisor.core.protocol.model import CONFIG_ERROR

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""click's UsageError, or that of typer's own copy of click, which has no public name."""
_HELP = "NoArgsIsHelpError"
"""The name of the UsageError whose message is a page of help."""


def report(error: Exception, words: Sequence[str]) -> int:
    """Print what is wrong with `words`, or a page of help where there were none. Return the exit code."""
    message, context = error.format_message(), getattr(error, "ctx", None)  # type: ignore[attr-defined]
    if type(error).__name__ == _HELP:
        typer.echo(message, err=True)
        return CONFIG_ERROR
    text = f"{message.rstrip('.')}{_meant(message, words)}"
    return complain(text if context is None else f"{text}; see `{context.command_path} --help`")


def _meant(message: str, words: Sequence[str]) -> str:
    """Return a hint where a file was given without its option."""
    if "'--config'" not in message:
        return ""
    own = list(takewhile(lambda word: word != "--", words[1:]))
    file = next((word for word in own if word.endswith((".yaml", ".yml"))), None)
    return f"; did you mean --config {file}?" if file else ""
