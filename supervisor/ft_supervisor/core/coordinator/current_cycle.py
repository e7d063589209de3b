"""The cycle that runs, or ran last, in one coordinator's term: its nodes, and the messages that they get about it."""

from __future__ import annotations

from collections.abc import Sequence

from ft_supervisor.core.protocol import messages
from ft_supervisor.core.protocol.ledger import Ledger
from ft_supervisor.core.protocol.model import Cycle, Job, Node
from ft_supervisor.core.protocol.ranks import format_ranks
from ft_supervisor.core.protocol.worker_words import workers_of_node
from ft_supervisor.core.quorum.members import Member, Members


class CurrentCycle:
    """`name` is None before the first one. `group`: infra_ranks by group_rank. `pending`: those of the group whose
    workers have not succeeded. `started`: when it began, in seconds; None if that was before this term.

    `progressed`: a node has reported that its workers have made progress. A lost node's knowledge is lost with it:
    without a report of another node the cycle has made none, which costs new processes at most.
    """

    def __init__(self, job: Job, term: int) -> None:
        self.name: Cycle | None = None
        self.group: tuple[int, ...] = ()
        self.pending: set[int] = set()
        self.started: float | None = None
        self.progressed = False
        self._completed: dict[int, int] = {}
        """By infra_rank from how many restartable functions the node's workers have returned, where these are more than
        `_released`, from which all may return."""
        self._released = 0
        self._fresh = True
        self._job = job
        self._term = term
        self._master = ("", 0)

    def adopt(self, name: Cycle, group: Sequence[int]) -> None:
        """Go on with a cycle that a former coordinator has begun."""
        self._become(name, group, None)

    def succeed(self, group: Sequence[int], master: Member, now: float, *, fresh: bool) -> None:
        """Take the place of the former cycle. The workers' own store is on the node `master`. `fresh`: see Run."""
        self._become(Cycle(self._term, self.name.n + 1 if self.name else 0), group, now)
        self._master, self._fresh = (master.node.addr, master.port), fresh

    def _become(self, name: Cycle, group: Sequence[int], started: float | None) -> None:
        self.name, self.group, self.pending, self.started = name, tuple(group), set(group), started
        self.progressed, self._completed, self._released = False, {}, 0

    def workers_of(self, node: Node) -> str:
        """Return the workers of a node of the group, for people."""
        return workers_of_node(self.group.index(node.infra_rank), self._job.per_node, node.name)

    def returned(self, node: int, functions: int) -> set[int]:
        """Note that the workers of this node have returned from so many functions. Return the nodes that are to get
        Complete: all that have not succeeded, once the last of them returns; this one, if its Complete may be lost."""
        if node not in self.pending or functions <= self._released:
            return {node} if node in self.pending and functions else set()
        self._completed[node] = max(functions, self._completed.get(node, 0))
        return self._release()

    def succeeded(self, node: int) -> set[int]:
        """Note that the workers of this node have exited with 0. Return the nodes that are to get Complete."""
        self.progressed = True
        self.pending.discard(node)
        self._completed.pop(node, None)
        return self._release()

    def _release(self) -> set[int]:
        """Release all nodes, if each has returned from one more function. The minimum is taken only then: there may be
        10,000 nodes."""
        if not self.pending or len(self._completed) < len(self.pending):
            return set()
        self._released = min(self._completed.values())
        self._completed = {node: number for node, number in self._completed.items() if number > self._released}
        return set(self.pending)

    def has(self, member: Member) -> bool:
        """Whether this node belongs to the cycle."""
        return self.name is not None and member.node.infra_rank in self.group

    def may_go_on(self, members: Members) -> bool:
        """Whether none of its nodes is lost or has registered without knowing of it."""
        nodes = [members.get(rank) for rank in self.group]
        return all(
            node is not None and node.here and (node.register is None or node.register.memory.newest == self.name)
            for node in nodes
        )

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

    def complete(self) -> messages.Complete:
        """Return the message to nodes whose workers wait, once the workers of all nodes have returned."""
        assert self.name is not None
        return messages.Complete(self._term, self.name, self._released)

    def take_evidence(self, number: int, *, gently: bool) -> messages.TakeEvidence:
        """For nodes of the group while the cycle hangs."""
        assert self.name is not None
        return messages.TakeEvidence(self._term, self.name, number, gently)

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
            fresh=self._fresh,
        )
