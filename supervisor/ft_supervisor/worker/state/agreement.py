"""The commit from which all ranks go on. Pure: every rank computes it from the same reports.

The rule:

1. Only the ranks count that have completed the latest sync, of those that hold a commit. A spare that trained once,
   long ago, does not.
2. The newest commit that one of them holds is chosen, or, if another one of them has only reached the one before, that
   one. So all go on from the newest commit that all have reached.
3. A rank that has the chosen commit uses its own. Any other rank gets it from a rank that holds the same part of the
   state (`replica`). If no such rank is left, or if the checkpoint on disk is newer, all ranks load the checkpoint.

Why two commits are enough: a rank ends a step only with the help of all others, so no rank is more than one commit
ahead of another one. While a rank overwrites the commit before its newest, all have reached the newest. Where a
training does not run in step, a rank that is further behind receives the newest commit, as a new process does.

Why an id names one content: a rank makes commits only after a sync that all ranks of its cycle have completed, a later
cycle has a greater generation, and a sync drops the commits that are newer than the chosen one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class CommitId(NamedTuple):
    """Names a commit; the same on all ranks, and greater for a later one."""

    generation: int  # of the sync before it
    number: int  # counts the commits of the training


@dataclass(frozen=True)
class Report:
    """One rank's report to all others at a sync."""

    generation: int  # of the last sync that this rank has completed
    held: tuple[tuple[CommitId, int], ...]  # its commits with their steps, the newest first
    replica: int  # ranks with the same number hold the same part of the state
    checkpoint: int = -1  # step of the checkpoint on disk; -1: unknown or none


@dataclass(frozen=True)
class Plan:
    """The decision, equal on all ranks: they go on from `chosen`, or, if that is None, from the checkpoint, because of
    `reason`."""

    chosen: CommitId | None
    step: int
    donors: dict[int, int]  # rank that receives: rank that sends
    reason: str


def choose(reports: Sequence[Report]) -> Plan:
    """Return the plan that follows from the reports of all ranks, in the order of the ranks."""
    holding = [report for report in reports if report.held]
    if not holding:
        return _checkpoint("no rank holds a commit")
    latest = max(report.generation for report in holding)
    chosen, step = _reached_by_all([report.held for report in holding if report.generation == latest])
    owners = {rank: dict(report.held)[chosen] for rank, report in enumerate(reports) if chosen in dict(report.held)}
    if len(set(owners.values())) > 1:
        return _checkpoint(f"the ranks have committed different steps at once: {sorted(set(owners.values()))}")
    if (checkpoint := max(report.checkpoint for report in reports)) > step:
        return _checkpoint(f"the checkpoint of step {checkpoint} is newer than step {step} in memory")
    donors = _donors([report.replica for report in reports], sorted(owners))
    if isinstance(donors, int):
        return _checkpoint(f"no rank that is left holds the part of the state that rank {donors} needs")
    return Plan(chosen, step, donors, "")


def _reached_by_all(held: list[tuple[tuple[CommitId, int], ...]]) -> tuple[CommitId, int]:
    """Return the newest commit of all, with its step, or the one before if a rank has reached no more."""
    newest = max(commits[0] for commits in held)
    before = {commits[1] for commits in held if len(commits) == 2 and commits[0] == newest}
    return min((commits[0] for commits in held if commits[0] in before), default=newest)


def _checkpoint(reason: str) -> Plan:
    return Plan(None, -1, {}, reason)


def _donors(replicas: list[int], owners: list[int]) -> dict[int, int] | int:
    """Return a sender for each rank that has to receive, evenly spread; or a rank for which there is no sender."""
    senders: dict[int, list[int]] = defaultdict(list)
    for owner in owners:
        senders[replicas[owner]].append(owner)
    donors: dict[int, int] = {}
    served: dict[int, int] = defaultdict(int)
    for rank, replica in enumerate(replicas):
        if rank in owners:
            continue
        if not senders[replica]:
            return rank
        donors[rank] = senders[replica][served[replica] % len(senders[replica])]
        served[replica] += 1
    return donors


def numbered_from(reports: Sequence[Report]) -> int:
    """Return the greatest number of a commit that any rank holds; later commits have greater ones."""
    return max((commit.number for report in reports for commit, _ in report.held), default=0)
