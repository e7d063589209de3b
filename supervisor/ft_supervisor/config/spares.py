"""Checks `spares.pools`: each pool by itself, and the pools as a list."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ft_supervisor.config.errors import Problems
from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.settings import Pool


def disjoint(pools: Validator) -> Validator:
    """Adds to a list of pools that no node, no domain and no name is in two of them."""

    def check(value: Value, key: str) -> tuple[Pool, ...]:
        found: tuple[Pool, ...] = pools(value, key)
        problems = Problems()
        taken: dict[tuple[str, str], str] = {}
        for at, pool in enumerate(found):
            names = [("node", name) for name in pool.nodes] + [("domain", name) for name in pool.domains]
            claims = [("name", pool.name), *(names or [("the rest", "")])]
            if clash := next((claim for claim in claims if claim in taken), None):
                problems.add(value.error(f"{key}[{at}]", *_clash(clash, taken[clash])))
            taken |= {claim: pool.name for claim in claims if claim not in taken}
        problems.raise_all()
        return found

    return replace(pools, check=check)


def _clash(claim: tuple[str, str], other: str) -> tuple[str, str]:
    kind, name = claim
    if kind == "name":
        return f"a second pool has the name {name}", "give each a name of its own"
    if kind == "the rest":
        return f"pool {other} has all nodes that are in no other pool already", "say which nodes or domain it has"
    return f"{kind} {name} is in pool {other} already", "put it into one of them"


def check_pool(pool: Pool, given: Mapping[str, Any], value: Value, key: str) -> Pool:
    """Raises `ConfigError` for all contradictions in one pool."""
    problems = Problems()
    if pool.nodes and pool.domains:
        problems.add(value.error(key, "has both nodes and domain", "keep one of them, or write two pools"))
    if "any" in pool.serves:
        problems.add(value.error(f"{key}.serves", "has any among domains", "write serves: any"))
    if pool.nodes and pool.reserve > len(pool.nodes):
        wrong = f"is {pool.reserve}, but the pool has {len(pool.nodes)} nodes"
        problems.add(value.error(f"{key}.reserve", wrong, "lower it"))
    problems.raise_all()
    return pool
