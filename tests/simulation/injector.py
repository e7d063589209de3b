"""Carries out a plan's faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.plan import ACTOR, IN_CHARGE, Fault

from ft_supervisor.core.protocol.events import Signalled
from ft_supervisor.core.protocol.messages import Close, Members, Prepare, Propose, Register, Run, Stop
from ft_supervisor.core.protocol.model import Failure, Outcome, Verdict
from ft_supervisor.core.protocol.orders import SlurmDecision

if TYPE_CHECKING:
    from tests.simulation.node import SimNode
    from tests.simulation.world import World

REPEATABLE = (Prepare, Members, Run, Stop, Propose, Close)
"""Mail that may come twice. A Standby may not: it is no order for a moment, and a queue gives each message once."""


class Injector:
    """Schedules a plan's faults, and keeps those that wait for a moment."""

    def __init__(self, world: World, faults: Sequence[Fault]) -> None:
        self._world = world
        self._aimed: dict[str, list[Fault]] = {}
        for fault in faults:
            if fault.moment:
                self._aimed.setdefault(fault.moment, []).append(fault)
            else:
                world.after(fault.at, self._do, fault, 0)

    def moment(self, name: str, actor: int) -> None:
        """Schedule the faults that wait for this moment; `actor`: the node at which it happens. Only the first time
        counts."""
        for fault in self._aimed.pop(name, ()):
            self._world.after(fault.at, self._do, fault, actor)

    def _do(self, fault: Fault, actor: int) -> None:
        world = self._world
        names = {IN_CHARGE: world.checks.leader or 0, ACTOR: actor}
        ranks = [names.get(rank, rank) for rank in fault.nodes]
        if any(rank >= len(world.nodes) for rank in ranks):
            return
        world.note("FAULT", f"{fault} at {ranks}")
        world.checks.fault(fault, ranks)
        if fault.kind in ("split", "cut-pair", "cut-way", "files", "cancel", "limit", "launch-term", "launch-int"):
            self._do_to_many(fault, ranks)
        elif world.nodes[ranks[0]].up:
            self._do_to_one(fault, world.nodes[ranks[0]])

    def _do_to_many(self, fault: Fault, ranks: list[int]) -> None:
        world = self._world
        all_ranks = range(len(world.nodes))
        match fault.kind:
            case "split":
                others = [rank for rank in all_ranks if rank not in ranks]
                pairs = [(a, b) for a in ranks for b in others]
                world.network.part([*pairs, *((b, a) for a, b in pairs)], fault.seconds)
            case "cut-pair" if ranks[0] != ranks[1]:
                world.network.cut([(ranks[0], ranks[1]), (ranks[1], ranks[0])], fault.seconds)
            case "cut-way" if ranks[0] != ranks[1]:
                world.network.cut([(ranks[0], ranks[1])], fault.seconds)
            case "files":
                world.files_away += 1
                world.after(fault.seconds, self._files_back)
            case "limit":
                world.slurm.end_at = world.now + fault.seconds
            case "launch-term" | "launch-int" if world.launch is not None:
                world.launch.signal(f"SIG{fault.kind.removeprefix('launch-').upper()}")
            case "cancel":
                if world.launch is not None:
                    world.launch.signal("SIGTERM")
                world.slurm.decision = SlurmDecision.CANCELLED
                for node in world.nodes:
                    node.daemon.do(node.daemon.feed, Signalled("SIGTERM"))
                    if node.workers is not None:
                        killed = Failure(node.rank, 0, signal="SIGTERM")
                        world.after(world.between(0.0, 0.5), node.workers.fail, killed)

    def _files_back(self) -> None:
        self._world.files_away -= 1

    def _do_to_one(self, fault: Fault, node: SimNode) -> None:
        world = self._world
        match fault.kind:
            case "worker" if node.workers is not None:
                node.workers.fail(Failure(node.rank, 0, signal="SIGKILL"))
            case "hang" if node.workers is not None:
                node.workers.hang()
            case "still" if node.workers is not None:
                node.workers.stand_still(fault.seconds)
            case "worker" if node.parked is not None:
                node.parked.gone()
            case "agent":
                node.kill_agent()
            case "coordinator":
                node.kill_coordinator()
            case "daemon":
                node.end(None)
                node.kill_workers()
            case "node":
                node.power_off()
            case "freeze-agent" if node.agent is not None and node.agent.alive:
                node.agent.freeze(fault.seconds)
            case "freeze-coordinator" if node.coordinator is not None and node.coordinator.alive:
                node.coordinator.freeze(fault.seconds)
            case "freeze-daemon":
                node.daemon.freeze(fault.seconds)
            case "freeze-children":
                for process in (node.agent, node.coordinator):
                    if process is not None and process.alive:
                        process.freeze(fault.seconds)
            case "freeze-node":
                node.freeze(fault.seconds)
            case "cut-node":
                others = [rank for rank in range(len(world.nodes)) if rank != node.rank]
                pairs = [(node.rank, rank) for rank in others]
                world.network.cut([*pairs, *((b, a) for a, b in pairs)], fault.seconds)
            case "reset" if node.agent is not None and node.agent.wire is not None:
                if node.agent.wire.connection is not None:
                    node.agent.wire.connection.sever()
            case "sick":
                node.sick = True
            case "unable":
                node.unable = True
            case "drain":
                world.slurm.draining |= {node.rank}
            case "signal":
                node.daemon.do(node.daemon.feed, Signalled("SIGTERM"))
            case "repeat":
                for _ in range(int(fault.seconds)):
                    world.after(world.between(0.0, 15.0), self._repeat, node)
            case "stranger" if node.coordinator is not None and node.coordinator.alive:
                node.coordinator.store.open_barriers()
            case "squatter":
                node.squatted_until = max(node.squatted_until, world.now + fault.seconds)
            case "outside" if node.coordinator is not None and node.coordinator.alive:
                node.coordinator.store.claim(Verdict(Outcome.FAILED, "from outside"))

    def _repeat(self, node: SimNode) -> None:
        """Deliver an old message to this node's coordinator or agent once more, in the way in which it came."""
        world, coordinator = self._world, node.coordinator
        if world.random.random() < 0.5:
            if coordinator is not None and coordinator.alive and coordinator.store.received:
                received = coordinator.store.received
                others = [message for message in received if not isinstance(message, Register)]
                message = world.random.choice(others if others and world.random.random() < 0.7 else received)
                world.note("FAULT", f"repeats {type(message).__name__} to {node.name}")
                coordinator.do(coordinator.repeat, message)
            return
        agent = node.agent
        if agent is None or not agent.alive or agent.wire is None or agent.wire.connection is None:
            return
        key = (node.rank, agent.incarnation, agent.wire.number)
        mine = [mail for which, mail in world.old_mail if which == key and isinstance(mail, REPEATABLE)]
        if mine:
            mail = world.random.choice(mine)
            world.note("FAULT", f"repeats {type(mail).__name__} to {node.name}")
            agent.wire.repeat(mail)
