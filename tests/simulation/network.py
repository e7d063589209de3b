"""Hosts, the cuts between them, and the one-way channels between them.

A channel behaves like one direction of a TCP connection: messages arrive in order and delayed. Those that a cut holds
up arrive after it has healed, even if the sender has given up the connection or is dead. They are lost only with its
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.clockwork import Clockwork

RETRANSMISSION = 1.0
"""Seconds, at most, from the end of a cut until the messages arrive that it held up."""


@dataclass
class Host:
    """A machine on the network; `up` False: its power is off."""

    rank: int
    up: bool = True


@dataclass
class Network:
    """Which host can reach which. `slow`: the longest delay of a packet, in seconds; most are far quicker."""

    clock: Clockwork
    slow: float
    _cuts: list[frozenset[tuple[int, int]]] = field(default_factory=list)
    _blocked: frozenset[tuple[int, int]] = frozenset()
    _waiting: list[Channel] = field(default_factory=list)
    _part: frozenset[tuple[int, int]] = frozenset()

    def delay(self) -> float:
        """Return how long a packet travels, in seconds."""
        return float(0.0003 + self.slow * self.clock.random.random() ** 6)

    def blocked(self, source: Host, target: Host) -> bool:
        """Whether no packet gets from here to there."""
        return (source.rank, target.rank) in self._blocked

    def cut(self, pairs: Iterable[tuple[int, int]], seconds: float) -> None:
        """Cut the way from the first to the second of each pair, for a while."""
        cut = frozenset(pairs)
        self._cuts.append(cut)
        self._blocked = frozenset().union(*self._cuts)
        self.clock.after(seconds, self._heal, cut)

    def part(self, pairs: Iterable[tuple[int, int]], seconds: float) -> None:
        """Split the network in this way, instead of the former one."""
        if self._part in self._cuts:
            self._heal(self._part)
        self._part = frozenset(pairs)
        self.cut(self._part, seconds)

    def _heal(self, cut: frozenset[tuple[int, int]]) -> None:
        if cut not in self._cuts:  # replaced by another part
            return
        self._cuts.remove(cut)
        self._blocked = frozenset().union(*self._cuts)
        waiting, self._waiting = self._waiting, []
        for channel in waiting:
            if self.blocked(channel.source, channel.target):
                self._waiting.append(channel)
            else:
                self.clock.after(RETRANSMISSION * self.clock.random.random() ** 2, channel.release)

    def hold(self, channel: Channel) -> None:
        """Note that the channel has messages that wait for a cut to heal."""
        self._waiting.append(channel)

    def power_off(self, host: Host) -> None:
        """Drop the packets that this host has not sent yet."""
        host.up = False
        for channel in self._waiting:
            if channel.source is host:
                channel.held.clear()


class Channel:
    """One way of a connection."""

    __slots__ = ("_free", "broken", "held", "network", "source", "target")

    def __init__(self, network: Network, source: Host, target: Host) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.broken = False
        """Lose the messages that are under way, and all later ones."""
        self.held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._free = 0.0

    def send(self, deed: Callable[..., None], *arguments: Any) -> None:
        """Send a message; `deed` happens at the other end when it arrives."""
        network = self.network
        self._free = max(self._free, network.clock.now + network.delay())
        network.clock.at(self._free, self._arrive, deed, arguments)

    def _arrive(self, deed: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.target.up or self.broken:
            return
        if self.held:
            self.held.append((deed, arguments))
        elif self.network.blocked(self.source, self.target):
            self.held.append((deed, arguments))
            self.network.hold(self)
        else:
            deed(*arguments)

    def release(self) -> None:
        """Deliver all that a healed cut held up, unless another cut came."""
        if self.held and self.network.blocked(self.source, self.target):
            self.network.hold(self)
            return
        while self.held and self.target.up and not self.broken:
            deed, arguments = self.held.pop(0)
            deed(*arguments)
