"""Mutants: the core with one broken rule each. A rule that two machines check is broken in both.

A mutant replaces classes or functions of the core: (module, name, replacement).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from unittest.mock import patch

from tests.simulation import agent as sim_agent
from tests.simulation import (
    broken_cycles,
    broken_daemon,
    broken_hang,
    broken_launch,
    broken_nodes,
    broken_parking,
    broken_policy,
    broken_takeover,
    themes,
)
from tests.simulation.themes import Theme
from tests.simulation.world import Machines

from ft_supervisor.core.agent import agent, follower, stillness, stillness_notice
from ft_supervisor.core.agent.agent import AgentMachine
from ft_supervisor.core.coordinator import coordinator, cycles, failure_decision, hang_round, leadership, state
from ft_supervisor.core.coordinator.coordinator import CoordinatorMachine
from ft_supervisor.core.daemon import daemon, leaving
from ft_supervisor.core.daemon.daemon import DaemonMachine
from ft_supervisor.core.launch.launch import LaunchMachine
from ft_supervisor.core.quorum import lease, majority, roster


@dataclass(frozen=True)
class Mutant:
    """A broken rule. `breaks`: the numbers of the invariants that it may break. `theme`: the faults that show the
    breach, None where random faults do."""

    name: str
    breaks: tuple[str, ...]
    theme: Theme | None = None
    machines: Machines = field(default_factory=Machines)
    parts: tuple[tuple[ModuleType, str, object], ...] = field(default=(), repr=False)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Replace the core's parts while the context lasts."""
        patches = [patch.object(module, name, part) for module, name, part in self.parts]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def _agent(machine: type[AgentMachine], *breaks: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, breaks, theme, Machines(agent=machine))


def _agent_part(part: type, *breaks: str, theme: Theme | None = None) -> Mutant:
    """Return a mutant of a part of the agent: its Follower, or its Lifecycle."""
    parts = ((agent, part.__base__.__name__, part),)  # type: ignore[union-attr]
    return Mutant(part.__name__, breaks, theme, parts=parts)


def _coordinator(machine: type[CoordinatorMachine], *breaks: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, breaks, theme, Machines(coordinator=machine))


def _daemon(machine: type[DaemonMachine], *breaks: str, theme: Theme | None = None) -> Mutant:
    return Mutant(machine.__name__, breaks, theme, Machines(daemon=machine))


def _launch(machine: type[LaunchMachine], *breaks: str) -> Mutant:
    return Mutant(machine.__name__, breaks, themes.launched, Machines(launch=machine))


def _part(name: str, part: type, *breaks: str, theme: Theme | None = None) -> Mutant:
    """Return a mutant of a part of the coordinator's state, or of its leadership."""
    module = state if hasattr(state, name) else leadership
    return Mutant(part.__name__, breaks, theme, parts=((module, name, part),))


def _node_workers(part: type, *breaks: str, theme: Theme = themes.parking) -> Mutant:
    """Return a mutant of the machine of one node's workers."""
    return Mutant(part.__name__, breaks, theme, parts=((sim_agent, "NodeWorkers", part),))


def _hang(name: str, *breaks: str, part: tuple[ModuleType, str, object], theme: Theme = themes.hanging) -> Mutant:
    """Return a mutant of what is done about a hang."""
    return Mutant(name, breaks, theme, parts=(part,))


def _last_deed(part: type, *breaks: str, theme: Theme | None = None) -> Mutant:
    """Return a mutant of the daemon's last deed, which ends the job in Slurm."""
    return Mutant(part.__name__, breaks, theme, parts=((leaving, "LastDeed", part),))


ACCEPT_ALL = tuple(
    (module, name, broken_nodes.accept_all) for module, name in ((follower, "to_node"), (coordinator, "from_node"))
)
"""Replacements that accept every message. The core refuses impossible ones, which hides broken rules."""

REQUIRED = (
    Mutant(
        "FencesNoOlderTerms",
        ("4", "7", "9", "10"),
        themes.see_saw,
        Machines(agent=broken_takeover.HeedsOlderTerms, coordinator=broken_takeover.IgnoresNewerPromises),
        ACCEPT_ALL,
    ),
    Mutant("AnyMinoritySuffices", ("4", "9", "10"), parts=((roster, "majority", broken_takeover.any_minority),)),
    _part("RosterChange", broken_takeover.AsksOnlyTheNewRoster, "4", "9", "10", theme=themes.drift),
    Mutant(
        "ForgetsPromises",
        ("4", "7", "9", "10"),
        themes.see_saw,
        Machines(daemon=broken_takeover.ForgetsPromises),
        ACCEPT_ALL,
    ),
    _part("Members", broken_takeover.DoesNotWaitForStops, "10"),
    Mutant("LeasesWithoutEchoes", ("9", "10"), parts=((majority, "Proof", broken_takeover.LeasesWithoutEchoes),)),
    _agent(broken_takeover.NeverFences, "10"),
    _part("Members", broken_takeover.CountsItsOwnDelay, "lost", theme=themes.stutter),
    _coordinator(broken_takeover.GoesOnAfterAStall, "4", "9", "10", "lost", theme=themes.see_saw),
)
"""Mutants of the rules on which every takeover rests."""

OTHERS = (
    _coordinator(broken_takeover.IgnoresAcceptedVerdicts, "4", theme=themes.endings),
    _part("VerdictCommit", broken_takeover.DecidesWithOneKeeper, "4", theme=themes.endings),
    _part("VerdictCommit", broken_takeover.ForgetsItsProposal, "states"),
    _part("Leadership", broken_takeover.LeadsOnceAMajorityIsPresent, "states"),
    _part("Election", broken_takeover.SharesTerms, "9"),
    _part("Cycles", broken_cycles.WaitsOnlyForTheFirstToStop, "10"),
    _part("Cycles", broken_cycles.GivesSuspectsUp, "10"),
    _part("Cycles", broken_cycles.OneSuccessIsEnough, "5"),
    _part("Cycles", broken_cycles.CountsSuccessesOfFormerCycles, "5", theme=themes.old_messages),
    _coordinator(broken_cycles.ForgetsTheLost, "3"),
    _coordinator(broken_cycles.NeverLosesANode, "6"),
    _part("Cycles", broken_cycles.ShiftsRanks, "survivors"),
    Mutant("TwoOfTheSameRank", ("2",), parts=((state, "Cycles", broken_cycles.TwoOfTheSameRank), *ACCEPT_ALL)),
    Mutant("NeverGivesUp", ("6",), parts=((cycles, "Succession", broken_cycles.NeverGivesUp),)),
    _part("Cycles", broken_cycles.JoinsForEver, "6"),
    _part("Cycles", broken_cycles.IgnoresRegisters, "6"),
    _coordinator(broken_cycles.ClosesWithItsOwnVerdict, "4"),
    _coordinator(broken_cycles.RunsAfterTheVerdict, "4"),
    _agent(broken_nodes.AcceptsAnyRun, "7", "9"),
    _agent(broken_nodes.RunsWithoutALease, "9", "10", theme=themes.stale_orders),
    _agent_part(broken_nodes.StartsBesideTheFormer, "1"),
    _agent(broken_nodes.ReportsStoppedTooEarly, "10"),
    _agent_part(broken_nodes.NeverStops, "6"),
    _agent_part(broken_nodes.FailsAndCallsItSuccess, "5"),
    _agent_part(broken_nodes.RemembersNothing, "4", "6", "7"),
    _agent_part(broken_nodes.NeverLeaves, "6"),
    _agent(broken_nodes.SendsGoodbyeTooEarly, "10"),
    _agent(broken_nodes.DialsOnlyTheFirstCandidate, "8"),
    _agent(broken_nodes.LeavesByTheBarrier, "5"),
    _agent(broken_nodes.BelievesAnyStore, "4"),
    _agent_part(broken_nodes.TakesAStopForASuccess, "state"),
    _agent_part(broken_nodes.ForgetsItsDeadline, "state"),
    Mutant(
        "EchoesAfterPromising", ("4", "9", "10"), themes.see_saw, parts=((lease, "echo", broken_nodes.echo_always),)
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
            (agent, "Lifecycle", broken_policy.IgnoresTheChecks),
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
    Mutant(
        "OneNodeIsEnough",
        ("crash",),
        themes.crashes,
        parts=((failure_decision, "StartCrash", broken_policy.OneNodeIsEnough),),
    ),
    _agent_part(broken_policy.BlamesItsWorkers, "charged", "success", theme=themes.unable),
    _part("Cycles", broken_policy.DecidesBeforeAllHaveStopped, "1", "7", "10"),
    _node_workers(broken_parking.TakesLeavingWorkersForParked, "10"),
    _node_workers(broken_parking.BelievesItsWorkers, "10"),
    _node_workers(broken_parking.CallsParkedWorkersAgain, "rung"),
    _node_workers(broken_parking.KeepsParkedWorkers, "rung", theme=themes.renewed),
    Mutant(
        "TellsOnlyTheCyclesNodes",
        ("rung",),
        themes.renewed,
        parts=((cycles, "FailureDecision", broken_parking.TellsOnlyTheCyclesNodes),),
    ),
    Mutant(
        "ParksAtTheFence",
        ("10",),
        themes.parking,
        Machines(agent=broken_nodes.HasNoGuard, daemon=broken_nodes.DoesNotGuardTheFence),
        ((agent, "Lifecycle", broken_parking.ParksAtTheFence),),
    ),
    _agent_part(broken_parking.WaitsForParkedWorkers, "6", theme=themes.parking),
    _agent_part(broken_parking.ForgetsReturns, "6", theme=themes.parking),
    Mutant(
        "BeginsBesideThoseThatLeave",
        ("10",),
        themes.parking,
        parts=((state, "Cycles", broken_cycles.WaitsOnlyForTheFirstToStop),),
    ),
    _hang("StopsAtTheFirstAnswer", "hang", part=(hang_round, "HangRounds", broken_hang.StopsAtTheFirstAnswer)),
    _hang("BlamesOneThatWaits", "hang", part=(hang_round, "explain", broken_hang.blames_somebody)),
    _hang("NeverEnds", "hang", part=(hang_round, "ANSWERS", math.inf)),
    _hang("ChargesTheFirst", "hang", part=(hang_round, "HangRounds", broken_hang.ChargesTheFirst)),
    *(
        _hang(name, *breaks, part=part, theme=themes.standing)
        for name, breaks, part in (
            ("StopsWhatItIsToTell", ("still",), (hang_round, "HangRounds", broken_hang.StopsWhatItIsToTell)),
            ("OneNodeIsStill", ("still",), (hang_round, "Standstill", broken_hang.OneNodeIsStill)),
            ("NoNodeIsStill", ("6",), (hang_round, "Standstill", broken_hang.NoNodeIsStill)),
            ("IsStillTooEarly", ("still",), (stillness_notice, "Stillness", broken_hang.IsStillTooEarly)),
        )
    ),
    *(
        _hang(f"SeesNothing-{sign}", "still", part=(stillness, "_works", works), theme=themes.standing)
        for sign in ("output", "written", "read", "below_written", "below_cpu", "sequence")
        for works in (broken_hang.works_without_a_sign(sign),)
    ),
    _agent(broken_parking.RunsTheScriptAheadForNothing, "3", theme=themes.ailing),
    Mutant(
        "TakesEveryCycleForGood",
        ("rung",),
        themes.parking,
        parts=((cycles, "FailureDecision", broken_parking.TakesEveryCycleForGood),),
    ),
    Mutant(
        "CountsNoRestartInProcess",
        ("rung",),
        themes.parking,
        parts=((failure_decision, "Ledger", broken_parking.CountsNoRestartInProcess),),
    ),
    Mutant(
        "ReleasesTheFirst",
        ("barrier",),
        themes.parking,
        parts=((cycles, "CurrentCycle", broken_parking.ReleasesTheFirst),),
    ),
    _daemon(broken_daemon.SaysItBeforeTheSweep, "1", "10", theme=themes.agent_deaths),
    _coordinator(broken_takeover.BelievesWhatIsSaidOfFormerAgents, "1", "10", theme=themes.agent_deaths),
    _launch(broken_launch.ExitsAsSrunDoes, "code"),
    _launch(broken_launch.BelievesAnyLaunchsVerdict, "code"),
    _launch(broken_launch.WaitsForNoLateVerdict, "code"),
    _launch(broken_launch.SwallowsSigterm, "swallowed"),
    _launch(broken_launch.PassesOnEverySignal, "passed"),
    _launch(broken_launch.LeavesWithTheVerdict, "left"),
    _launch(broken_launch.WaitsForSrunForEver, "bound"),
    _launch(broken_launch.LeavesTheJobRunning, "complete"),
)
