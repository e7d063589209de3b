"""The stack of a process's main thread, as text of Python's faulthandler or of py-spy: its hash, which is the same for
ranks that are in the same place, and the line of it that people know. Pure.

The hash leaves out what differs from rank to rank although the place is the same: folders, the lines inside of torch
and the standard library, the frames by which a script was started, and how a function is nested.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+")
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.+)$')
_LIBRARY = re.compile(
    r"^<frozen |/(?:site|dist)-packages/torch/|/lib/python3(?:\.\d+)?/(?!site-packages/|dist-packages/)"
)
_LOADER = "/torch/utils/data/"
_START = re.compile(r"^<frozen runpy>|/runpy\.py$|/ft_supervisor/|^<shim>$")
"""Frames that depend on how the script was started."""
_TEXT, _HASH = 200, 16
"""Characters of a frame's text, and of a hash."""


@dataclass(frozen=True)
class Frame:
    """One line of a stack. `function` is without the class and functions that it is in."""

    path: str
    line: int
    function: str

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def known(self) -> bool:
        """Whether this is outside of torch and the standard library."""
        return not _LIBRARY.search(self.path)


def by_faulthandler(text: str) -> tuple[Frame, ...]:
    """Return the main thread's frames, innermost first: faulthandler prints that thread last. () if there are none."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(Frame(found[1], int(found[2]), _bare(found[3])))
    return tuple(threads[-1]) if threads else ()


def by_py_spy(text: str, pid: int) -> tuple[Frame, ...]:
    """Return the main thread's frames in py-spy's JSON, innermost first; () where there are none."""
    for thread in threads(text):
        if thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread":
            return tuple(
                Frame(str(frame["filename"]), int(frame["line"]), _bare(str(frame["name"])))
                for frame in thread["frames"]
            )
    return ()


def threads(text: str) -> list[dict[str, Any]]:
    """Return the threads in py-spy's JSON; [] if it is none."""
    try:
        found = json.loads(text)
        whole = isinstance(found, list) and all(
            {"filename", "line", "name"} <= frame.keys() for thread in found for frame in thread["frames"]
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return found if whole else []


def hashed(frames: Sequence[Frame], state: str = "") -> str:
    """Return the hash of a stack; "" if there is none. `state`: of a process that stands still, which is a place of its
    own."""
    places = [_place(frame) for frame in frames if not _START.search(frame.path)]
    if not places and not state:
        return ""
    return hashlib.sha256("\n".join([*places, state]).encode(errors="replace")).hexdigest()[:_HASH]


def shown(frames: Sequence[Frame]) -> str:
    """Return the innermost line outside of torch and the standard library, else the innermost one; "" if there is none.
    A line that waits for torch's data loader says so."""
    if not frames:
        return ""
    at = next((i for i, frame in enumerate(frames) if frame.known and not _START.search(frame.path)), 0)
    frame = frames[at]
    text = f"{frame.file}:{frame.line} in {frame.function}"
    return (text + (", in torch's data loader" if _loads(frames[:at]) else ""))[:_TEXT]


def _loads(inner: Iterable[Frame]) -> bool:
    return any(_LOADER in frame.path for frame in inner)


def _place(frame: Frame) -> str:
    return f"{frame.file}:{frame.line}:{frame.function}" if frame.known else f"{frame.file}:{frame.function}"


def _bare(name: str) -> str:
    """Return the function's own name: py-spy and faulthandler differ in what they put before it."""
    return name.rpartition(".")[2]
