"""Ends all that torch holds of a cycle: process groups, connections to their store, work on the GPU.

Standard library only: torch is used where the training has imported it, and never imported from here. Private parts
of torch are used as they are in torch 2.13.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

_TAG = 0x7FFFFFFF
"""The tag of a receive that never gets data: no other code uses it, and gloo takes no greater one."""
_TABLES = (
    "pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg", "pg_coalesce_state"
)  # fmt: skip
"""Attributes of torch.distributed.distributed_c10d._world, all that destroy_process_group() clears."""

Group = tuple[Any, tuple[Any, ...]]
"""A torch.distributed.ProcessGroup and its backends."""


def groups() -> list[Group]:
    """Return all process groups of this process. As long as the list lives none of them is destructed: gloo's
    destructor waits for the operations that are under way, until the group's timeout. And a list that lives longer than
    the DDP objects is the last that holds a group: Python's reference is given up without the interpreter's lock, DDP's
    with it, and then the destructor may wait for ever for a thread that waits for the lock (pytorch #56297)."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(c10d, "_world", None)  # absent while another thread still imports torch
    return [(group, _backends(group)) for group in list(world.pg_map)] if world is not None else []


def _backends(group: Any) -> tuple[Any, ...]:
    found = []
    for device in getattr(group, "_device_types", ()):
        with suppress(RuntimeError):  # no backend for this device
            backend = group._get_backend(device)
            while hasattr(backend, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL
                backend = backend.wrapped_pg
            found.append(backend)
    return tuple(found)


def abort(found: list[Group]) -> None:
    """End all operations that are under way in these groups, for any thread. Groups that have another backend than gloo
    are removed from torch's tables, too. NCCL's abort may hang (pytorch #119215): the agent bounds the time."""
    others = False
    for _, backends in found:
        for backend in backends:
            if type(backend).__name__ == "ProcessGroupGloo":
                _abort_gloo(backend)
            else:
                others = True
    if others:
        _abort_others(found)


def _abort_gloo(backend: Any) -> None:
    """End all pending operations of a gloo group, which has no abort: a receive that times out does so. It also closes
    the group's connections, by which the other ranks notice it."""
    rank, size = backend.rank(), backend.size()
    if size > 1:
        with suppress(RuntimeError):  # the timeout, or the group's connections are closed already
            from datetime import timedelta  # its import takes a millisecond, which not every start should pay

            place = sys.modules["torch"].zeros(1)
            backend.recv([place], (rank + 1) % size, _TAG).wait(timedelta(milliseconds=1))


def _abort_others(found: list[Group]) -> None:
    """Abort all other groups. torch aborts their communicators as one NCCL group, so that no abort waits for
    another."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    try:
        c10d._abort_process_group()
    except (AssertionError, ValueError):  # the function has destroyed the default group meanwhile
        for group, _ in found:
            group.abort()


def close_store(address: str, port: int) -> None:
    """Shut all connections of this process to a store, so that a thread that waits there gets an error. `address` may
    be a name. Sockets that listen are left alone."""
    from pathlib import Path  # its import takes milliseconds

    with suppress(OSError):
        hosts = {str(info[4][0]) for info in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)}
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # closed meanwhile, or not connected
                if str(entry.readlink()).startswith("socket:"):
                    _shut(int(entry.name), hosts, port)


def _shut(descriptor: int, hosts: set[str], port: int) -> None:
    own = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    with connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            host, peer_port = connection.getpeername()[:2]
            if peer_port == port and host.removeprefix("::ffff:") in hosts:
                connection.shutdown(socket.SHUT_RDWR)


def destroy() -> None:
    """Destroy all process groups. Only after `abort`: with an operation under way it would wait for that."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and c10d.is_initialized():
        c10d.destroy_process_group()
    elif c10d is not None:
        _clear_tables(c10d)


def _clear_tables(c10d: Any) -> None:
    """Forget a default group that was never finished. Its number is counted already, and is part of the keys by which
    ranks find each other in the store: the next group would have another name than on a rank that came later."""
    for name in _TABLES:
        getattr(c10d._world, name).clear()
    c10d._unregister_all_process_groups()
    c10d._world.group_count = 0


def synchronize() -> None:
    """Wait for the GPU. Raises CUDA's error: after an illegal address, for example, a process is of no use."""
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def gpu_memory() -> int:
    """Return the MiB that tensors on the GPU take; 0 without one."""
    cuda: Any = sys.modules.get("torch.cuda")
    return cuda.memory_allocated() >> 20 if cuda is not None and cuda.is_initialized() else 0


def compile_pools() -> tuple[list[int], list[threading.Thread]]:
    """Return the processes and threads in which torch.compile compiles. They hold nothing of a cycle."""
    compiling: Any = sys.modules.get("torch._inductor.async_compile")
    pools = [pool for pool in getattr(compiling, "_pool_set", ()) if hasattr(pool, "read_thread")]
    return [pool.process.pid for pool in pools], [pool.read_thread for pool in pools]
