"""`topology.domain`: which nodes belong together, and the file that may say so."""

from pathlib import Path
from typing import Any

from ft_supervisor.config import yamltree
from ft_supervisor.config.hosts import fold, hosts
from ft_supervisor.config.kind import MAX_NODES, Kind, record
from ft_supervisor.config.model import Domain
from ft_supervisor.config.patterns import compiled, regular_expression
from ft_supervisor.config.values import choice, text
from ft_supervisor.config.yamltree import Value

SOURCES = ("slurm_topology", "node_name", "file", "nvlink", "none")
_NEEDS = {
    "slurm_topology": ("level", "it must be switch or block"),
    "node_name": ("pattern", "it must be a regular expression with one group"),
    "file": ("path", "it must be the path of a YAML map from domains to their nodes"),
}


def domain_of_name(pattern: str, node_name: str) -> str | None:
    """What the pattern's one group finds in the node's name; None where it finds nothing."""
    found = compiled(pattern).search(node_name)
    return (found[1] or None) if found else None


def domain() -> Kind:
    """One domain source with what it needs, and nothing that it does not."""
    table = {
        "source": choice(*SOURCES).about("Where a node's domain comes from."),
        "level": choice("switch", "block").about("slurm_topology: the level of SLURM_TOPOLOGY_ADDR that counts."),
        "pattern": regular_expression(groups=1).about("node_name: RE2 with one group, the domain."),
        "path": text("a path").about("file: a YAML map, domain: nodes; relative to the folder of this file."),
    }
    kind = record(table, _build, _plain, {"source": f"it must be {', '.join(SOURCES[:-1])} or none"})
    return Kind(kind.check, {**kind.schema, "oneOf": [_alternative(source) for source in SOURCES]}, kind.plain)


def _alternative(source: str) -> dict[str, Any]:
    needs = _NEEDS.get(source, (None,))[0]
    names = ["source", *([needs] if needs else [])]
    return {
        "properties": {"source": {"const": source}},
        "required": names,
        "propertyNames": {"enum": names},
    }


def _build(fields: dict[str, Any], value: Value, key: str) -> Domain:
    source = fields["source"]
    needs, right = _NEEDS.get(source, ("", ""))
    if needs and needs not in fields:
        raise value.error(f"{key}.{needs}", f"missing, and source {source} needs it", right)
    for name in ("level", "pattern", "path"):
        if name != needs and name in fields:
            raise value.error(f"{key}.{name}", f"source {source} has no {name} (here {fields[name]!r})", "remove it")
    if source != "file":
        return Domain(**fields)
    path = Path(fields["path"])
    if not path.is_absolute():
        folder = value.folder()
        if folder is None:
            raise value.error(f"{key}.path", f"is relative: {fields['path']!r}", "in a variable it must be absolute")
        path = folder.absolute() / path
    return Domain("file", path=str(path), nodes=_read(path))


def _read(path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each domain and its nodes, from the file."""
    tree = yamltree.read(path)
    found: list[tuple[str, tuple[str, ...]]] = []
    seen: dict[str, str] = {}
    for name, value in yamltree.as_map(tree, "").items():
        if not name.strip() or len(name) > 200:
            raise value.error(name[:200], "is no domain's name", "it must be text of at most 200 characters")
        names = hosts()(value, name)
        for node in names:
            if node in seen:
                raise value.error(name, f"{node} is in domain {seen[node]} too", "name each node once")
            seen[node] = name
        if len(seen) > MAX_NODES:
            raise value.error(name, f"names, with those before it, over {MAX_NODES} nodes", "name fewer")
        found.append((name, names))
    if not found:
        raise tree.error("", "names no domain", "write a line for each: rack1: n[1-16]")
    return tuple(found)


def _plain(domain: Domain) -> dict[str, Any]:
    """As it was written, but for a file: what it says counts, and not where it lies."""
    found: dict[str, Any] = {"source": domain.source}
    if domain.level:
        found["level"] = domain.level
    if domain.pattern:
        found["pattern"] = domain.pattern
    if domain.source == "file":
        found["nodes"] = {name: fold(nodes) for name, nodes in domain.nodes}
    return found
