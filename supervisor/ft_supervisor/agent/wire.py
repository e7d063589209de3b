"""The main loop's side of the agent's connection to a coordinator's store.

A new Dial, silence or a loss abandons the connection: its events are ignored from then on, and until the next Dial
there is no connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from ft_supervisor.agent.connection import FromWire, Generation, Post, Reached
from ft_supervisor.agent.dial import Dialer
from ft_supervisor.core.agent.silence import Silence
from ft_supervisor.core.protocol import codec
from ft_supervisor.core.protocol.events import AgentEvent, Connected, Disconnected
from ft_supervisor.core.protocol.messages import ToCoordinator
from ft_supervisor.core.protocol.model import Cycle, Job, Node
from ft_supervisor.process.log import log
from ft_supervisor.process.ports import free_port


class Wire:
    """The connection as the main loop sees it, for the main loop alone. The threads below it only call `post`."""

    def __init__(self, job: Job, node: Node, incarnation: int, post: Post) -> None:
        self._job = job
        self._node = node
        self._incarnation = incarnation
        self._post = post
        self._dialer = Dialer(job, job.timeouts.coordinator)
        self._silence = Silence(job.timeouts.coordinator, job.timeouts.heartbeat)
        self._number = 0
        self._current: Generation | None = None
        self._up = False
        self._watched: Cycle | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Return host and port of the store; None without a connection."""
        return self._current.address if self._current and self._up else None

    @property
    def due(self) -> float | None:
        """Return when `judge` must be called even if nothing has come: seconds of process.clock, or None."""
        return self._silence.due

    def dial(self, candidates: Sequence[int]) -> None:
        """See actions.Dial. The connection's number is one more than the former's; the first is 1."""
        self._abandon()
        self._number += 1
        self._current = Generation(
            self._number, candidates, self._job, self._node, self._incarnation, self._dialer, self._post
        )
        self._current.watched = self._watched

    def watch(self, cycle: Cycle | None) -> None:
        """Set the cycle whose exit barrier is watched. BarrierPassed follows."""
        self._watched = cycle
        if self._current is not None:
            self._current.watched = cycle

    def receive(self, item: FromWire, now: float) -> list[AgentEvent]:
        """Return the events for the machine in an item that a thread has posted."""
        if self._current is None or item.generation != self._current.number:
            return []
        if isinstance(item.event, Reached):
            self._up = True
            self._silence.begin(now)
            try:
                port = free_port("", avoid=self._job.ports)
            except (
                OSError
            ) as error:  # out of file descriptors, for example: the machine dials again, until there are some
                self._abandon()
                return [Disconnected(f"no port for workers: {error}", silent=False)]
            return [Connected(item.event.candidate, self._number, item.event.round, item.event.asked, port)]
        if isinstance(item.event, Disconnected):
            self._abandon()
        return [item.event]

    def judge(self, now: float) -> list[AgentEvent]:
        """Return Disconnected if the store has not answered in time. Call it at `due`, and at least every heartbeat."""
        if self._current is None or not self._silence.over(self._current.answered, now):
            return []
        self._abandon()
        return [Disconnected(f"silent for {self._job.timeouts.coordinator:g} s", silent=True)]

    def send(self, message: ToCoordinator) -> None:
        """Send a message to the inbox, in order. Without a connection it is dropped. Never blocks."""
        if self._current is None or not self._up:
            return
        try:
            self._current.send(codec.encode(message))
        except codec.CodecError as error:
            log("message_dropped", level="error", reason=str(error))

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the store has all that was sent. Return whether it has."""
        return self._current is not None and self._up and self._current.flush(timeout)

    def _abandon(self) -> None:
        if self._current is not None:
            self._current.abandon()
        self._current, self._up = None, False
        self._silence.end()
