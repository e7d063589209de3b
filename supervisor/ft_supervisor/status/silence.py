"""Describes what a job waits for: nodes that have not come, and active nodes that have fallen silent."""

from __future__ import annotations

from collections.abc import Iterator

from ft_supervisor.core.node_list import fold
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.words import duration, waiting
from ft_supervisor.run_folder.snapshot import NodeRole, NodeStatus, Snapshot

_LONG = 60
"""Characters of a list of nodes in a headline."""


def missing(shot: Snapshot, later: float) -> str:
    """Return the nodes that the first cycle waits for, "" for none. `later`: seconds since the snapshot was made."""
    if shot.waits is None:
        return ""
    names = [shot.names[rank] for rank in parse_ranks(shot.waits.nodes)]
    return waiting(names, len(shot.names), max(0.0, shot.waits.left - later), enough=shot.waits.enough)


def silent(shot: Snapshot) -> str:
    """Return the silent nodes of the present cycle and when they are lost, such as `n0 silent for 3.0 s, replaced at
    6.5 s`; "" if there are none."""
    entries = list(_silent(shot))
    ranks = sorted(rank for entry in entries for rank in parse_ranks(entry.infra_ranks))
    if not ranks:
        return ""
    longest = max(entry.heartbeat_age or 0.0 for entry in entries)
    then = "replaced" if shot.spares else "counts as lost" if len(ranks) == 1 else "count as lost"
    names = fold([shot.names[rank] for rank in ranks], _LONG)
    return f"{names} silent for {duration(longest)}, {then} at {duration(shot.lost_after)}"


def _silent(shot: Snapshot) -> Iterator[NodeStatus]:
    for entry in shot.nodes:
        waited_for = entry.role in (NodeRole.ACTIVE, NodeRole.UNREGISTERED) and entry.group_ranks
        if waited_for and entry.silent and entry.heartbeat_age is not None:
            yield entry
