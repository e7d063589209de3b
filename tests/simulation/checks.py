"""The invariants of the design's section 9, asked at every deed that could break one. Raises Breach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach
from tests.simulation.plan import Fault
from tests.simulation.workers import SimWorkers

from ft_supervisor.core.actions import Leave
from ft_supervisor.core.messages import Close, Prepare, Propose, Register, Run, ToAgent, ToCoordinator
from ft_supervisor.core.model import KILL_BOUND, Cycle, Outcome, Verdict
from ft_supervisor.core.ranks import unfold
from ft_supervisor.core.roster import candidates

if TYPE_CHECKING:
    from tests.simulation.coordinator import SimCoordinator
    from tests.simulation.node import SimNode
    from tests.simulation.world import World

WAKING = 0.2
"""Seconds until the processes of a thawed node run."""


class Checks:
    """Sees everything, decides nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.leader: int | None = None
        """Whose coordinator was last seen in charge."""
        self.ranks: dict[Cycle, dict[int, int]] = {}
        """infra_ranks by group_rank, of workers that were started."""
        self.groups: dict[Cycle, tuple[int, ...]] = {}
        self.terms: dict[int, SimCoordinator] = {}
        self.chosen: Verdict | None = None
        """The verdict, once somebody has said that it is the job's."""
        self.chosen_at = 0.0
        self.touched: set[int] = set()
        """Nodes that some fault was about."""
        self.outside = False
        self._worked: dict[Cycle, set[int]] = {}
        self._lost: dict[SimCoordinator, set[int]] = {}
        self._heard: dict[SimCoordinator, dict[int, tuple[float, int]]] = {}
        self._led: dict[SimCoordinator, set[int]] = {}
        self._newest: dict[int, Cycle] = {}
        self._by_barrier: set[int] = set()
        self._left_at: dict[int, float] = {}
        self._disturbed_until = 0.0
        self._frozen_until = -1e9

    # -- workers

    def worked(self, cycle: Cycle, rank: int) -> None:
        """All workers of the cycle on this node have exited with 0."""
        self._worked.setdefault(cycle, set()).add(rank)

    def succeeded(self, cycle: Cycle) -> set[int]:
        """Where they have."""
        return self._worked.get(cycle, set())

    def start(self, node: SimNode, run: Run) -> None:
        """Workers are started."""
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
        group = self.groups.setdefault(run.cycle, unfold(run.group))
        if group != unfold(run.group) or group[run.group_rank] != node.rank:
            raise Breach("2", f"{node.name} is told that {run.group} are {run.cycle}, others that {group}")
        if world.plan.gentle and len(self.ranks) > 1:
            raise Breach("8", f"training is disturbed: {node.name} starts {run.cycle}")
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
        """A survivor keeps its group_rank."""
        former = Cycle(run.cycle.term, run.cycle.n - 1)
        for rank, infra_rank in self.ranks.get(former, {}).items():
            if infra_rank == node.rank and rank != run.group_rank:
                raise Breach("survivors", f"{node.name} was {rank} of {former}, and is {run.group_rank} of {run.cycle}")

    def stop(self, node: SimNode, cycle: Cycle) -> None:
        """Workers are to be stopped."""
        if self._world.plan.gentle and self.chosen is None:
            raise Breach("8", f"training is disturbed: {node.name} stops {cycle}")

    def _overlap(self, node: SimNode, workers: SimWorkers, cycle: Cycle) -> None:
        """Only on a node whose processes all stand still, or have only just begun to go on."""
        world = self._world
        if not workers.alive:
            return
        bound = world.job.timeouts.heartbeat + KILL_BOUND + WAKING
        if node.guarded and world.now - node.guarded_since > bound:
            raise Breach("10", f"{cycle} runs while {node.name} still runs {workers.cycle}")
        world.after(bound / 4, self._overlap, node, workers, cycle)

    # -- coordinators

    def in_charge(self, coordinator: SimCoordinator, term: int) -> None:
        """Its pulse carries this term, or its mail does."""
        world = self._world
        if self.terms.setdefault(term, coordinator) is not coordinator:
            raise Breach("9", f"two coordinators are in charge in term {term}")
        if term % len(world.nodes) != coordinator.node.rank:
            raise Breach("9", f"{coordinator.node.name} is in charge in term {term}")
        if self.leader != coordinator.node.rank:
            self.leader = coordinator.node.rank
            world.moment("leading", coordinator.node.rank)

    def received(self, coordinator: SimCoordinator, message: ToCoordinator) -> None:
        """A message is about to be handled."""
        if isinstance(message, Register):
            self._lost.get(coordinator, set()).discard(message.infra_rank)
            self._world.moment("joining", message.infra_rank)

    def heard(self, coordinator: SimCoordinator, ranks: Iterable[int]) -> None:
        """A coordinator learns by their heartbeats that these live, or gives them time anew."""
        known = self._heard.setdefault(coordinator, {})
        known.update(dict.fromkeys(ranks, (coordinator.awake(), coordinator.thaws)))

    def coordinator_log(self, coordinator: SimCoordinator, event: str, fields: tuple[tuple[str, object], ...]) -> None:
        """A log line: of interest is who was lost."""
        if event == "in_charge":
            self.heard(coordinator, range(len(self._world.nodes)))
        if event != "node_lost":
            return
        rank = self._world.job.nodes.index(str(dict(fields)["node"]))
        self._lost.setdefault(coordinator, set()).add(rank)
        self._world.moment("losing", rank)
        self._check_silence(coordinator, rank)
        led = rank in self._led.get(coordinator, ()) and self._world.nodes[rank].up and self.chosen is None
        if led and not {rank, coordinator.node.rank} & self.touched:
            raise Breach("lost", f"{coordinator.node.name} gives up n{rank}, and nothing was wrong with either")

    def _check_silence(self, coordinator: SimCoordinator, rank: int) -> None:
        """Time in which the coordinator stood still counts against nobody, but for two heartbeats each time."""
        timeouts = self._world.job.timeouts
        since, thaws = self._heard.get(coordinator, {}).get(rank, (-1e9, 0))
        silence = coordinator.awake() - since
        if silence + (2 * (coordinator.thaws - thaws) + 1) * timeouts.heartbeat < timeouts.node_lost:
            raise Breach("lost", f"{coordinator.node.name} gives up n{rank} after {silence:.1f} s, itself not counted")

    def mail(self, coordinator: SimCoordinator, infra_rank: int, message: ToAgent) -> None:
        """A coordinator tells an agent something."""
        if not isinstance(message, Prepare | Close):  # only who is in charge says such a thing
            self.in_charge(coordinator, message.term)
            self._led.setdefault(coordinator, set()).add(infra_rank)
        match message:
            case Run() if infra_rank in self._lost.get(coordinator, ()):
                raise Breach("3", f"n{infra_rank} is to run {message.cycle} though lost")
            case Run() if self.chosen is not None and self.terms.get(message.term) is self._closer:
                raise Breach("4", f"{message.cycle} after the verdict")
            case Run() if message.cycle.term != message.term:
                raise Breach("7", f"{message.cycle} by the coordinator of term {message.term}")
            case Propose(verdict=Verdict(Outcome.SUCCESS)):
                self._check_success("proposed")
            case Close(verdict=verdict):
                self.verdict(verdict, f"{coordinator.node.name} closes")
                self._closer = coordinator

    _closer: SimCoordinator | None = None

    # -- the end

    def verdict(self, verdict: Verdict, where: str) -> None:
        """Somebody says that this is the job's."""
        if self.chosen is None:
            self.chosen, self.chosen_at = verdict, self._world.now
            if verdict.outcome is Outcome.SUCCESS:
                self._check_success("chosen")
        elif verdict != self.chosen and not self.outside:
            raise Breach("4", f"{where}: {verdict}, after {self.chosen}")

    def _check_success(self, what: str) -> None:
        if not any(set(group) <= self.succeeded(cycle) for cycle, group in self.groups.items()):
            raise Breach("5", f"success is {what}, but no cycle has succeeded: {self._worked}")

    def agent_leaves(self, node: SimNode, leave: Leave) -> None:
        """An agent says Leave."""
        if leave.verdict is not None:
            self.verdict(leave.verdict, f"{node.name} leaves")

    def daemon_leaves(self, node: SimNode, leave: Leave, code: int) -> None:
        """A daemon leaves with this code."""
        self._world.note(node.name, f"leaves with {code}: {leave.reason}")
        self._left_at[node.rank] = self._world.now
        if leave.verdict is not None:
            self.verdict(leave.verdict, f"{node.name}'s daemon leaves")
            if code != leave.verdict.exit_code:
                raise Breach("4", f"{node.name} leaves with {code} for {leave.verdict}")
        elif code == 0:  # by the exit barrier alone, which is no verdict
            self._by_barrier.add(node.rank)
        if code == 0:
            self._check_success(f"{node.name}'s code")

    def fault(self, fault: Fault, ranks: Sequence[int]) -> None:
        """A fault happens now."""
        world = self._world
        self._disturbed_until = max(self._disturbed_until, world.now + fault.seconds)
        self.outside = self.outside or fault.kind == "outside"
        if fault.kind == "split":
            self.touched.update(range(len(world.nodes)))
        elif fault.kind == "freeze-coordinator":
            if not self._harmless(fault):
                self.touched.update(range(len(world.nodes)))
        elif fault.kind not in ("repeat", "files", "reset"):
            self.touched.update(ranks)

    def _harmless(self, freeze: Fault) -> bool:
        """Whether a coordinator that stands still for so long may not give anybody up for it. Where there are other
        candidates, some agents may go to one, and others may stay."""
        timeouts, now = self._world.job.timeouts, self._world.now
        again, self._frozen_until = now < self._frozen_until + timeouts.fence, now + freeze.seconds
        if len(candidates(self._world.job, None)) == 1:
            return freeze.seconds < timeouts.fence
        return not again and freeze.seconds < timeouts.coordinator - timeouts.heartbeat

    def end(self) -> None:
        """Everybody has left."""
        world = self._world
        codes = {node.rank: node.code for node in world.nodes if node.code is not None}
        if any(node.workers is not None for node in world.nodes):
            raise Breach("6", "a worker outlives its daemon")
        if self.chosen is not None and world.file not in (None, self.chosen) and not self.outside:
            raise Breach("4", f"the file holds {world.file}, but {self.chosen} was chosen")
        said = {self.chosen.exit_code} if self.chosen is not None else {0}
        by_verdict = {code for rank, code in codes.items() if rank not in self._by_barrier}
        if not by_verdict <= said | {75, 130} and not self.outside:
            raise Breach("4", f"codes {codes} with the verdict {self.chosen}")
        self._check_time()
        harmless = all(fault.kind in ("repeat", "files", "reset") for fault in world.plan.faults)
        good = (harmless and not world.plan.fails) or world.plan.gentle
        if good and list(codes.values()) != [0] * len(world.nodes):
            raise Breach("8" if world.plan.gentle else "success", f"codes {codes}, verdict {self.chosen}")

    def _check_time(self) -> None:
        """Once there is a verdict, everybody leaves soon after the last fault."""
        t = self._world.job.timeouts
        if self.chosen is None:
            return
        grace = t.stop_grace + t.close_grace + KILL_BOUND + 5.0
        bound = max(self.chosen_at, self._disturbed_until) + t.takeover + t.node_lost + 2 * grace
        for rank, at in self._left_at.items():
            if at > bound:
                raise Breach("6", f"n{rank} left at {at:.1f}, the verdict was there at {self.chosen_at:.1f}")
