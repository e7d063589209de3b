"""Checks `topology.domain`, which nodes belong together, and reads the file that may say so."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from ft_supervisor.config import yamltree
from ft_supervisor.config.errors import Problems
from ft_supervisor.config.hosts import fold, hosts
from ft_supervisor.config.model import Domain, Source
from ft_supervisor.config.patterns import compiled
from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value
from ft_supervisor.core.protocol.bounds import MOST_NODES

_SOURCES: tuple[str, ...] = get_args(Source)
_NEEDS = {
    "slurm_topology": ("level", "it must be switch or block"),
    "node_name": ("pattern", "it must be a regular expression with one group"),
    "file": ("path", "it must be the path of a YAML map from domains to their nodes"),
}


def domain_of_name(pattern: str, node_name: str) -> str | None:
    """Returns what the pattern's one group finds in the node's name; None where it finds nothing."""
    found = compiled(pattern).search(node_name)
    return (found[1] or None) if found else None


def from_one_source(domain: Validator) -> Validator:
    """Adds to the map of topology.domain the alternatives for its schema, and what a file says to its plain form.

    The content of a file counts there, and not where it lies.
    """

    def plain(got: Domain) -> dict[str, Any]:
        found: dict[str, Any] = domain.plain(got)
        if got.source == "file":
            del found["path"]
            found["nodes"] = {name: fold(nodes) for name, nodes in got.nodes}
        return found

    return Validator(domain.check, {**domain.schema, "oneOf": [_alternative(source) for source in _SOURCES]}, plain)


def _alternative(source: str) -> dict[str, Any]:
    needs = _NEEDS.get(source, (None,))[0]
    names = ["source", *([needs] if needs else [])]
    return {
        "properties": {"source": {"const": source}},
        "required": names,
        "propertyNames": {"enum": names},
    }


def check_domain(domain: Domain, given: Mapping[str, Any], value: Value, key: str) -> Domain:
    """Returns the domain source, with the nodes of its file. Raises `ConfigError` where it lacks what its source needs,
    or has what its source has no use for."""
    source = domain.source
    needs, right = _NEEDS.get(source, ("", ""))
    problems = Problems()
    if needs and needs not in given:
        problems.add(value.error(f"{key}.{needs}", f"missing, and source {source} needs it", right))
    for name in ("level", "pattern", "path"):
        if name != needs and name in given:
            wrong = f"source {source} has no {name} (here {given[name]!r})"
            problems.add(value.error(f"{key}.{name}", wrong, "remove it"))
    problems.raise_all()
    if domain.path is None:
        return domain
    path = Path(domain.path)
    if not path.is_absolute():
        folder = value.folder()
        if folder is None:
            raise value.error(f"{key}.path", f"is relative: {domain.path!r}", "in a variable it must be absolute")
        path = folder.absolute() / path
    return replace(domain, path=str(path), nodes=_read(path))


def _read(path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns each domain and its nodes, from the file."""
    problems = Problems()
    tree = yamltree.read(path, problems)
    found: list[tuple[str, tuple[str, ...]]] = []
    seen: dict[str, str] = {}
    for name, value in yamltree.as_map(tree, "").items():
        with problems.of(name):
            if not name.strip() or len(name) > 200:
                raise value.error(name[:200], "is no domain's name", "it must be text of at most 200 characters")
            names = _HOSTS(value, name)
            for node in names:
                if node in seen:
                    raise value.error(name, f"{node} is in domain {seen[node]} too", "name each node once")
                seen[node] = name
            found.append((name, names))
        if len(seen) > MOST_NODES:
            problems.add(value.error(name, f"names, with those before it, over {MOST_NODES} nodes", "name fewer"))
            break
        if problems.cut_short():
            break
    problems.raise_all()
    if not found:
        raise tree.error("", "names no domain", "write a line for each: rack1: n[1-16]")
    return tuple(found)


_HOSTS = hosts()
