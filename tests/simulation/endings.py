"""Checks the invariants of a job's end: one verdict, success only where it is true, and every daemon leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Breach
from tests.simulation.plan import Fault

from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.model import CONFIG_ERROR, KILL_BOUND, NO_PROMISE, Cycle, Outcome, Verdict
from ft_supervisor.core.transitions import InvalidState

if TYPE_CHECKING:
    from tests.simulation.node import SimNode
    from tests.simulation.world import World

    from ft_supervisor.core.daemon.daemon import DaemonMachine
    from ft_supervisor.core.protocol.actions import DaemonAction
    from ft_supervisor.core.protocol.events import DaemonEvent

HARMLESS = {"repeat", "files", "reset", "stranger", "squatter"}
"""Faults that touch no training and no verdict."""


class Endings:
    """Records the workers' successes, the verdicts that processes announce, and when these happen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.groups: dict[Cycle, tuple[int, ...]] = {}
        """The infra_ranks by group_rank of all cycles that were started somewhere."""
        self.chosen: Verdict | None = None
        """The verdict, once a process has announced it as the job's."""
        self.chosen_at = 0.0
        self.outside = False
        """Whether a process outside of the job may have set the verdict."""
        self.touched: set[int] = set()
        """Nodes that were hit by some fault."""
        self.charged = 0
        """Restarts that were charged to a budget, by the messages to nodes."""
        self._worked: dict[Cycle, set[int]] = {}
        self._crashed: dict[tuple[Cycle, str], set[int]] = {}
        self.left_at: dict[int, float] = {}
        """When each daemon has left, by infra_rank."""
        self.worked_at = 0.0
        """When workers last exited with 0."""
        self._disturbed_until = 0.0

    def worked(self, cycle: Cycle, rank: int) -> None:
        """Note that all workers of the cycle on this node have exited with 0."""
        self._worked.setdefault(cycle, set()).add(rank)
        self.worked_at = self._world.now

    def crashed(self, cycle: Cycle, rank: int, said: str) -> None:
        """Note that a worker of the cycle on this node has failed by itself, with these words."""
        self._crashed.setdefault((cycle, said), set()).add(rank)

    def succeeded(self, cycle: Cycle) -> set[int]:
        """Return the nodes on which all workers of the cycle have exited with 0."""
        return self._worked.get(cycle, set())

    def disturb(self, fault: Fault) -> None:
        """Note that a fault happens now, and when it will be over."""
        self._disturbed_until = max(self._disturbed_until, self._world.now + fault.seconds)
        self.outside = self.outside or fault.kind == "outside"

    def verdict(self, verdict: Verdict, where: str) -> None:
        """Check a verdict that a process announces as the job's."""
        if self.chosen is None:
            self.chosen, self.chosen_at = verdict, self._world.now
            if verdict.outcome is Outcome.SUCCESS:
                self.check_success("chosen")
            elif verdict.reason.startswith("fails at once"):
                self._check_crashes()
        elif verdict != self.chosen and not self.outside:
            raise Breach("4", f"{where}: {verdict}, after {self.chosen}")

    def _check_crashes(self) -> None:
        """Check that in the newest cycle the workers of each node have failed alike, and some in the one before it."""
        newest = max(self.groups)
        for (cycle, said), ranks in self._crashed.items():
            before = any(other.n == newest.n - 1 and words == said for other, words in self._crashed)
            if cycle == newest and before and set(self.groups[newest]) <= ranks:
                return
        raise Breach("crash", f"{self.chosen}, but only these have failed: {self._crashed}")

    def check_success(self, what: str) -> None:
        """Check that some cycle's workers have succeeded on all of its nodes."""
        if not any(set(group) <= self.succeeded(cycle) for cycle, group in self.groups.items()):
            raise Breach("5", f"success is {what}, but no cycle has succeeded: {self._worked}")

    def agent_leaves(self, node: SimNode, leave: Leave) -> None:
        """Check an agent's Leave."""
        if leave.code == CONFIG_ERROR:
            self._check_refusal(node)
        if leave.verdict is not None:
            self.verdict(leave.verdict, f"{node.name} leaves")

    def _check_refusal(self, node: SimNode) -> None:
        """Check that only a squatter makes a node leave for its configuration, as all nodes have one here, and only a
        node that has never had a coordinator."""
        assert node.agent is not None and node.agent.machine is not None
        met = node.agent.machine.memory.promise != NO_PROMISE
        if met or self._world.now < self._world.job.timeouts.takeover:
            raise Breach("4", f"{node.name} leaves for a stranger's store")

    def step(self, who: str, machine: DaemonMachine, event: DaemonEvent, now: float) -> list[DaemonAction]:
        """Let a machine handle an event, and check that it keeps to its table and its fields fit its state."""
        try:
            todo = machine.handle(event, now)
            machine.validate()
        except (InvalidState, AssertionError) as error:
            raise Breach("state", f"{who}: {type(error).__name__} {error}") from error
        return todo

    def daemon_leaves(self, node: SimNode, leave: Leave) -> None:
        """Check a daemon that leaves, perhaps after a last deed."""
        code = leave.code
        self._world.note(node.name, f"leaves with {code}: {leave.reason}")
        self.left_at.setdefault(node.rank, self._world.now)
        if leave.verdict is not None:
            self.verdict(leave.verdict, f"{node.name}'s daemon leaves")
            if code != leave.verdict.exit_code:
                raise Breach("4", f"{node.name} leaves with {code} for {leave.verdict}")
        elif leave.code == 0:
            raise Breach("5", f"{node.name} leaves with 0 and without a verdict: {leave.reason}")
        if code == 0:
            self.check_success(f"{node.name}'s code")

    def end(self) -> None:
        """Check the codes and the verdict once every daemon has left."""
        world = self._world
        codes = {node.rank: node.code for node in world.nodes if node.code is not None}
        if any(node.workers is not None or node.parked is not None for node in world.nodes):
            raise Breach("6", "a worker outlives its daemon")
        if self.chosen is not None and world.file not in (None, self.chosen) and not self.outside:
            raise Breach("4", f"the file holds {world.file}, but {self.chosen} was chosen")
        allowed = {75, 130, self.chosen.exit_code if self.chosen is not None else 0}
        if any(fault.kind == "squatter" for fault in world.plan.faults):
            allowed.add(CONFIG_ERROR)
        if not set(codes.values()) <= allowed and not self.outside:
            raise Breach("4", f"codes {codes} with the verdict {self.chosen}")
        self._check_time()
        kinds = {fault.kind for fault in world.plan.faults} - HARMLESS
        spared = len(world.nodes) - len(self.touched) >= world.job.active
        good = (not kinds or (kinds == {"unable"} and spared)) and not world.plan.fails
        # With "replace" a rule for exit code 1 matches the peers' failures, and goes before the rule for any failure.
        if kinds == {"unable"} and not world.plan.fails and world.plan.policy != "replace" and self.charged:
            raise Breach("charged", f"{self.charged} restarts are charged, and no worker has failed by itself")
        if (good or world.plan.gentle) and list(codes.values()) != [0] * len(world.nodes):
            raise Breach("8" if world.plan.gentle else "success", f"codes {codes}, verdict {self.chosen}")

    def _check_time(self) -> None:
        """Check that every daemon leaves soon after the verdict and the last fault."""
        t = self._world.job.timeouts
        if self.chosen is None:
            return
        grace = t.stop_grace + t.close_grace + KILL_BOUND + 5.0
        bound = max(self.chosen_at, self._disturbed_until) + t.takeover + t.node_lost + 2 * grace
        for rank, at in self.left_at.items():
            if at > bound:
                raise Breach("6", f"n{rank} left at {at:.1f}, the verdict was there at {self.chosen_at:.1f}")
