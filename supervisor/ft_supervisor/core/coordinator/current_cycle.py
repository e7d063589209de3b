"""The cycle that runs, or ran last, in one coordinator's term: its nodes, and the messages that they get about it."""

from __future__ import annotations

from collections.abc import Sequence

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle, Job
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.quorum.members import Member


class CurrentCycle:
    """`name` is None before the first one. `group`: infra_ranks by group_rank. `pending`: those of the group whose
    workers have not succeeded. `started`: when it began, in seconds; None if that was before this term."""

    def __init__(self, job: Job, term: int) -> None:
        self.name: Cycle | None = None
        self.group: tuple[int, ...] = ()
        self.pending: set[int] = set()
        self.started: float | None = None
        self._job = job
        self._term = term
        self._master = ("", 0)

    def adopt(self, name: Cycle, group: Sequence[int]) -> None:
        """Go on with a cycle that a former coordinator has begun."""
        self.name, self.group, self.pending, self.started = name, tuple(group), set(group), None

    def succeed(self, group: Sequence[int], master: Member, now: float) -> None:
        """Take the place of the former cycle. The workers' own store is on the node `master`."""
        self.name = Cycle(self._term, self.name.n + 1 if self.name else 0)
        self.group, self.pending, self.started = tuple(group), set(group), now
        self._master = master.node.addr, master.port

    def has(self, member: Member) -> bool:
        """Whether this node belongs to the cycle."""
        return self.name is not None and member.node.infra_rank in self.group

    @property
    def is_ours(self) -> bool:
        """Whether it was begun in this term."""
        return self.name is not None and self.name.term == self._term

    def standby(self, ledger: Ledger, age: float | None, *, watch: bool = True) -> messages.Standby:
        """For a node that does not take part; `watch`: it is to watch the cycle's exit barrier."""
        return messages.Standby(self._term, self.name if watch else None, ledger, age)

    def resume(self, ledger: Ledger, age: float | None) -> messages.Continue:
        """For a node that runs the cycle, after a new connection."""
        assert self.name is not None
        return messages.Continue(self._term, self.name, ledger, age)

    def stop(self, grace: float) -> messages.Stop:
        """For the nodes of the group when the cycle cannot go on."""
        assert self.name is not None
        return messages.Stop(self._term, self.name, format_ranks(self.group), grace)

    def run(self, group: str, group_rank: int, ledger: Ledger, age: float | None) -> messages.Run:
        """For the node of this group_rank. `group` is ours, folded: for 1,000 nodes that takes longer than the rest."""
        assert self.name is not None
        return messages.Run(
            term=self._term,
            cycle=self.name,
            group=group,
            group_rank=group_rank,
            group_world_size=len(self.group),
            restart_count=self.name.n,
            max_restarts=max(self._job.max_restarts, self.name.n),
            master_addr=self._master[0],
            master_port=self._master[1],
            ledger=ledger,
            age=self._job.timeouts.fence if age is None else age,
        )
