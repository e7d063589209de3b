"""`spares`: pools of standbys."""

from typing import Any

from ft_supervisor.config.errors import ConfigError
from ft_supervisor.config.hosts import fold, hosts
from ft_supervisor.config.kind import MAX_NODES, Kind, Setting, list_of, one_or_more, record
from ft_supervisor.config.model import Domain
from ft_supervisor.config.values import count, text
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.settings import Pool

EXAMPLE = "[{name: any, serves: any}]"


def pools() -> Kind:
    """The list of pools; no node and no domain in two of them."""
    domain = text("a domain's name", r"\S|\S.*\S", 200)
    name = text("a pool's name: letters, digits, _, . and -", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 100)
    table = {
        "name": name.about("What logs call it."),
        "nodes": hosts().about("Its nodes, by name."),
        "domain": one_or_more(domain).about("Its nodes, by their domains."),
        "serves": one_or_more(domain).about("The domains whose nodes it may replace, or any."),
        "reserve": count(0, MAX_NODES).about("So many are kept for replacing."),
    }
    pool = record(table, _build, _plain, {"name": "write {name: any}"})
    many = list_of(pool, EXAMPLE, least=1, most=1000, nodes=lambda pool: len(pool.nodes))

    def check(value: Value, key: str) -> tuple[Pool, ...]:
        found: tuple[Pool, ...] = many(value, key)
        taken: dict[tuple[str, str], str] = {}
        for at, pool in enumerate(found):
            names = [("node", name) for name in pool.nodes] + [("domain", name) for name in pool.domains]
            for claim in [("name", pool.name), *(names or [("the rest", "")])]:
                if claim in taken:
                    raise value.error(f"{key}[{at}]", *_clash(claim, taken[claim]))
                taken[claim] = pool.name
        return found

    return Kind(check, many.schema, many.plain)


def _clash(claim: tuple[str, str], other: str) -> tuple[str, str]:
    kind, name = claim
    if kind == "name":
        return f"a second pool has the name {name}", "give each a name of its own"
    if kind == "the rest":
        return f"pool {other} has all nodes that are in no other pool already", "say which nodes or domain it has"
    return f"{kind} {name} is in pool {other} already", "put it into one of them"


def _build(fields: dict[str, Any], value: Value, key: str) -> Pool:
    if "nodes" in fields and "domain" in fields:
        raise value.error(key, "has both nodes and domain", "keep one of them, or write two pools")
    pool = Pool(
        name=fields["name"],
        nodes=fields.get("nodes", ()),
        domains=fields.get("domain", ()),
        serves=() if fields.get("serves") == ("any",) else fields.get("serves", ()),
        reserve=fields.get("reserve", 0),
    )
    if "any" in pool.serves:
        raise value.error(f"{key}.serves", "has any among domains", "write serves: any")
    if pool.nodes and pool.reserve > len(pool.nodes):
        raise value.error(f"{key}.reserve", f"is {pool.reserve}, but the pool has {len(pool.nodes)} nodes", "lower it")
    return pool


def _plain(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": pool.name, "serves": list(pool.serves) or "any", "reserve": pool.reserve}
    if pool.nodes:
        found["nodes"] = fold(pool.nodes)
    return found | ({"domain": list(pool.domains)} if pool.domains else {})


def check_domains(pools: Setting, domain: Setting) -> None:
    """Raise `ConfigError` for a pool that speaks of domains which no node can be in."""
    source: Domain = domain.value
    there = {name for name, _ in source.nodes}
    for at, pool in enumerate(pools.value):
        for name in (*pool.domains, *pool.serves):
            key = f"spares.pools[{at}]"
            if source.source == "none":
                wrong = f"speaks of domain {name}, but topology.domain is none ({domain.where})"
                raise ConfigError(pools.where, key, wrong, "say where domains come from, or name nodes")
            if there and name not in there:
                wrong = f"speaks of domain {name}, which {source.path} does not have"
                raise ConfigError(pools.where, key, wrong, f"it has {', '.join(sorted(there)[:10])}")
