"""Many agents in one process, joining at one moment: `python -m ft_bench.joiner TASK`, TASK being JSON.

Prints `ready`, waits for a line, lets its agents join, and prints when the first began and the last was released, in
seconds of the monotonic clock, which is the same for all processes of a machine.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from queue import SimpleQueue

from ft_supervisor.store import tcp  # isort: skip - before torch, as in an agent: torch reads the environment it sets
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout

from ft_bench.joining import HOST, RUN_ID, Task, job
from ft_supervisor.agent.wire import FromWire, Wire
from ft_supervisor.core.events import Connected, Mailed
from ft_supervisor.core.messages import Register, Run
from ft_supervisor.core.model import Memory, Node


def join_ours(task: Task) -> None:
    """What agents do, by their own code: connect, register, beat, wait for the mail that is a Run."""
    description = job(task.size, task.port, "/nonexistent")
    said: SimpleQueue[tuple[int, FromWire]] = SimpleQueue()
    nodes = {rank: Node(rank, description.nodes[rank], HOST) for rank in task.ranks}
    wires = {
        rank: Wire(description, node, 0, lambda item, rank=rank: said.put((rank, item)))  # type: ignore[misc]
        for rank, node in nodes.items()
    }
    connections = dict.fromkeys(task.ranks, 0)
    waiting = set(task.ranks)
    while waiting:
        rank, item = said.get()
        for event in wires[rank].receive(item):
            match event:
                case Connected(port):
                    connections[rank] += 1
                    wires[rank].send(Register(0, nodes[rank], 0, connections[rank], port, None, Memory()))
                case Mailed(Run()):
                    waiting.discard(rank)


def join_c10d(task: Task) -> None:
    """What torchruns do."""

    def join(_rank: int) -> None:
        store = tcp.connect(HOST, task.port, 60.0).torch_store
        backend = C10dRendezvousBackend(store, RUN_ID)
        patience = RendezvousTimeout(join=timedelta(hours=1))
        handler = DynamicRendezvousHandler.from_backend(RUN_ID, store, backend, task.size, task.size, HOST, patience)
        handler.next_rendezvous()

    with ThreadPoolExecutor(len(task.ranks)) as threads:
        list(threads.map(join, task.ranks))  # raises what any of them raises


def main() -> None:
    """Leaves by os._exit: what waits in threads is not waited for."""
    task = Task(**json.loads(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    try:
        (join_ours if task.ours else join_c10d)(task)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    print(json.dumps({"began": began, "released": time.monotonic()}), flush=True)
    sys.stdin.readline()  # until all have been released: others still need what is ours
    os._exit(0)


if __name__ == "__main__":
    main()
