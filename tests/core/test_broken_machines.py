"""The simulation is worth as much as what it notices: machines with one rule broken each must end in a Breach.

Each comes with the faults under which its rule matters. A rule that breaks unnoticed in every seed fails its test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from tests.core.simworld import Breach, SimAgent, SimNode, World

from ft_supervisor.core import actions, events, messages, orders
from ft_supervisor.core.agent import AgentMachine
from ft_supervisor.core.coordinator import CoordinatorMachine, Phase
from ft_supervisor.core.members import Member
from ft_supervisor.core.model import Cycle, Failure, Memory, Outcome, Verdict

SEEDS = 3000

Faults = Callable[[World, random.Random], None]


class Watched(World):
    """A world that also looks at what the design says of ranks and of agents that are replaced."""

    def _start_workers(self, sim: SimNode, agent: SimAgent, run: messages.Run) -> None:
        if sim.node.infra_rank in self.ranks.get(run.cycle, {}).values():
            raise Breach(f"7: {sim.node.name} starts {run.cycle} for the second time")
        super()._start_workers(sim, agent, run)

    def run(self, limit: float = 400.0) -> None:
        super().run(limit)
        cycles = sorted(self.ranks)
        for former, later in pairwise(cycles):
            before = {node: rank for rank, node in self.ranks[former].items()}
            for rank, node in self.ranks[later].items():
                if before.get(node, rank) != rank:
                    raise Breach(f"survivors: n{node} was {before[node]} of {former} and is {rank} of {later}")


# -- faults


def none(world: World, plan: random.Random) -> None:
    """Nothing goes wrong."""


def failures(world: World, plan: random.Random) -> None:
    """Workers fail on some node in the first cycles; some heed no SIGTERM."""
    failing = {(plan.randrange(len(world.nodes)), cycle) for cycle in range(2)}
    world.fails = lambda node, cycle: (node, cycle.n) in failing
    stubborn = plan.randrange(len(world.nodes))
    world.stubborn = lambda node: node == stubborn


def deaths(world: World, plan: random.Random) -> None:
    """One node dies, or a second one with it."""
    for _ in range(plan.randint(1, 2)):
        victim = world.nodes[plan.randrange(1, len(world.nodes))]
        world.after(plan.uniform(1.0, 14.0), lambda victim=victim: world.kill_node(victim))  # type: ignore[misc]


def cuts(world: World, plan: random.Random) -> None:
    """A node's network is gone for about as long as it takes to give the node up."""
    victim = world.nodes[plan.randrange(1, len(world.nodes))]
    world.after(plan.uniform(4.0, 12.0), lambda: world.cut(victim, plan.uniform(6.0, 20.0)))


def short_cuts(world: World, plan: random.Random) -> None:
    """Networks come and go while workers fail."""
    failures(world, plan)
    for _ in range(6):
        victim = world.nodes[plan.randrange(1, len(world.nodes))]
        world.after(
            plan.uniform(2.0, 20.0),
            lambda victim=victim: world.cut(victim, plan.uniform(0.5, 4.0)),  # type: ignore[misc]
        )


def agents_die(world: World, plan: random.Random) -> None:
    """Agents are killed under their nodes."""
    for _ in range(3):
        victim = world.nodes[plan.randrange(len(world.nodes))]
        world.after(plan.uniform(4.0, 14.0), lambda victim=victim: world.kill_agent(victim))  # type: ignore[misc]


def echoes(world: World, plan: random.Random) -> None:
    """Workers fail, and old messages come once more."""
    failures(world, plan)
    for _ in range(60):
        world.after(plan.uniform(4.0, 25.0), world.repeat_old_messages)


def ends_at_once(world: World, plan: random.Random) -> None:
    """Somebody outside and somebody inside end the job in the same heartbeat."""
    at = plan.uniform(5.0, 9.0)
    world.after(at, lambda: world.close_from_outside(Verdict(Outcome.FAILED, "from outside")))
    world.after(at + 0.01, lambda: world.tell_daemon(world.nodes[1], events.Signalled("SIGTERM")))


def one_terminated(world: World, plan: random.Random) -> None:
    """A node is told to end."""
    node = world.nodes[plan.randrange(len(world.nodes))]
    world.after(plan.uniform(5.0, 9.0), lambda: world.tell_daemon(node, events.Signalled("SIGTERM")))


def late_failure(world: World, plan: random.Random) -> None:
    """Some node has succeeded when another's agent dies, and word of before comes once more in the next cycle."""

    def look() -> None:
        if not (done := world.worked.get(Cycle(0, 0), set())):
            world.after(0.01, look)
            return
        if left := sorted(set(world.ranks[Cycle(0, 0)].values()) - done):
            world.kill_agent(world.nodes[plan.choice(left)])
        for _ in range(100):
            world.after(plan.uniform(0.5, 15.0), world.repeat_old_messages)

    world.after(1.0, look)


# -- coordinators


class StartsWithoutWaiting(CoordinatorMachine):
    def _restart(self, reason: str, *, charged: bool, now: float, patient: bool = False) -> None:
        super()._restart(reason, charged=charged, now=now, patient=patient)
        if self.phase is Phase.STOPPING:
            for member in self.members:
                member.running = False
            self._waiting.clear()
            self._advance(now)


class WaitsOnlyForTheFirstToStop(CoordinatorMachine):
    def _stopped(self, member: Member, now: float) -> None:
        if self.phase is Phase.STOPPING:
            self._waiting.clear()
        for other in self.members:
            other.running = other.running and self.phase is Phase.RUNNING
        super()._stopped(member, now)


class SuspectsAreGivenUp(CoordinatorMachine):
    """Does not wait for node_lost where the probe had no answer."""

    def _watch_stopping(self, now: float) -> None:
        if now - self._since >= self.job.timeouts.probe:
            for infra_rank in self._suspects & self._waiting:
                self.members[infra_rank].running = False
                self._waiting.discard(infra_rank)
        super()._watch_stopping(now)


class OneSuccessIsEnough(CoordinatorMachine):
    def _succeeded(self, member: Member, now: float) -> None:
        self._pending.clear()
        super()._succeeded(member, now)


class CountsSuccessesOfFormerCycles(CoordinatorMachine):
    def _receive(self, message: messages.ToCoordinator, now: float) -> None:
        if isinstance(message, messages.WorkersSucceeded) and self.cycle is not None:
            message = replace(message, cycle=self.cycle)
        super()._receive(message, now)


class ForgetsLostNodes(CoordinatorMachine):
    def _lose(self, member: Member, now: float) -> None:
        member.lost = True


class LosesNobody(CoordinatorMachine):
    def _lose(self, member: Member, now: float) -> None:
        member.heard = now


class ShiftsRanks(CoordinatorMachine):
    """The next group as sorted by infra_rank."""

    def _start(self, group: tuple[int, ...], reason: str) -> None:
        super()._start(tuple(sorted(group)), reason)


class TwoOfTheSameRank(CoordinatorMachine):
    def _run(self, member: Member, group_rank: int) -> None:
        super()._run(member, max(0, group_rank - 1))


class NeverGivesUp(CoordinatorMachine):
    def _too_few(self, healthy: int, now: float) -> None:
        """Wait for ever."""


class JoinsForEver(CoordinatorMachine):
    def _tick(self, now: float) -> None:
        self._since = now if self.phase is Phase.JOINING else self._since
        super()._tick(now)


class RunsAfterTheVerdict(CoordinatorMachine):
    def _register(self, message: messages.Register, now: float) -> None:
        super()._register(message, now)
        if self.verdict is not None and self.cycle is not None:
            self._run(self.members[message.infra_rank], 0)


class RecordsWhatItClaims(CoordinatorMachine):
    """Believes its own verdict, and not what the key holds."""

    def _conclude(self, outcome: Outcome, reason: str) -> None:
        super()._conclude(outcome, reason)
        self._actions.append(actions.Record(Verdict(outcome, reason)))


class DoesNotListenToRegisters(CoordinatorMachine):
    """Does not listen to what a node says of the running cycle, and waits for an agent that ran it already."""

    def _register_active(self, message: messages.Register, member: Member, now: float) -> None:
        forgotten = replace(message, memory=Memory())
        super()._register_active(forgotten, member, now)


# -- agents


class NeverFences(AgentMachine):
    def _fence_is_over(self, now: float) -> bool:
        return self.running is None and super()._fence_is_over(now)

    def handle(self, event: events.AgentEvent, now: float) -> list[actions.AgentAction]:
        todo = super().handle(event, now)
        for i, action in enumerate(todo):  # and its daemon is not to guard it either
            if isinstance(action, actions.Tell) and isinstance(action.order, orders.Alive):
                todo[i] = actions.Tell(replace(action.order, fence_in=None))
        return todo


class AcceptsAnyRun(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        self.memory = replace(self.memory, newest=None)
        super()._be_told_to_run(replace(run, connection=self._connection), now)


class AcceptsRunsOfOlderConnections(AgentMachine):
    def _be_told_to_run(self, run: messages.Run, now: float) -> None:
        super()._be_told_to_run(replace(run, connection=self._connection), now)


class StartsBesideTheFormer(AgentMachine):
    """A failed worker's peers are left to themselves."""

    def _stop(self, grace: float, now: float) -> None:
        if self._run is not None and self._end_as is None:
            self._gone(self._run.cycle, self._port, now)
        else:
            super()._stop(grace, now)


class SaysStoppedTooEarly(AgentMachine):
    def _be_told_to_stop(self, cycle: Cycle, now: float) -> None:
        self._send(messages.WorkersStopped, cycle=cycle, port=self._port)
        super()._be_told_to_stop(cycle, now)


class NeverStops(AgentMachine):
    def _stop(self, grace: float, now: float) -> None:
        """Leave the workers alone."""


class FailsAndCallsItSuccess(AgentMachine):
    def _exited(self, cycle: Cycle, failures: tuple[Failure, ...], now: float) -> None:
        super()._exited(cycle, (), now)


class RemembersNothing(AgentMachine):
    def _remember(self, memory: Memory) -> None:
        self.memory = memory


class NeverLeaves(AgentMachine):
    def _leave(self, leave: actions.Leave) -> None:
        self._send(messages.Goodbye)


class SaysGoodbyeTooEarly(AgentMachine):
    """Nobody waits for its workers, though they go on."""

    def _terminate(self, reason: str, now: float) -> None:
        self._send(messages.Goodbye)


@dataclass(frozen=True)
class Case:
    """A machine, the faults that show its rule, and what the Breach says."""

    broken: type[CoordinatorMachine | AgentMachine]
    faults: Faults
    says: str


CASES = [
    Case(StartsWithoutWaiting, failures, "10: "),
    Case(WaitsOnlyForTheFirstToStop, failures, "10: "),
    Case(SuspectsAreGivenUp, short_cuts, "10: "),
    Case(OneSuccessIsEnough, none, "5: "),
    Case(CountsSuccessesOfFormerCycles, late_failure, "5: "),
    Case(ForgetsLostNodes, deaths, "3: "),
    Case(LosesNobody, deaths, "6: "),
    Case(ShiftsRanks, deaths, "survivors: "),
    Case(TwoOfTheSameRank, none, "2: "),
    Case(NeverGivesUp, deaths, "6: "),
    Case(JoinsForEver, deaths, "6: "),
    Case(RunsAfterTheVerdict, agents_die, "4: "),
    Case(RecordsWhatItClaims, ends_at_once, "4: "),
    Case(DoesNotListenToRegisters, agents_die, "6: "),
    Case(NeverFences, cuts, "10: "),
    Case(AcceptsAnyRun, echoes, "7: "),
    Case(AcceptsRunsOfOlderConnections, short_cuts, "10: "),
    Case(StartsBesideTheFormer, failures, "1: "),
    Case(SaysStoppedTooEarly, failures, "10: "),
    Case(NeverStops, failures, "6: "),
    Case(FailsAndCallsItSuccess, failures, "5: "),
    Case(RemembersNothing, agents_die, "7: "),
    Case(NeverLeaves, none, "6: "),
    Case(SaysGoodbyeTooEarly, one_terminated, "10: "),
]


def live(case: Case, seed: int) -> None:
    """The life of one job of four nodes with this machine under these faults. Raises Breach."""
    coordinator = case.broken if issubclass(case.broken, CoordinatorMachine) else CoordinatorMachine
    agent = case.broken if issubclass(case.broken, AgentMachine) else AgentMachine
    plan = random.Random(f"broken {seed}")
    world = Watched(seed, nodes=4, active=3, work=plan.uniform(3.0, 12.0), make=coordinator, make_agent=agent)
    case.faults(world, plan)
    world.run(limit=200.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.broken.__name__)
def test_a_broken_rule_is_noticed(case: Case) -> None:
    for seed in range(SEEDS):
        try:
            live(case, seed)
        except Breach as breach:
            assert case.says in str(breach)
            return
    pytest.fail(f"{SEEDS} seeds, and nothing was noticed")


@pytest.mark.parametrize("faults", dict.fromkeys(case.faults for case in CASES))
def test_the_machines_as_they_are_stand_the_same_faults(faults: Faults) -> None:
    for seed in range(50):
        live(Case(AgentMachine, faults, ""), seed)
