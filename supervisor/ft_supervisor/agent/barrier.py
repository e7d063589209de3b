"""Enters torch's own exit barrier beside everything else: a hint to other nodes, which look for a verdict then.

Nothing here waits for it, and it ends no node: anyone who reaches the store can set its key.
"""

from __future__ import annotations

import threading

from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.agent.server.api import _TERMINAL_STATE_SYNC_ID
from torch.distributed.elastic.utils.store import barrier

from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.process.log import log
from ft_supervisor.store import tcp
from ft_supervisor.store.keys import Keys


def enter(job: Job, address: tuple[str, int] | None, cycle: Cycle, world_size: int) -> None:
    """Enter the exit barrier of `cycle` in a thread with a connection of its own, to the store at `address`."""
    if address is None:
        log("exit_barrier_skipped", level="warning", cycle=cycle, reason="not connected")
        return
    threading.Thread(target=_enter, args=(job, address, cycle, world_size), daemon=True, name="exit barrier").start()


def _enter(job: Job, address: tuple[str, int], cycle: Cycle, world_size: int) -> None:
    try:
        store = tcp.connect(*address, timeout=job.timeouts.coordinator)
        below = PrefixStore(Keys(job.run_id).barrier_prefix(cycle), store.torch_store)
        barrier(below, world_size, _TERMINAL_STATE_SYNC_ID, job.timeouts.exit_barrier)
    except Exception as error:  # torch's RuntimeErrors, and its other errors on values that other programs wrote
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        log("exit_barrier_left", level="warning", cycle=cycle, reason=reason)
