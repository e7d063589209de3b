"""Measures the choice of a large job's active nodes: the CPU time of one call, for which the coordinator's loop waits.

CPU time does not depend on other processes of this machine, and the call waits for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ft_bench.report import Row
from ft_supervisor.core.placement.placement import Assignment, FitNode, assign
from ft_supervisor.core.protocol.settings import Placement, Pool

NODES, ACTIVE, DOMAIN = 4096, 3584, 72
SEGMENTS = (1, 8, 16)
TARGET = 50.0
_KNOWN = tuple(FitNode(rank, f"n{rank:04d}", f"d{rank // DOMAIN}") for rank in range(NODES))
_DOMAINS = {node.infra_rank: node.domain_id for node in _KNOWN}


def measure(quick: bool) -> list[Row]:
    """Return a row for each segment, policy and loss: none (a fresh job), a node, and a domain. The size may shrink."""
    rows: list[Row] = []
    for segment in SEGMENTS:
        for called, pools in (("one pool", Placement().pools), (f"{len(_DEMANDING)} pools", _DEMANDING)):
            policy = Placement(segment=segment, pools=pools)
            what = f"placement, {NODES} nodes, segment {segment}, {called}"
            rows.append(_row(f"{what}, fresh", partial(_place, _KNOWN, (), policy), quick))
            group = _place(_KNOWN, (), policy).group or ()
            for lost in (1, DOMAIN):
                rows.append(_row(f"{what}, {lost} lost", partial(_place, _KNOWN[lost:], group, policy), quick))
    return rows


def _demanding() -> tuple[Pool, ...]:
    """Return a pool for each domain, which replaces nodes there and in the next one, and keeps two."""
    domains = list(dict.fromkeys(_DOMAINS.values()))
    after = [*domains[1:], domains[0]]
    return tuple(
        Pool(name, domains=(name,), serves=(name, other), reserve=2) for name, other in zip(domains, after, strict=True)
    )


_DEMANDING = _demanding()


def _place(nodes: Sequence[FitNode], former: Sequence[int], policy: Placement) -> Assignment:
    return assign(nodes, former, ACTIVE, policy, domains=_DOMAINS, least=ACTIVE // 2)


def _row(what: str, work: Callable[[], Assignment], quick: bool) -> Row:
    samples = []
    for _ in range(2 if quick else 40):
        began = time.process_time()
        work()
        samples.append((time.process_time() - began) * 1000)
    return Row(what, "ms", samples, TARGET, "p95")
