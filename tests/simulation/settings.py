"""Makes the cluster's policy that a plan names."""

from __future__ import annotations

from tests.simulation.plan import Plan

from ft_supervisor.core.protocol.settings import (
    AutoHang,
    Backoff,
    Budget,
    Check,
    Hang,
    Health,
    InProcessBudget,
    Interruption,
    Match,
    OnExhausted,
    Placement,
    Response,
    RestartMode,
    Rule,
    Settings,
    When,
)

CHECK = Check("c", ("c",), timeout=1.0, when=tuple(When))
INTERVAL = 3.0
"""Seconds between two rounds of checks on a standby."""
PAUSE = 2.0
AFTER = 8.0
"""Seconds in which no worker does anything, where that is watched."""
NEVER = 1e6
"""Seconds without heartbeats that are no hang: simulated workers say themselves that they hang."""


def settings(plan: Plan, grace: float) -> Settings:
    """Return the settings of a plan's policy. `grace`: seconds that workers get at the job's end."""
    again = InProcessBudget(max=plan.seed % 4) if plan.in_process and plan.seed % 5 < 3 else None
    any_failure = Rule(budget=Budget(max=plan.restarts, in_process=again))
    rules: tuple[Rule, ...] = (any_failure,)
    health, placement = Health(min_free=None), Placement()
    if plan.seed % 4 == 3:
        placement = Placement(on_exhausted=OnExhausted.REQUEUE)
    match plan.policy:
        case "replace":
            how = RestartMode.PROCESS if plan.in_process and plan.seed % 2 == 0 else None
            rules = (Rule(Match(exit_codes=(1,)), Response.REPLACE_NODE, how=how), any_failure)
        case "pause":
            budget = Budget(max=plan.restarts, same_node=1, in_process=again)
            rules = (Rule(budget=budget, backoff=Backoff(first=PAUSE, cap=2 * PAUSE)),)
        case "checks":
            health = Health(checks=(CHECK,), interval=INTERVAL, min_free=None)
        case "elastic":
            least = max(1, min(plan.active, plan.nodes) - 1)
            placement = Placement(least=least, on_exhausted=OnExhausted.SHRINK, grow_now=plan.seed % 2 == 0)
        case "wait":
            placement = Placement(on_exhausted=OnExhausted.WAIT)
    drain, requeue = plan.seed % 3 == 0, plan.seed % 2 == 0
    interruption = Interruption(before_end=5.0, grace=grace, poll=5.0, drain_now=drain, requeue=requeue)
    restart = RestartMode.IN_PROCESS if plan.in_process else RestartMode.PROCESS
    hang = Hang(after=NEVER, first=NEVER) if any(fault.kind == "hang" for fault in plan.faults) else None
    if plan.auto:
        hang = Hang(after=AFTER, first=NEVER, auto=AutoHang(plan.auto))
    return Settings(
        restart=restart, rules=rules, health=health, placement=placement, interruption=interruption, hang=hang
    )
