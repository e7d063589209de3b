"""Renders the accounts of jobs' time for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ft_supervisor.core.words import UNKNOWN, count, duration, plain
from ft_supervisor.report.efficiency import PARTS, Efficiency, Interval, interval, total
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.words import share

SHOWN = 5
"""Causes and nodes that are shown."""
TITLES = {
    "training": "training",
    "repeated": "repeated work",
    "first_start": "first start",
    "detection": "detection",
    "stop": "stopping",
    "decision": "deciding",
    "waiting": "waiting for nodes",
    "rendezvous": "rendezvous",
    "starting": "workers starting again",
    "requeued": "queued again after requeues",
    "queued": "queued",
    "outside": "before and after ft-supervisor",
    "end": "ending",
    "unknown": "not known",
}
"""Each part of efficiency.PARTS in words."""


def lines(listing: Listing, save: float | None, every: float | None) -> list[str]:
    """Return the lines below the list; none if no job has journals. `save`: seconds that a checkpoint takes, `every`:
    between two of them, both in place of what was measured."""
    whole = total(listing.accounts.values())
    if whole.ettr is None:
        return []
    of = f"{duration(whole.available)} in {counted(listing)}"
    found = ["", f"effective training time ratio {ratio(whole)} of {of}"]
    lost = [(TITLES[name], whole.part(name)) for name in PARTS if name != "training" and whole.part(name) > 0]
    lost.sort(key=lambda each: -each[1])
    found.append(f"trained {duration(whole.part('training'))}; the rest: {_pairs(lost, len(lost))}")
    for name, pairs in (("cause", whole.by_cause), ("node", whole.by_node), ("hang", whole.by_hang)):
        if pairs:
            found.append(f"lost by {name}: {_pairs(pairs, SHOWN)}")
    return [*found, *advice(whole, save, every)]


def counted(listing: Listing) -> str:
    """Return how many jobs the sum has, and how many are left out."""
    known = sum(account.known for account in listing.accounts.values())
    left = len(listing.jobs) - known
    return count(known, "job") + (f" ({left} more without journals)" if left else "")


def document(listing: Listing, save: float | None, every: float | None) -> dict[str, Any]:
    """Return the account of each job by its id, and their sum, for JSON; seconds, null for unknown values."""
    jobs = {str(job_id): _plain(account, save, every) for job_id, account in listing.accounts.items()}
    return {"jobs": jobs, "all": _plain(total(listing.accounts.values()), save, every)}


def _plain(account: Efficiency, save: float | None, every: float | None) -> dict[str, Any]:
    found = interval(account, save, every)
    return {
        "ettr": account.ettr,
        "exact": account.exact,
        "available": account.available,
        "parts": {name: round(account.part(name), 3) for name in PARTS} if account.known else None,
        "failures": account.failures if account.known else None,
        "between_failures": account.between_failures,
        "lost_by_cause": dict(account.by_cause),
        "lost_by_node": dict(account.by_node),
        "lost_by_hang": dict(account.by_hang),
        "checkpoints": {
            "number": account.saves.number,
            "cost": account.saves.each,
            "every": account.saves.every,
        },
        "interval": found
        and {
            "save": found.save,
            "every": found.every,
            "best": found.best,
            "waste": found.waste,
            "least": found.least,
            "won": found.won,
        },
    }


def ratio(account: Efficiency | None) -> str:
    """Return the ratio, with "at most" where something is not known."""
    if account is None or account.ettr is None:
        return UNKNOWN
    return ("" if account.exact else "at most ") + share(account.ettr)


def advice(whole: Efficiency, save: float | None, every: float | None) -> Iterator[str]:
    """Yield how often failures come, what a checkpoint costs, and how often it is best taken."""
    between = whole.between_failures
    if between is None:
        yield "no failure, so that nothing tells how often checkpoints are best taken"
        return
    yield f"{count(whole.failures, 'failure')}, one in {duration(between)} of training"
    if (found := interval(whole, save, every)) is None:
        yield f"the cost of a checkpoint is not known ({_why(whole)}); --save SECONDS gives it"
        return
    yield f"a checkpoint costs {duration(found.save)}{_measured(whole, save)}; {_best(found)}"


def _why(whole: Efficiency) -> str:
    if not whole.saves.number:
        return "no job tells its checkpoints: checkpoint.step_file"
    return "no heartbeats around checkpoints" if not whole.saves.costs else "they took no time"


def _measured(whole: Efficiency, save: float | None) -> str:
    return "" if save else f" ({whole.saves.costs} measured)"


def _best(found: Interval) -> str:
    best = f"best every {duration(found.best)} (Young, Daly): {share(found.least)} of the time"
    if found.waste is None or found.every is None or found.won is None:
        return f"{best}; how often they are taken now is not known (--every SECONDS gives it)"
    return f"{best} instead of {share(found.waste)} with one every {duration(found.every)}, {duration(found.won)} won"


def _pairs(pairs: Sequence[tuple[str, float]], most: int) -> str:
    more = f", and {len(pairs) - most} more" if len(pairs) > most else ""
    return ", ".join(f"{plain(name)} {duration(seconds)}" for name, seconds in pairs[:most]) + more
