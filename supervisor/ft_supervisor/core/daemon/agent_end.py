"""What a daemon says about the end of its agent, so that nobody has to wait until the node has been silent for long.

A daemon has no torch, and no connection to the store. It pushes one message to the store at which its agent was last,
and repeats it with each heartbeat until the next agent is there, which takes seconds to start. Meanwhile the
coordinator knows that the node lives and runs nothing.

It is said upon ChildExited, which comes when everything below the agent is gone. A worker that is still there would run
beside those of the next cycle.
"""

from __future__ import annotations

from dataclasses import replace

from ft_supervisor.core.protocol.actions import Push
from ft_supervisor.core.protocol.messages import AgentGone
from ft_supervisor.core.protocol.model import AGENT_RANK, NO_PROMISE, Failure, Memory, Node
from ft_supervisor.core.protocol.orders import AgentState, Reached
from ft_supervisor.core.protocol.settings import Cause

HAS_CYCLE = (AgentState.CHECKING, AgentState.ACTIVE, AgentState.STOPPING)
"""States of an agent that has been told to run a cycle."""


class AgentEnd:
    """One daemon's."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._store: Reached | None = None
        self._incarnation = 0
        """Of the last agent that was connected to a store. A later one has run nothing."""
        self._push: Push | None = None

    def reached(self, store: Reached, incarnation: int) -> None:
        """Note the store to which the agent of this incarnation is connected."""
        self._store, self._incarnation = store, incarnation

    def gone(self, memory: Memory) -> list[Push]:
        """Begin to say that the agent, and everything below it, is gone. Say nothing before its first coordinator."""
        if self._store is None or memory.promise == NO_PROMISE:
            return []
        cycle = memory.newest
        message = AgentGone(
            memory.promise,
            self._node.infra_rank,
            self._incarnation,
            cycle,
            memory.failures[:1],
            succeeded=cycle is not None and memory.succeeded == cycle,
            progressed=cycle is not None and memory.progressed == cycle,
        )
        self._push = Push(self._store.host, self._store.port, message)
        return self.say()

    def replaced(self) -> None:
        """The next agent is there: it speaks for the node from now on."""
        self._push = None

    def say(self) -> list[Push]:
        """Return what is to be said now, and again with each heartbeat."""
        return [] if self._push is None else [self._push]


def with_own_failure(
    memory: Memory, node: Node, state: AgentState, what: str, cause: Cause, at: float, silent: float
) -> Memory:
    """Return the memory with the failure of an agent that has ended in this state; `at`: seconds since the epoch. It
    stays as it is if the agent had no cycle, or its workers had failed before."""
    if memory.newest is None or state not in HAS_CYCLE or memory.failures:
        return memory
    failure = Failure(node.infra_rank, AGENT_RANK, message=what, time=at, cause=cause, silent=silent)
    return replace(memory, failures=(failure,))
