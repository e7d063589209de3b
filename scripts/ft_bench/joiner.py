"""Many agents in one process, joining at one moment: `python -m ft_bench.joiner TASK`, TASK being JSON.

Prints `ready`, waits for a line, lets its agents join, and prints when the first began and the last was released, in
seconds of the monotonic clock, which is the same for all processes of a machine. With two coordinators it prints
`steady` once all have a lease. Once the second coordinator has sent each agent its message, it prints when that was,
and how many agents had to stop workers. With restarts it prints `steady` before each, waits for a line with the agent
whose worker fails, and prints when it failed, if that is one of its own, when the last of its agents runs again, and
how many of its agents were told that a new process is needed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from ft_supervisor.store import tcp  # isort: skip - before torch, as in an agent: torch reads the environment it sets
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout

from ft_bench.crowd import Agents
from ft_bench.joining import HOST, RUN_ID, Task, job
from ft_supervisor.core.protocol.actions import AgentAction, Start
from ft_supervisor.core.protocol.events import AgentEvent, Looked, Mailed
from ft_supervisor.core.protocol.messages import Continue, Run, Standby


def join_ours(task: Task) -> None:
    """Join as our agents do, by their own code."""
    crowd = Agents(job(task.size, task.port, "/nonexistent", task.coordinators, task.restarts), task.ranks)
    began = time.monotonic()
    crowd.start()
    crowd.until_all(_runs)
    say({"began": began, "released": time.monotonic()})
    if task.coordinators > 1:
        crowd.until_all(_has_lease)
        print("steady", flush=True)
        crowd.until_all(_goes_on)
        say({"released": time.monotonic(), "interrupted": crowd.interrupted})

    for _ in range(task.restarts):
        _restart(crowd, task.ranks)


def _restart(crowd: Agents, ranks: Sequence[int]) -> None:
    failed = []

    def fail() -> None:
        rank = int(sys.stdin.readline())
        if rank in ranks:
            failed.append(time.monotonic())
            crowd.fail(rank)

    crowd.until_all(_has_lease)
    thread = threading.Thread(target=fail, daemon=True)
    thread.start()
    print("steady", flush=True)
    crowd.until_all(_runs)
    say({"began": failed[0] if failed else 0.0, "released": time.monotonic(), "fresh": crowd.fresh})
    thread.join()


def _runs(_event: AgentEvent | None, actions: Sequence[AgentAction]) -> bool:
    return any(isinstance(action, Start) for action in actions)


def _has_lease(event: AgentEvent | None, _actions: Sequence[AgentAction]) -> bool:
    return isinstance(event, Looked) and event.lease > 0


def _goes_on(event: AgentEvent | None, _actions: Sequence[AgentAction]) -> bool:
    return isinstance(event, Mailed) and isinstance(event.message, Continue | Standby | Run) and event.message.term > 0


def join_c10d(task: Task) -> None:
    """Join as torchrun's agents do."""

    def join(_rank: int) -> None:
        store = tcp.connect(HOST, task.port, 60.0).torch_store
        backend = C10dRendezvousBackend(store, RUN_ID)
        patience = RendezvousTimeout(join=timedelta(hours=1))
        handler = DynamicRendezvousHandler.from_backend(RUN_ID, store, backend, task.size, task.size, HOST, patience)
        handler.next_rendezvous()

    began = time.monotonic()
    with ThreadPoolExecutor(len(task.ranks)) as threads:
        list(threads.map(join, task.ranks))  # raises the exception of any of them
    say({"began": began, "released": time.monotonic()})


def say(times: dict[str, float]) -> None:
    """Print one line for rendezvous.py or takeover.py."""
    print(json.dumps(times), flush=True)


def main() -> None:
    """Run the task. Leave by os._exit, because threads may still wait."""
    task = Task(**json.loads(sys.argv[1]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Waiting threads ask for the interpreter once in this interval: thousands would do little else by default.
    sys.setswitchinterval(0.5)
    threading.stack_size(2**18)  # small enough for the C library to use the same ones again
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        (join_ours if task.coordinators else join_c10d)(task)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdin.readline()  # until all agents are released: others may still need this process
    os._exit(0)


if __name__ == "__main__":
    main()
