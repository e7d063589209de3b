"""Finds the Python interpreter in a worker's command, so that it can be started before there is a script to run.

`numactl -N 0 python3 -u train.py --lr 1` is an interpreter with its options, `numactl -N 0 python3 -u`, and what it
runs, `train.py --lr 1`. The options are those of CPython's command line, which has the same ones since 3.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

_PYTHON = re.compile(r"python(\d+(\.\d+)*t?)?")
_SHELL = re.compile(r"(ba|da|z|k|c|tc|fi)?sh")
_WITH_VALUE = "WX"
"""Options whose value is the rest of the word, or the next word; c and m have one too, and end the options."""
_LONG_WITH_VALUE = "--check-hash-based-pycs"
_REFUSED = {
    "V": "prints the version",
    "h": "prints the help",
    "?": "prints the help",
    "x": "skips the script's first line",
}


class NoInterpreter(ValueError):
    """The command cannot be started ahead; the text is the reason, one line."""


@dataclass(frozen=True)
class Interpreter:
    """A command in two parts. `start`: the interpreter with its options and all before it; `runs`: the script or
    ("-m", module), and their arguments."""

    start: tuple[str, ...]
    runs: tuple[str, ...]


def find_interpreter(command: Sequence[str]) -> Interpreter:
    """Return both parts of the command. Raises NoInterpreter."""
    at = next((at for at, word in enumerate(command) if _PYTHON.fullmatch(_base(word))), None)
    _refuse_shell(command if at is None else command[:at])
    if at is None:
        raise NoInterpreter(f"no word of it is a Python interpreter: it runs {_base(command[0])}")
    words = _Words(command, at + 1)
    while (word := words.peek()) is not None:
        if word == "--":
            words.take()
            break
        if word == "-":
            raise NoInterpreter("the script comes from standard input (python -)")
        if not word.startswith("-"):
            break
        if (module := _option(words)) is not None:
            return Interpreter(tuple(command[: words.option_at]) + module.start, module.runs)
    if words.peek() is None:
        raise NoInterpreter("the interpreter has neither a script nor -m")
    return Interpreter(tuple(command[: words.at]), words.rest())


class _Words:
    """The words after the interpreter, one after another. `option_at`: where the last option began."""

    def __init__(self, command: Sequence[str], at: int) -> None:
        self.at = at
        self.option_at = at
        self._command = command

    def peek(self) -> str | None:
        return self._command[self.at] if self.at < len(self._command) else None

    def take(self) -> str | None:
        word = self.peek()
        self.at += 1
        return word

    def rest(self) -> tuple[str, ...]:
        return tuple(self._command[self.at :])


def _option(words: _Words) -> Interpreter | None:
    """Take one word of options, and their value. Return what -m makes of it: the options before it in the same word,
    and what runs; None for other options. Raises NoInterpreter."""
    words.option_at = words.at
    word = words.take() or ""
    if word.startswith("--"):
        if word == _LONG_WITH_VALUE:
            words.take()
        elif not word.startswith(f"{_LONG_WITH_VALUE}="):
            raise NoInterpreter(f"{word} prints something and ends, or is no option of Python's")
        return None
    for letter, rest in _letters(word):
        if letter == "c":
            raise NoInterpreter("the code is in the command (python -c); put it into a file")
        if letter in _REFUSED:
            raise NoInterpreter(f"-{letter} {_REFUSED[letter]}")
        if letter == "m":
            module = rest or words.take()
            if module is None:
                raise NoInterpreter("-m has no module")
            before = word[: len(word) - len(rest) - 1]
            return Interpreter(() if before == "-" else (before,), ("-m", module, *words.rest()))
        if letter in _WITH_VALUE:
            if not rest:
                words.take()
            break
    return None


def _letters(word: str) -> Iterator[tuple[str, str]]:
    """Yield each option of a word such as -uB, with what follows it there."""
    for at in range(1, len(word)):
        yield word[at], word[at + 1 :]


def _refuse_shell(before: Sequence[str]) -> None:
    """A shell that runs a script may run the interpreter at its end; where -c has code, the code decides."""
    for at, word in enumerate(before):
        options = takewhile(lambda option: option.startswith("-"), before[at + 1 :])
        if _SHELL.fullmatch(_base(word)) and any("c" in option for option in options if option[1:2] != "-"):
            raise NoInterpreter(f"{_base(word)} -c runs it; write the program and its arguments as the command")


def _base(word: str) -> str:
    return word.rpartition("/")[2]
