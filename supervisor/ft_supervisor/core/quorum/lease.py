"""The lease: it ends the workers of a node that is cut off before their replacements start.

The coordinator counts rounds in its store. Agents read the round and write it back, which is their heartbeat. A round r
that a majority has written back proves that no other coordinator was in charge at the moment when r appeared: one that
is in charge later has the promise of one of those agents, given after that agent had read r. So

    a node may run workers until `fence` after a moment that was certainly before r appeared: when it asked for the
    newest round for the last time before it saw r (Lease), and
    a coordinator that takes charge replaces no node within `node_lost` after that,

and no clock is compared with another host's: only their rates matter, over seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ft_supervisor.core.protocol.model import Roster
from ft_supervisor.core.quorum.roster import quorum

_KEPT = 256
"""Rounds that are remembered: minutes, and a lease lasts seconds."""


class Lease:
    """A node's side. `since`: the moment from which its fence counts, by its own clock; None before the first lease."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._round = 0
        self._asked = 0.0
        self._bounds: deque[tuple[int, float]] = deque(maxlen=_KEPT)

    def connect(self, round_: int, asked: float) -> None:
        """Forget the rounds of the former store: those of the new one may be of any age so far."""
        self._round, self._asked = round_, asked
        self._bounds.clear()

    def look(self, asked: float, round_: int, lease: int) -> None:
        """Note the store's round and lease, asked for at `asked`. The lease of a round that is older than the
        connection proves nothing."""
        if round_ > self._round:
            self._bounds.append((self._round + 1, self._asked))  # all newer rounds appeared after we had asked
            self._round = round_
        self._asked = asked
        while self._bounds and self._bounds[0][0] <= lease:
            self.grant(self._bounds.popleft()[1])

    def grant(self, since: float) -> None:
        """Note a proof that holds from `since` on. Older proofs change nothing."""
        self.since = since if self.since is None else max(self.since, since)


def echo(round_: int, *, abandoned: bool) -> int | None:
    """Return the round that a connection may write back after it has read `round_`; None: nothing may be written.

    `abandoned`: whether, looked at after the round was read, the agent has given this connection up. The order is the
    proof. An agent promises a term to another coordinator only on a newer connection, so after it has abandoned this
    one. If it is not abandoned now, it was not when the round was read: the node had promised no other term by then,
    and an echo states just that, however late it is written. If it is abandoned, the promise may have come first, and
    the echo would be false.
    """
    return None if abandoned else round_


class Proof:
    """The coordinator's side: since when each node has certainly followed it, and since when a majority has."""

    def __init__(self) -> None:
        self.round = 0
        self._published: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._echoes: dict[int, int] = {}
        self._since: dict[int, float] = {}

    def publish(self, now: float) -> int:
        """Return the next round. No agent may see it before `now`."""
        self.round += 1
        self._published.append((self.round, now))
        return self.round

    def echo(self, infra_rank: int, round_: int) -> None:
        """Note that the node has read this round, and had promised no other coordinator by then."""
        if not self._echoes.get(infra_rank, 0) < round_ <= self.round:
            return
        self._echoes[infra_rank] = round_
        first = self._published[0][0]
        if round_ >= first:
            self.promise(infra_rank, self._published[round_ - first][1])

    def promise(self, infra_rank: int, since: float) -> None:
        """Note that the node has answered a question that was not asked before `since`."""
        self._since[infra_rank] = max(since, self._since.get(infra_rank, since))

    def since(self, roster: Roster) -> float | None:
        """Return the latest moment at which a majority certainly followed; None if there is none."""
        return _greatest(self._since, roster)

    def lease(self, roster: Roster) -> int:
        """Return the newest round that a majority has read; 0 if there is none."""
        return int(_greatest(self._echoes, roster) or 0)


def _greatest(values: Mapping[int, float], roster: Roster) -> float | None:
    """Return the greatest value that a majority has reached."""
    low, steps = None, sorted(set(values.values()))
    while steps:
        middle = len(steps) // 2
        if quorum(roster, {rank for rank, value in values.items() if value >= steps[middle]}):
            low, steps = steps[middle], steps[middle + 1 :]
        else:
            steps = steps[:middle]
    return low
