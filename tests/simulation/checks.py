"""The invariants, checked at every action that could break one (docs/concepts.md, What always holds). Raises Breach.

1. Two cycles never run workers at the same time on one node.
2. No two nodes hold the same group_rank in the same cycle.
3. A node that is excluded or lost is never active in a later cycle, unless it registered anew and was not excluded.
4. At most one verdict per run; nothing runs after it.
5. Verdict success only if every active node of one cycle reported success in that cycle.
6. Every daemon ends, within a bound computable from the timeouts, even if any processes and nodes die.
7. A message from an old term, cycle or incarnation changes nothing.
8. Training workers are not touched by the loss of the coordinator as long as their own nodes live and a takeover fits
   inside the fence.
9. At most one coordinator is in charge in a term, and no decision of an older term takes effect after a newer one's.
10. Workers of a new cycle start only when no worker of the former one can still run anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach
from tests.simulation.endings import HARMLESS, Endings
from tests.simulation.hang_checks import HangChecks
from tests.simulation.plan import Fault
from tests.simulation.workers import SimWorkers

from ft_supervisor.core.coordinator.leadership import Role
from ft_supervisor.core.protocol.actions import Fact
from ft_supervisor.core.protocol.agent_facts import MailDropped
from ft_supervisor.core.protocol.codec import CodecError, decode, encode
from ft_supervisor.core.protocol.coordinator_facts import MessageDropped, NodeLost, TookCharge
from ft_supervisor.core.protocol.messages import (
    TO_AGENT,
    TO_COORDINATOR,
    Close,
    Prepare,
    Propose,
    Register,
    Run,
    ToAgent,
    ToCoordinator,
)
from ft_supervisor.core.protocol.model import KILL_BOUND, Cycle, Memory, Outcome, Verdict
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.quorum.roster import candidates
from ft_supervisor.core.transitions import InvalidState

if TYPE_CHECKING:
    from tests.simulation.coordinator import SimCoordinator
    from tests.simulation.node import SimNode
    from tests.simulation.world import World

WAKING = 0.2
"""Seconds until the processes of a thawed node run."""


class Checks(Endings):
    """Checks the actions of workers, agents and coordinators, and notes faults. It changes nothing in the world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.leader: int | None = None
        """infra_rank of the node whose coordinator last sent a pulse or mail as the one in charge."""
        self.ranks: dict[Cycle, dict[int, int]] = {}
        """The infra_ranks by group_rank of all workers that were started."""
        self.terms: dict[int, SimCoordinator] = {}
        self.progressed: set[Cycle] = set()
        """The cycles in which some worker has made progress."""
        self.hangs = HangChecks(world)
        self.again = 0
        """How often workers were called again in the processes in which they were parked."""
        self._fresh: dict[Cycle, bool] = {}
        """Of all cycles whose Run was sent: whether all of their workers were to be new processes."""
        self._returned: dict[Cycle, set[int]] = {}
        self._lost: dict[SimCoordinator, set[int]] = {}
        self._heard: dict[SimCoordinator, dict[int, tuple[float, int]]] = {}
        self._led: dict[SimCoordinator, set[int]] = {}
        self._newest: dict[int, Cycle] = {}
        self._frozen_until = -1e9

    # -- workers

    def start(self, node: SimNode, run: Run) -> None:
        """Check the start of workers."""
        world = self._world
        if node.workers is not None:
            raise Breach("1", f"{node.name} starts {run.cycle} beside {node.workers.cycle}")
        holder = self.ranks.setdefault(run.cycle, {}).setdefault(run.group_rank, node.rank)
        if holder != node.rank:
            raise Breach("2", f"n{holder} and {node.name} are both {run.group_rank} of {run.cycle}")
        newest = self._newest.get(node.rank)
        if newest is not None and run.cycle <= newest:
            raise Breach("7", f"{node.name} starts {run.cycle}, though it started {newest} before")
        self._newest[node.rank] = run.cycle
        group = self.groups.setdefault(run.cycle, parse_ranks(run.group))
        if group != parse_ranks(run.group) or group[run.group_rank] != node.rank:
            raise Breach("2", f"the group of {run.cycle} is {run.group} in the Run of {node.name}, and was {group}")
        if world.plan.gentle and len(self.ranks) > 1:
            raise Breach("8", f"training is disturbed: {node.name} starts {run.cycle}")
        if node.rank in parse_ranks(run.ledger.excluded) or node.daemon.machine.memory.unhealthy:
            raise Breach("3", f"{node.name} starts {run.cycle}, though it is excluded")
        self._check_ranks(node, run)
        later = max(self.ranks)
        if later > run.cycle:
            raise Breach("9", f"{node.name} starts {run.cycle}, and {later} was started before")
        if self.chosen is not None and world.now - self.chosen_at > world.job.timeouts.fence + 1.0:
            raise Breach("4", f"{node.name} starts {run.cycle} after the verdict")
        for other in world.nodes:
            if other.workers is not None and other.workers.cycle < run.cycle:
                self._overlap(other, other.workers, run.cycle)

    def _check_ranks(self, node: SimNode, run: Run) -> None:
        """Check that a survivor keeps its group_rank where the size is the same."""
        former = Cycle(run.cycle.term, run.cycle.n - 1)
        if len(self.groups.get(former, ())) != run.group_world_size:
            return
        for rank, infra_rank in self.ranks.get(former, {}).items():
            if infra_rank == node.rank and rank != run.group_rank:
                raise Breach("survivors", f"{node.name} was {rank} of {former}, and is {run.group_rank} of {run.cycle}")

    def began(self, node: SimNode, run: Run, born: Cycle) -> None:
        """Check workers that begin; `born`: the cycle for which their processes were started."""
        self.again += born != run.cycle
        renewed = [cycle for cycle, fresh in self._fresh.items() if fresh and self._precedes(cycle, run.cycle)]
        if any(born < cycle for cycle in renewed):
            new = max(renewed)
            raise Breach("rung", f"{node.name} goes on in {run.cycle} in processes of {born}, and all of {new} are new")

    def stands_by(self, node: SimNode, memory: Memory) -> None:
        """Check that a node which runs the script ahead may be chosen for a later cycle, as far as its agent knows."""
        if memory.unhealthy or node.rank in parse_ranks(memory.ledger.excluded):
            raise Breach("3", f"{node.name} stands by with workers, though it is never chosen again")

    def _precedes(self, one: Cycle, other: Cycle) -> bool:
        """Whether `other` is `one`, or follows it: a later term may begin another cycle in the place of `one`."""
        instead = any(each.n == one.n and one.term < each.term <= other.term for each in self._fresh)
        return one == other or (one < other and one.n < other.n and not instead)

    def deed(self, node: SimNode, cycle: Cycle) -> None:
        """Check that workers of `cycle` may still change something outside of themselves, such as a checkpoint."""
        later, world = max(self.ranks), self._world
        bound = world.job.timeouts.heartbeat + KILL_BOUND + WAKING
        if later > cycle and world.now - node.thawed_at > bound:
            raise Breach("10", f"workers of {cycle} on {node.name} do something, and {later} was started before")

    def returned(self, cycle: Cycle, rank: int) -> None:
        """Note that the function of this node's workers has returned."""
        self._returned.setdefault(cycle, set()).add(rank)

    def released(self, node: SimNode, cycle: Cycle) -> None:
        """Check that workers which wait may go on: the function has returned on all nodes, or they have succeeded."""
        left = set(self.groups[cycle]) - self._returned.get(cycle, set()) - self.succeeded(cycle)
        if left:
            raise Breach("barrier", f"{node.name} is released in {cycle}, and {sorted(left)} have not returned")

    def _check_rung(self, run: Run) -> None:
        """Check that workers are called again in their processes only as often as the rules say, and never after a
        cycle that has made no progress."""
        former = [cycle for cycle in self.progressed if cycle.n == run.cycle.n - 1]
        if self._world.plan.in_process and not run.fresh and run.cycle.n and not former:
            raise Breach("rung", f"{run.cycle} goes on in process, and the cycle before it made no progress")
        for spent in run.ledger.spent:
            budget = self._world.job.settings.rules[spent.rule].budget.in_process
            if budget is not None and spent.in_process > budget.max:
                raise Breach("rung", f"{spent.in_process} restarts in process, {budget.max} are allowed")

    def stop(self, node: SimNode, cycle: Cycle) -> None:
        """Check an order to stop workers."""
        if self._world.plan.gentle and self.chosen is None:
            raise Breach("8", f"training is disturbed: {node.name} stops {cycle}")

    def _overlap(self, node: SimNode, workers: SimWorkers, cycle: Cycle) -> None:
        """Check that old workers run only on a node that stands still as a whole, or has just begun to go on: the
        guard needs no other process."""
        world = self._world
        if not workers.alive:
            return
        bound = world.job.timeouts.heartbeat + KILL_BOUND + WAKING
        if not node.frozen and world.now - node.thawed_at > bound:
            raise Breach("10", f"{cycle} runs while {node.name} still runs {workers.cycle}")
        world.after(bound / 4, self._overlap, node, workers, cycle)

    # -- machines

    @contextmanager
    def states(self) -> Iterator[None]:
        """Run a step of a machine, and check that its states keep to their tables and its own invariants hold."""
        try:
            yield
        except InvalidState as error:
            raise Breach("states", str(error)) from None

    # -- coordinators

    def in_charge(self, coordinator: SimCoordinator, term: int) -> None:
        """Check a coordinator whose pulse or mail carries this term."""
        world = self._world
        if self.terms.setdefault(term, coordinator) is not coordinator:
            raise Breach("9", f"two coordinators are in charge in term {term}")
        if term % len(world.nodes) != coordinator.node.rank:
            raise Breach("9", f"{coordinator.node.name} is in charge in term {term}")
        if self.leader != coordinator.node.rank:
            self.leader = coordinator.node.rank
            world.moment("leading", coordinator.node.rank)

    def received(self, coordinator: SimCoordinator, message: ToCoordinator) -> None:
        """Check a message before it is handled."""
        self._travels(message, TO_COORDINATOR)
        if isinstance(message, Register):
            self._lost.get(coordinator, set()).discard(message.infra_rank)
            self._world.moment("joining", message.infra_rank)

    def heard(self, coordinator: SimCoordinator, ranks: Iterable[int]) -> None:
        """Note that a coordinator has received these nodes' heartbeats, or that their time begins anew for it."""
        known = self._heard.setdefault(coordinator, {})
        known.update(dict.fromkeys(ranks, (coordinator.awake(), coordinator.thaws)))

    def coordinator_announced(self, coordinator: SimCoordinator, fact: Fact) -> None:
        """Check that a coordinator gives up only nodes that were silent for long enough."""
        self.announced(fact)
        self.hangs.announced(coordinator, fact)
        if isinstance(fact, TookCharge):
            self.heard(coordinator, range(len(self._world.nodes)))
        closing = coordinator.machine is not None and coordinator.machine.role is Role.CLOSING
        if not isinstance(fact, NodeLost) or closing:  # at the end a loss only adds to VerdictDecided.lost
            return
        rank = fact.infra_rank
        self._lost.setdefault(coordinator, set()).add(rank)
        self._world.moment("losing", rank)
        self._check_silence(coordinator, rank)
        led = rank in self._led.get(coordinator, ()) and self._world.nodes[rank].up and self.chosen is None
        if led and not {rank, coordinator.node.rank} & self.touched:
            raise Breach("lost", f"{coordinator.node.name} gives up n{rank}, and nothing was wrong with either")

    def _check_silence(self, coordinator: SimCoordinator, rank: int) -> None:
        """Check a lost node's silence: suspensions of the coordinator do not count, but for two heartbeats each."""
        timeouts = self._world.job.timeouts
        since, thaws = self._heard.get(coordinator, {}).get(rank, (-1e9, 0))
        silence = coordinator.awake() - since
        if silence + (2 * (coordinator.thaws - thaws) + 1) * timeouts.heartbeat < timeouts.node_lost:
            raise Breach("lost", f"{coordinator.node.name} gives up n{rank} after {silence:.1f} s, itself not counted")

    def _travels(self, message: ToCoordinator | ToAgent, types: tuple[type, ...]) -> None:
        """Check in one job of twenty that a message survives encoding: its fields are within their bounds."""
        if self._world.plan.seed % 20:
            return
        try:
            back = decode(encode(message), types)
        except CodecError as error:
            raise Breach("believed", f"{message}: {error}") from None
        if back != message:
            raise Breach("believed", f"{message} does not come back")

    def announced(self, fact: Fact) -> None:
        """Check that no machine has refused a real machine's message as impossible."""
        if isinstance(fact, MessageDropped | MailDropped) and fact.reason is not None:
            raise Breach("believed", f"a real machine's message is refused: {fact}")

    def mail(self, coordinator: SimCoordinator, infra_rank: int, message: ToAgent) -> None:
        """Check a message of a coordinator to an agent."""
        self._travels(message, TO_AGENT)
        if not isinstance(message, Prepare | Close):  # only the coordinator in charge sends the others
            self.in_charge(coordinator, message.term)
            self._led.setdefault(coordinator, set()).add(infra_rank)
        if isinstance(message, Run):
            self.charged = max(self.charged, message.ledger.used)
            self._fresh[message.cycle] = message.fresh
            self._check_rung(message)
        match message:
            case Run() if infra_rank in self._lost.get(coordinator, ()):
                raise Breach("3", f"n{infra_rank} is to run {message.cycle} though lost")
            case Run() if self.chosen is not None and self.terms.get(message.term) is self._closer:
                raise Breach("4", f"{message.cycle} after the verdict")
            case Run() if message.cycle.term != message.term:
                raise Breach("7", f"{message.cycle} by the coordinator of term {message.term}")
            case Propose(verdict=Verdict(Outcome.SUCCESS)):
                self.check_success("proposed")
            case Close(verdict=verdict):
                self.verdict(verdict, f"{coordinator.node.name} closes")
                self._closer = coordinator

    _closer: SimCoordinator | None = None

    # -- faults

    def fault(self, fault: Fault, ranks: Sequence[int]) -> None:
        """Note a fault that happens now."""
        world = self._world
        self.disturb(fault)
        if fault.kind == "split":
            self.touched.update(range(len(world.nodes)))
        elif fault.kind == "freeze-coordinator":
            if not self._harmless(fault):
                self.touched.update(range(len(world.nodes)))
        elif fault.kind not in HARMLESS:
            self.touched.update(ranks)

    def _harmless(self, freeze: Fault) -> bool:
        """Whether a coordinator must not lose any node because it stood still for so long.

        Where there are other candidates, a longer freeze may make some agents connect to one of them while others stay.
        """
        timeouts, now = self._world.job.timeouts, self._world.now
        again, self._frozen_until = now < self._frozen_until + timeouts.fence, now + freeze.seconds
        if len(candidates(self._world.job, None)) == 1:
            return freeze.seconds < timeouts.fence
        return not again and freeze.seconds < timeouts.coordinator - timeouts.heartbeat
