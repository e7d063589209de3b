"""The coordinator's main loop with a store in memory: what a flood of messages does to its pulse."""

from __future__ import annotations

import queue
import time
from pathlib import Path

import pytest

from ft_supervisor.coordinator.loop import Inbox, Loop
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.protocol.events import Received
from ft_supervisor.core.protocol.messages import Goodbye
from ft_supervisor.core.protocol.model import Job, Memory, Node, Timeouts
from ft_supervisor.core.protocol.orders import Alive, Begin
from ft_supervisor.journal.journal import Journal
from ft_supervisor.process import clock
from ft_supervisor.process.link import Link, pair
from ft_supervisor.store.base import StoreLost
from ft_supervisor.store.keys import Keys
from ft_supervisor.store.memory import MemoryStore
from ft_supervisor.store.pulses import parse_pulse

HEARTBEAT = 0.01


def test_a_flood_does_not_keep_the_pulse_waiting(tmp_path: Path) -> None:
    job = Job("7.0.0", ("n0", "n1"), ("", ""), (1,), str(tmp_path), str(tmp_path), 1, 1, ("true",))
    job = Job(**{**job.__dict__, "timeouts": Timeouts(heartbeat=HEARTBEAT)})
    node, now = Node(0, "n0", "127.0.0.1"), clock.now()
    machine = CoordinatorMachine(job, node, 1, Memory(), now)
    journal = Journal.open(tmp_path, "coordinator-1", Begin(job, node, 1, Memory()), now, pytest.fail)
    inbox: Inbox = queue.SimpleQueue()
    for _ in range(20_000):
        inbox.put(Received(Goodbye(0, 1, 1, None)))  # of somebody who never registered
    inbox.put(StoreLost("the end of the test"))
    ours, theirs = map(Link, pair())
    store = MemoryStore()
    loop = Loop(job, machine, journal, store, ours, inbox)
    began = time.monotonic()
    with pytest.raises(StoreLost):
        loop.run()
    took = time.monotonic() - began
    beats = parse_pulse(store.get(Keys(job.run_id).pulse)).round
    # Each beat comes after HEARTBEAT and what is then left of the inbox, for half of one more; twice that is generous.
    assert beats >= took / (3 * HEARTBEAT) and beats >= 5, f"{beats} beats in {took:.2f} s"
    assert sum(isinstance(order, Alive) for order in theirs.drain()) == beats
    ours.close()
    theirs.close()
    journal.close()
