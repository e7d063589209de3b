"""Renders the accounts of jobs' time for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ft_supervisor.core.words import UNKNOWN, count, duration, plain
from ft_supervisor.report.efficiency import Efficiency, best_interval, total, waste
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.words import share

SHOWN = 5
"""Causes and nodes that are shown."""


def lines(listing: Listing, save: float | None, every: float | None) -> list[str]:
    """Return the lines below the list. `save`: seconds that a checkpoint takes, None if unknown; `every`: seconds
    between two of them."""
    found = ["", "training / (scheduled + queued), at most:"]
    for job in listing.jobs:
        if (account := listing.accounts.get(job.row.job_id)) is not None:
            found.append(f"  {plain(job.row.name)}  {_ratio(account)}")
    whole = total(listing.accounts.values())
    found.append(f"  all   {_ratio(whole)}")
    if whole.training is None or whole.available <= 0:
        return found
    found.append(f"queued {duration(whole.queued)}, queued again after requeues {duration(whole.requeued)}")
    for name, pairs in (("part", whole.by_part), ("cause", whole.by_cause), ("node", whole.by_node)):
        if pairs:
            found.append(f"lost by {name}: {_pairs(pairs)}")
    return [*found, *_advice(whole, save, every)]


def document(listing: Listing, save: float | None) -> dict[str, Any]:
    """Return the account of each job by its id, and their sum, for JSON; seconds, null for unknown values."""
    whole = total(listing.accounts.values())
    between = whole.between_failures
    best = best_interval(save, between) if save is not None and between is not None else None
    jobs = {str(job_id): _plain(account) for job_id, account in listing.accounts.items()}
    return {"jobs": jobs, "all": _plain(whole), "best_interval": best}


def _plain(account: Efficiency) -> dict[str, Any]:
    return {
        "ettr": account.ettr,
        "training": account.training,
        "scheduled": account.scheduled,
        "queued": account.queued,
        "requeued": account.requeued,
        "failures": account.failures,
        "between_failures": account.between_failures,
        "lost_by_part": dict(account.by_part),
        "lost_by_cause": dict(account.by_cause),
        "lost_by_node": dict(account.by_node),
    }


def _ratio(account: Efficiency) -> str:
    if account.ettr is None:
        return f"{UNKNOWN} (journals are missing)"
    of = f"{duration(account.training)} of {duration(account.available)}"
    return f"{share(account.ettr)}, {of}, {count(account.failures, 'failure')}"


def _pairs(pairs: Sequence[tuple[str, float]]) -> str:
    more = f", and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return ", ".join(f"{plain(name)} {duration(seconds)}" for name, seconds in pairs[:SHOWN]) + more


def _advice(whole: Efficiency, save: float | None, every: float | None) -> Iterator[str]:
    between = whole.between_failures
    if between is None:
        return
    yield f"mean time between failures: {duration(between)} of training"
    if save is None:
        yield "the cost of a checkpoint is not known; with --save SECONDS the best interval is told"
        return
    best = best_interval(save, between)
    told = f"a checkpoint of {duration(save)} is best taken every {duration(best)} (Young, Daly)"
    if every is not None:
        now, then = waste(every, save, between), waste(best, save, between)
        told += f": {share(then)} of the time instead of {share(now)} with one every {duration(every)}"
    yield told
