"""Who trains: pure choices over infra_ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def first(healthy: Collection[int], active: int) -> tuple[int, ...] | None:
    """The active nodes of a fresh job by group_rank: the lowest infra_ranks. None when there are too few."""
    return tuple(sorted(healthy)[:active]) if len(healthy) >= active else None


def replace(former: Sequence[int], healthy: Collection[int], domains: Mapping[int, str]) -> tuple[int, ...] | None:
    """The next active nodes by group_rank. None when there are too few.

    Survivors keep their group_rank. A vacancy is filled from the same domain where one is left there, else by the
    lowest infra_rank; vacancies that find a standby of their own domain go first, so that none takes another's.
    """
    spares = sorted(set(healthy) - set(former))
    chosen: dict[int, int] = {}
    vacant = [rank for rank, node in enumerate(former) if node not in healthy]
    for same_domain in (True, False):
        for rank in vacant:
            if rank in chosen:
                continue
            domain = domains.get(former[rank], "")
            fits = [spare for spare in spares if not same_domain or (domain and domains.get(spare) == domain)]
            if fits:
                chosen[rank] = fits[0]
                spares.remove(fits[0])
    if len(chosen) < len(vacant):
        return None
    return tuple(chosen.get(rank, node) for rank, node in enumerate(former))
