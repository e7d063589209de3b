"""The machines with one rule broken each. A rule that is guarded on two sides is broken on both.

Each is a set of replaced classes or functions of the core: (module, name) -> what is there instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from unittest.mock import patch

from tests.simulation import (
    broken_cycles,
    broken_daemon,
    broken_launch,
    broken_nodes,
    broken_policy,
    broken_takeover,
    themes,
)
from tests.simulation.themes import Theme
from tests.simulation.world import Machines

from ft_supervisor.core.agent import agent, follower
from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator import coordinator, cycles, leadership, state
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon import daemon, leaving
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.quorum import lease, majority, roster


@dataclass(frozen=True)
class Mutant:
    """`says`: the numbers of the invariants that it may break; `theme`: the faults that show it, if any will not do."""

    name: str
    says: tuple[str, ...]
    theme: Theme | None = None
    machines: Machines = field(default_factory=Machines)
    parts: tuple[tuple[ModuleType, str, object], ...] = field(default=(), repr=False)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The core's parts are replaced."""
        patches = [patch.object(module, name, part) for module, name, part in self.parts]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def _agent(machine: type[AgentMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(agent=machine))


def _agent_part(part: type, *says: str, theme: Theme | None = None) -> Mutant:
    """Of the agent: its Follower, or its Lifecycle."""
    return Mutant(part.__name__, says, theme, parts=((agent, part.__base__.__name__, part),))  # type: ignore[union-attr]


def _coordinator(machine: type[CoordinatorMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(coordinator=machine))


def _daemon(machine: type[DaemonMachine], *says: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, says, theme, Machines(daemon=machine))


def _launch(machine: type[LaunchMachine], *says: str) -> Mutant:
    return Mutant(machine.__name__, says, themes.launched, Machines(launch=machine))


def _part(name: str, part: type, *says: str, theme: Theme | None = None) -> Mutant:
    """Of the coordinator's state, or of its leadership."""
    module = state if hasattr(state, name) else leadership
    return Mutant(part.__name__, says, theme, parts=((module, name, part),))


def _last_deed(part: type, *says: str, theme: Theme | None = None) -> Mutant:
    """Of the daemon that ends the job in Slurm."""
    return Mutant(part.__name__, says, theme, parts=((leaving, "LastDeed", part),))


BELIEVES = tuple(
    (module, name, broken_nodes.believes) for module, name in ((follower, "to_node"), (coordinator, "from_node"))
)
"""Every message, also one that cannot be true: else a broken machine's are refused before they do any harm."""

REQUIRED = (
    Mutant(
        "FencesNoOlderTerms",
        ("4", "7", "9", "10"),
        themes.see_saw,
        Machines(agent=broken_takeover.HeedsOlderTerms, coordinator=broken_takeover.IgnoresNewerPromises),
        BELIEVES,
    ),
    Mutant("AnyMinoritySuffices", ("4", "9", "10"), parts=((roster, "majority", broken_takeover.any_minority),)),
    _part("RosterChange", broken_takeover.AsksOnlyTheNewList, "4", "9", "10", theme=themes.drift),
    Mutant(
        "ForgetsPromises",
        ("4", "7", "9", "10"),
        themes.see_saw,
        Machines(daemon=broken_takeover.ForgetsPromises),
        BELIEVES,
    ),
    _part("Members", broken_takeover.WaitsForNobodyToStop, "10"),
    Mutant("LeasesToAnybody", ("9", "10"), parts=((majority, "Proof", broken_takeover.LeasesToAnybody),)),
    _agent(broken_takeover.NeverFences, "10"),
    _part("Members", broken_takeover.CountsItsOwnDelay, "lost", theme=themes.stutter),
    _coordinator(broken_takeover.GoesOnAfterAStall, "4", "9", "10", "lost", theme=themes.see_saw),
)
"""Without these there is no takeover that can be trusted."""

OTHERS = (
    _coordinator(broken_takeover.TakesAnyVerdictForIts, "4", theme=themes.endings),
    _part("VerdictCommit", broken_takeover.WantsNoKeepers, "4", theme=themes.endings),
    _part("VerdictCommit", broken_takeover.ForgetsItsProposal, "states"),
    _part("Leadership", broken_takeover.LeadsOnceAMajorityIsPresent, "states"),
    _part("Election", broken_takeover.TermsOfAnybody, "9"),
    _part("Cycles", broken_cycles.WaitsOnlyForTheFirstToStop, "10"),
    _part("Cycles", broken_cycles.GivesSuspectsUp, "10"),
    _part("Cycles", broken_cycles.OneSuccessIsEnough, "5"),
    _part("Cycles", broken_cycles.CountsSuccessesOfFormerCycles, "5", theme=themes.old_words),
    _coordinator(broken_cycles.ForgetsTheLost, "3"),
    _coordinator(broken_cycles.LosesNobody, "6"),
    _part("Cycles", broken_cycles.ShiftsRanks, "survivors"),
    Mutant("TwoOfTheSameRank", ("2",), parts=((state, "Cycles", broken_cycles.TwoOfTheSameRank), *BELIEVES)),
    Mutant("NeverGivesUp", ("6",), parts=((cycles, "Succession", broken_cycles.NeverGivesUp),)),
    _part("Cycles", broken_cycles.JoinsForEver, "6"),
    _part("Cycles", broken_cycles.DoesNotListenToRegisters, "6"),
    _coordinator(broken_cycles.RecordsWhatItLikes, "4"),
    _coordinator(broken_cycles.RunsAfterTheVerdict, "4"),
    _agent(broken_nodes.AcceptsAnyRun, "7", "9"),
    _agent(broken_nodes.RunsWithoutALease, "9", "10", theme=themes.stale_orders),
    _agent_part(broken_nodes.StartsBesideTheFormer, "1"),
    _agent(broken_nodes.SaysStoppedTooEarly, "10"),
    _agent_part(broken_nodes.NeverStops, "6"),
    _agent_part(broken_nodes.FailsAndCallsItSuccess, "5"),
    _agent_part(broken_nodes.RemembersNothing, "4", "6", "7"),
    _agent_part(broken_nodes.NeverLeaves, "6"),
    _agent(broken_nodes.SaysGoodbyeTooEarly, "10"),
    _agent(broken_nodes.NeverCallsAnybodyElse, "8"),
    _agent(broken_nodes.LeavesByTheBarrier, "5"),
    _agent(broken_nodes.BelievesAnyStore, "4"),
    _agent_part(broken_nodes.TakesAStopForASuccess, "state"),
    _agent_part(broken_nodes.ForgetsItsDeadline, "state"),
    Mutant(
        "EchoesAfterPromising", ("4", "9", "10"), themes.see_saw, parts=((lease, "echo", broken_nodes.echoes_always),)
    ),
    _agent(broken_nodes.HasNoGuard, "10", theme=themes.unguarded),
    Mutant(
        "DoesNotGuardTheFence",
        ("10",),
        themes.unguarded,
        Machines(agent=broken_nodes.HasNoGuard, daemon=broken_nodes.DoesNotGuardTheFence),
    ),
    Mutant(
        "ChoosesTheExcluded",
        ("3",),
        themes.ailing,
        parts=((cycles, "Selection", broken_policy.ChoosesTheExcluded),),
    ),
    Mutant(
        "ChoosesTheUnhealthy",
        ("3",),
        themes.ailing,
        parts=(
            (agent, "Lifecycle", broken_policy.RunsWhateverTheChecksSay),
            (cycles, "Selection", broken_policy.ChoosesTheUnhealthy),
        ),
    ),
    _last_deed(broken_daemon.CompletesWithSuccess, "slurm"),
    _last_deed(broken_daemon.EndsEveryJob, "slurm"),
    _last_deed(broken_daemon.WaitsForAnAnswer, "slurm"),
    _last_deed(broken_daemon.CompletesForEver, "slurm"),
    _last_deed(broken_daemon.RequeuesAgain, "slurm", theme=themes.too_few),
    Mutant("LooksForNoFile", ("state",), parts=((daemon, "Leaving", broken_daemon.LooksForNoFile),)),
    _daemon(broken_daemon.ServesWhileItLeaves, "state"),
    Mutant("KeepsTheFormerDeadline", ("state",), parts=((daemon, "ChildWatch", broken_daemon.KeepsTheFormerDeadline),)),
    _part("Cycles", broken_policy.ChargesForTheNodesHealth, "charged", "success", theme=themes.unable),
    _agent_part(broken_policy.BlamesItsWorkers, "charged", "success", theme=themes.unable),
    _part("Cycles", broken_policy.DecidesBeforeAllHaveStopped, "1", "7", "10"),
    _launch(broken_launch.ExitsAsSrunDoes, "code"),
    _launch(broken_launch.BelievesAnyLaunchsVerdict, "code"),
    _launch(broken_launch.WaitsForNoLateVerdict, "code"),
    _launch(broken_launch.SwallowsSigterm, "swallowed"),
    _launch(broken_launch.PassesOnEverySignal, "passed"),
    _launch(broken_launch.LeavesWithTheVerdict, "left"),
    _launch(broken_launch.WaitsForSrunForEver, "bound"),
    _launch(broken_launch.LeavesTheJobRunning, "complete"),
)
