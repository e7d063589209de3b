"""Writes all that a worker can see of itself to the file in its first argument, as JSON, and ends with exit code 7.

Run as a script, or as `-m`. Other arguments are kept for it to see.
"""

import ctypes
import fcntl
import gc
import json
import locale
import os
import resource
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER = 2, 37
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


class Local:
    """A class of __main__."""


def prctl(option: int) -> int:
    """Return what this option of prctl(2) gives."""
    value = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0) == 0
    return value.value


def status() -> dict[str, str]:
    """Return the lines of /proc/self/status that do not change with time."""
    lines = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    wanted = ("Umask", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs")
    more = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp", "Cpus_allowed_list", "Mems_allowed_list")
    return {name: lines[name] for name in (*wanted, *more, "Name", "Threads", "TracerPid") if name in lines}


def descriptors() -> dict[str, list[Any]]:
    """Return kind, access and inheritance of each open file descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - it opens one itself, which is closed again
        try:
            mode = os.fstat(int(name)).st_mode
            flags = fcntl.fcntl(int(name), fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK)
            found[name] = [stat.S_IFMT(mode), flags, fcntl.fcntl(int(name), fcntl.F_GETFD)]
        except OSError:
            continue
    return found


def stream(file: Any) -> list[Any]:
    """Return what a program can ask a text stream."""
    raw = getattr(file.buffer, "raw", file.buffer)
    return [file.name, file.encoding, file.errors, file.isatty(), file.line_buffering, raw.seekable(), raw.mode]


def main_module() -> dict[str, str]:
    """Return the attributes that Python itself gives __main__."""
    this = sys.modules["__main__"].__dict__
    names = [name for name in this if name.startswith("__")]
    return {name: type(this[name]).__name__ if name == "__loader__" else str(this[name])[:80] for name in names}


def everything() -> dict[str, Any]:
    """Return what this process can see of itself."""
    initial = Path("/proc/self/environ").read_text().split("\0")
    return {
        "environ": dict(os.environ),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "xoptions": sys._xoptions,
        "warnoptions": sys.warnoptions,
        "executable": [sys.executable, sys.prefix, str(Path("/proc/self/exe").readlink())],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "streams": [stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)],
        "standard": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.dont_write_bytecode],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.callbacks],
        "locale": [locale.getlocale(), sys.getfilesystemencoding(), time.tzname],
        "main": main_module(),
        "main is real": [__name__, sys.modules["__main__"].__dict__ is globals(), Local.__module__],
        "threads": [threading.active_count(), threading.current_thread() is threading.main_thread()],
        "cwd": str(Path.cwd()),
        "handlers": {str(number): str(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
        "timers": [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
        "rlimits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
        "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(), os.getpgrp() == os.getpid()],
        "nice": [os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "namespaces": {path.name: str(path.readlink()) for path in Path("/proc/self/ns").iterdir()},
        "status": status(),
        "descriptors": descriptors(),
        "pdeathsig": prctl(PR_GET_PDEATHSIG),
        "subreaper": prctl(PR_GET_CHILD_SUBREAPER),
        "parent": os.getppid(),
        # what a warm worker differs in
        "cmdline": Path("/proc/self/cmdline").read_bytes().decode(),
        "frozen": gc.get_freeze_count() > 0,
        "stack": len(list(_frames())),
        "initial environ": sorted(word.split("=")[0] for word in initial if word),
        "modules": sorted(sys.modules),
    }


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.with_suffix(".part").write_text(json.dumps(everything()))
    path.with_suffix(".part").replace(path)
    print("to stdout")
    print("to stderr", file=sys.stderr)
    sys.exit(7)
