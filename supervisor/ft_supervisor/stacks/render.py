"""The output of `ft-supervisor stacks`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ft_supervisor.core.coordinator.culprits import Witness, explain
from ft_supervisor.core.protocol.codec import to_plain
from ft_supervisor.core.protocol.evidence import Cluster, Explanation
from ft_supervisor.core.protocol.ranks import parse_ranks
from ft_supervisor.core.protocol.worker_words import ranks
from ft_supervisor.core.words import count, one_line, plain
from ft_supervisor.stacks.messages import Told

_LINE = 4000


def explanation(told: Sequence[Told]) -> Explanation:
    """Return which ranks look alike, and which stand out."""
    return explain([Witness(one.rank, one.digest) for one in told])


def text(told: Sequence[Told], silent: Sequence[str], rank: int | None) -> str:
    """Return the clusters, then the stacks, of all ranks or of one."""
    found = explanation(told)
    nodes = {one.node for one in told}
    lines = [f"{count(len(told), 'rank')} on {count(len(nodes), 'node')}:"]
    lines += [f"  {_cluster(cluster, found)}" for cluster in found.clusters]
    if silent:
        lines.append(f"no answer from {', '.join(silent)}")
    for one in sorted(told, key=lambda one: one.rank):
        if one.text and rank in (None, one.rank):
            lines += ["", f"=== rank {one.rank} ({one.node}, local {one.digest.local_rank})"]
            lines += [plain(line, _LINE) for line in one.text.splitlines()]
    return "\n".join(lines) + "\n"


def as_json(told: Sequence[Told], silent: Sequence[str]) -> str:
    """Return the same as JSON: `explanation`, `workers`, and `silent`, the nodes that did not answer."""
    workers = [to_plain(one) for one in sorted(told, key=lambda one: one.rank)]
    return json.dumps({"explanation": to_plain(explanation(told)), "workers": workers, "silent": list(silent)}) + "\n"


def _cluster(cluster: Cluster, found: Explanation) -> str:
    entered = cluster.collective
    what = f"last entered {entered.operation} {entered.sequence} of group {entered.group}" if entered else ""
    parts = [part for part in (cluster.frame, what) if part] or ["nothing is known"]
    mark = f"  <- stands out ({found.ground})" if _stands_out(cluster, found) else ""
    return one_line(f"{ranks(parse_ranks(cluster.ranks))}: {'; '.join(parts)}") + mark


def _stands_out(cluster: Cluster, found: Explanation) -> bool:
    return bool(found.culprits) and set(parse_ranks(cluster.ranks)) <= set(parse_ranks(found.culprits))
