"""Finds the exception that a worker has printed last, for workers that leave no error file. Pure.

A line looks like an exception if it ends a Python traceback, whatever the class is called, or if it begins with a class
whose name ends as those of exceptions do. C++'s and the interpreter's own last words count as well. Where an exception
group was printed, its last member is found. A launcher's exception says only that its child has failed: one before it
is preferred.
"""

from __future__ import annotations

import re

from ft_supervisor.core.words import one_line, printable, without_escapes

_LINES = 400
"""The last lines of the output that are looked at: an exception before them was handled, most likely."""
_LONGEST = 4096
"""Bytes of one line that are looked at."""
_LEAST_STACK = 2
"""Blanks before each line of a traceback's stack."""

_RANK = re.compile(r"\[rank\d+\]: ?")
"""torch's prefix of each line of a traceback (torch.distributed's sys.excepthook)."""
_GROUP = re.compile(r"\s*[|+] ?")
"""Beginning of each line below an exception group."""
_HEAD = re.compile(r"(Exception Group )?Traceback \(most recent call last\):")
_ANY_CLASS = re.compile(r"(?:\w+\.)*[A-Za-z_]\w*(?:: .*|:|)")
_CLASS = re.compile(r"(?:\w+(?:\.|::))*[A-Z]\w*(?:Error|Exception|Interrupt|ExceptionGroup)(?:: .*|:|)")
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']+)'")
_WHAT = re.compile(r"\s*what\(\):\s*(.*)")
_FATAL = re.compile(r"Fatal Python error: .*")
_ABORTED = "Fatal Python error: Aborted"
"""It follows C++'s own words."""
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException")


def last_exception(tail: bytes) -> str:
    """Return the last exception in a worker's output as one line, `ValueError: loss is nan`; "" if there is none.
    `tail`: the end of the output, stdout and stderr as they came."""
    lines = [_plain(raw) for raw in tail.split(b"\n")[-_LINES:]]
    found = [_with_text(each, lines, number) for number, each in _candidates(lines)]
    words = [each for each in found if each != _ABORTED and not _is_launchers(each)] or found
    return one_line(words[-1]) if words else ""


def _plain(raw: bytes) -> str:
    text = without_escapes(raw[:_LONGEST].decode(errors="replace").rstrip()).rpartition("\r")[2].expandtabs()
    return printable(_RANK.sub("", text, count=1))


def _candidates(lines: list[str]) -> list[tuple[int, str]]:
    """Return (number, text) of each line that is an exception, in order."""
    found: list[tuple[int, str]] = []
    stack = False
    for number, line in enumerate(lines):
        grouped = _GROUP.match(line)
        text = line[grouped.end() :] if grouped else line
        if _HEAD.match(text.lstrip(" +|")):
            stack = True
        elif stack and text.startswith(" " * _LEAST_STACK):
            continue
        elif (stack and _ANY_CLASS.fullmatch(text) and text) or _CLASS.fullmatch(text) or _FATAL.fullmatch(text):
            found.append((number, text))
            stack = False
        elif thrown := _THROWN.match(text):
            found.append((number, f"{thrown[1]}:"))
            stack = False
        elif text:
            stack = False
    return found


def _with_text(exception: str, lines: list[str], number: int) -> str:
    """Return the exception with its text, which may be in the next line."""
    if not exception.endswith(":"):
        return exception
    following = next((line for line in lines[number + 1 : number + 3] if line.strip()), "")
    if what := _WHAT.match(following):
        return f"{exception} {what[1]}"
    return exception[:-1] if not following or _is_launchers(exception) else f"{exception} {following.strip()}"


def _is_launchers(exception: str) -> bool:
    return exception.partition(":")[0].endswith(_LAUNCHERS)
