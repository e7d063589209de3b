"""Remains of a function in its process: threads, children, frames of an exception, garbage, memory."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from fnmatch import fnmatchcase
from typing import Any

from . import torch_groups
from .connection import OWN_THREADS

_ENDING = 1.0
"""Seconds in which the function's threads may still end after it."""
_TOLD = 50, 100
"""How many threads that are left behind are told by name, and the characters of a name: a message has a bound."""
_HELPERS = [
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
]
"""Processes that the standard library starts on its own and leaves running: module, object, attribute."""
_GROWTH = 1.1, 64
"""A process that uses more memory than this times what it used after the first cycle, and these MiB on top, may hold
garbage that gc.freeze() has hidden from the collector."""

_before: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_names = {f"{OWN_THREADS}*"}
_kept: weakref.WeakSet[Any] = weakref.WeakSet()
_kept_pids: set[int] = set()
_collections = 0
_used_at_first = 0


def keep(*things: Any) -> None:
    """Let processes live on from one cycle to the next: a process (anything with a `pid`), a pid, or a DataLoader with
    persistent workers. They must hold nothing of a cycle. A child that is not kept costs this process, and so does the
    death of a kept DataLoader's worker. Raises TypeError for anything else."""
    for thing in things:
        if isinstance(thing, int):
            _kept_pids.add(thing)
        elif hasattr(thing, "pid") or hasattr(thing, "_iterator"):
            _kept.add(thing)
        else:
            raise TypeError(f"{thing!r} is no process, no pid and no DataLoader")


def allow_thread(name: str) -> None:
    """Let threads of this name, or pattern such as `writer-*`, live on from one cycle to the next. Any other thread
    that the function leaves behind costs the process."""
    _names.add(name)


def remember_threads() -> None:
    """Let all threads that live now live on."""
    _before.update(threading.enumerate())


def threads() -> list[str]:
    """Return the names of threads that the function has left behind; it waits up to 1 s for them to end."""
    bound = time.monotonic() + _ENDING
    while True:
        allowed = {id(thread) for thread in _living()[1]}
        left = [thread for thread in threading.enumerate() if id(thread) not in allowed and not _may_live(thread)]
        if not left or time.monotonic() > bound:
            return sorted(thread.name[: _TOLD[1]] for thread in left)[: _TOLD[0]]
        left[0].join(0.02)


def _may_live(thread: threading.Thread) -> bool:
    # C++ code that calls Python in a thread of its own, such as autograd's, leaves a dummy thread in the list
    foreign = isinstance(thread, threading._DummyThread)
    return foreign or thread in _before or any(fnmatchcase(thread.name, name) for name in _names)


def processes() -> list[int]:
    """Return the pids of children that may live on, with all that lives below them."""
    return sorted(_living()[0])


def _living() -> tuple[set[int], list[Any]]:
    compilers, readers = torch_groups.compile_pools()
    found: set[int | None] = {*_kept_pids, *compilers}
    living: list[Any] = [*readers]
    for thing in list(_kept):
        iterator = getattr(thing, "_iterator", None)
        found |= {process.pid for process in (_workers(thing) if hasattr(thing, "_iterator") else (thing,))}
        living.append(getattr(iterator, "_pin_memory_thread", None))
        living += [getattr(index, "_thread", None) for index in getattr(iterator, "_index_queues", ())]
    for module, owner, name in _HELPERS:
        found.add(getattr(getattr(sys.modules.get(module), owner, None), name, None))
    return {pid for pid in found if pid}, living


def check_loaders() -> None:
    """Raise RuntimeError if a kept DataLoader has lost a worker. It waits for that worker's batches for ever more, and
    has no way to start another one."""
    for thing in list(_kept):
        if dead := [process.pid for process in _workers(thing) if getattr(process, "exitcode", None) is not None]:
            raise RuntimeError(f"a kept DataLoader has lost its worker {dead[0]}")


def _workers(thing: Any) -> Any:
    """Return the processes of a DataLoader, of torch.utils.data.dataloader._MultiProcessingDataLoaderIter."""
    return getattr(getattr(thing, "_iterator", None), "_workers", ())


def release_frames(error: BaseException | None) -> None:
    """Clear the local variables that an exception keeps alive: objects that hold a process group may be among them."""
    import traceback  # its import takes milliseconds

    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        sys.__dict__.pop(name, None)
    seen: set[int] = set()
    todo = [error]
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            if each.__traceback__ is not None:
                traceback.clear_frames(each.__traceback__)
                each.__traceback__ = None
            todo += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def collect() -> None:
    """Collect garbage. The first two times, before and after the function's first call, all objects that are left, such
    as imported modules, are frozen: a full collection between two cycles then takes 0.2 ms instead of 1.5 s. Frozen
    objects can become garbage later: when memory grows, they are thawed and collected, and never frozen again."""
    global _collections, _used_at_first
    gc.collect()
    _collections += 1
    used = memory() + torch_groups.gpu_memory()
    if _collections <= 2:
        gc.freeze()
        _used_at_first = used
    elif gc.get_freeze_count() and used > _used_at_first * _GROWTH[0] + _GROWTH[1]:
        gc.unfreeze()
        gc.collect()


def usage() -> dict[str, int]:
    """Return what this process uses now: MiB of memory, and the number of its threads, those of C++ libraries too."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no import of pathlib
    return {"memory": memory(), "gpu_memory": torch_groups.gpu_memory(), "thread_count": threads}


def memory() -> int:
    """Return the MiB of resident memory, proc_pid_statm(5), without files': a data set that is mapped is no growth."""
    from pathlib import Path  # its import takes milliseconds

    resident, of_files = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE") >> 20
