"""Looks whether the workers' command is there: its program, and the script of a Python program."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

_PYTHON = re.compile(r"python[0-9.]*")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take the next argument."""


def missing(command: Sequence[str], env: Sequence[tuple[str, str]], folder: Path, environ: Mapping[str, str]) -> str:
    """Return what of the command does not exist on this machine, in one line; "" if nothing is known to be missing.

    `env`: workers.env; `folder`: where the workers run; `environ`: the variables that they inherit.
    """
    program, path = command[0], {**environ, **dict(env)}.get("PATH", os.defpath)
    if "/" in program:
        if _is_missing(folder / program):
            return f"there is no {folder / program}"
    elif shutil.which(program, os.F_OK, path) is None:
        return f"there is no {program} in PATH"
    script = _script(command)
    if script and _is_missing(folder / script):
        return f"there is no {folder / script}"
    return ""


def _is_missing(path: Path) -> bool:
    """Whether it does not exist, as far as this user may know."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _script(command: Sequence[str]) -> str:
    """Return the script that Python is to run; "" for another program, a module, code, or the standard input."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return ""
    rest = iter(command[1:])
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return word
        elif word == "-" or re.match(r"-[a-zA-Z]*[cm]", word):
            return ""
    return ""
