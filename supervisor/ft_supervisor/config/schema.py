"""Which keys there are, what each may hold, and which of the design's keys this version does not have yet."""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ft_supervisor.config.model import Domain
from ft_supervisor.config.values import (
    Convert,
    active,
    candidates,
    choice,
    command,
    count,
    duration,
    env,
    one_of_or,
    pattern,
    run_dir,
    text,
)
from ft_supervisor.config.yamltree import Value, as_list, as_map
from ft_supervisor.core.model import Timeouts

MAX_RESTARTS = 1_000_000
ONE_RULE = "[{match: any, action: restart, budget: {max: N}}]"
NOT_YET = "not yet in this version"

Table = Mapping[str, Convert]


@dataclass(frozen=True, slots=True)
class Setting:
    """A typed value and the place it came from."""

    value: Any
    where: str


def read(tree: Value, table: Table, prefix: str = "") -> dict[str, Setting]:
    """Each known key of the tree by its dotted name; raises `ConfigError` for every other key."""
    found: dict[str, Setting] = {}
    for name, value in as_map(tree, prefix.rstrip(".")).items():
        key = prefix + name
        if key in table:
            found[key] = Setting(table[key](value, key), value.where)
        elif any(known.startswith(f"{key}.") for known in table):
            found |= read(value, table, f"{key}.")
        else:
            _refuse(value, name, key, prefix, table)
    return found


def _refuse(value: Value, name: str, key: str, prefix: str, table: Table) -> None:
    bare = key.removeprefix("policy.")
    if bare in LATER:
        raise value.error(key, NOT_YET, "remove it")
    if key.startswith("policy.limits"):
        raise value.error(key, "a job cannot set limits", "they belong into the cluster's policy file")
    here = sorted({known.removeprefix(prefix).split(".")[0] for known in table if known.startswith(prefix)})
    if near := difflib.get_close_matches(name, here, 1):
        right = f"did you mean {prefix}{near[0]}?"
    elif elsewhere := _elsewhere(name, table):
        right = f"did you mean {elsewhere}?"
    else:
        right = f"known here: {', '.join(here)}"
    raise value.error(key[:200], "unknown key", right)


def _elsewhere(name: str, table: Table) -> str | None:
    """The known key of that name in another section, for a key put on the wrong level."""
    for known in table:
        parts = known.split(".")
        if name in parts:
            return ".".join(parts[: parts.index(name) + 1])
    return None


def domain(value: Value, key: str) -> Domain:
    """One domain source with what it needs, and nothing that it does not."""
    got = read(value, {f"{key}.{name}": convert for name, convert in _DOMAIN.items()}, f"{key}.")
    if f"{key}.source" not in got:
        raise value.error(f"{key}.source", "missing", "it must be slurm_topology, node_name or none")
    source: str = got[f"{key}.source"].value
    needs = {"slurm_topology": "level", "node_name": "pattern"}.get(source)
    if needs and f"{key}.{needs}" not in got:
        right = "it must be switch or block" if needs == "level" else "it must be a regular expression with one group"
        raise value.error(f"{key}.{needs}", f"missing, and source {source} needs it", right)
    for name in ("level", "pattern"):
        if name != needs and (extra := got.get(f"{key}.{name}")):
            raise value.error(f"{key}.{name}", f"source {source} has no {name} (here {extra.value!r})", "remove it")
    return Domain(**{name.removeprefix(f"{key}."): setting.value for name, setting in got.items()})


def _domain_source(value: Value, key: str) -> str:
    if value.data in ("file", "nvlink"):
        raise value.error(key, f"source {value.text} is {NOT_YET}", "it must be slurm_topology, node_name or none")
    return str(choice("slurm_topology", "node_name", "none")(value, key))


def failures(value: Value, key: str) -> int:
    """The restart budget; the only list of rules that this version knows has this one rule."""
    rules = as_list(value, key, ONE_RULE)
    right = f"write {ONE_RULE}"
    if len(rules) != 1:
        wrong = "has no rule" if not rules else f"has {len(rules)} rules; more than one is {NOT_YET}"
        raise value.error(key, wrong, right)
    at = f"{key}[0]"
    rule = as_map(rules[0], at)
    for name, only in (("match", "any"), ("action", "restart")):
        if name not in rule:
            raise rules[0].error(f"{at}.{name}", "missing", right)
        if rule[name].data != only:
            raise rule[name].error(f"{at}.{name}", f"other than {only} is {NOT_YET}", right)
    table: Table = {f"{at}.{name}": convert for name, convert in _RULE.items()}
    got = read(rules[0], table, f"{at}.")
    if f"{at}.budget.max" not in got:
        raise rules[0].error(f"{at}.budget.max", "missing", right)
    return int(got[f"{at}.budget.max"].value)


def _on_exhausted(value: Value, key: str) -> str:
    if value.data in ("wait", "shrink", "requeue"):
        raise value.error(key, f"{value.text} is {NOT_YET}", "it must be fail")
    return str(choice("fail")(value, key))


_DOMAIN: Table = {"source": _domain_source, "level": choice("switch", "block"), "pattern": pattern}
_RULE: Table = {"match": choice("any"), "action": choice("restart"), "budget.max": count(0, MAX_RESTARTS)}

POLICY: Table = {
    "topology.domain": domain,
    "network.interface": text("auto or the name of a network interface", r"[^\s/]{1,15}"),
    "network.suffix": text('what follows the node\'s name, such as "-ib0", or ""', r"[A-Za-z0-9.-]*", 100),
    # The next 7 ports are tried when the first is taken.
    "network.port": one_of_or(("auto",), 1024, 65535 - 7),
    "coordinator.candidates": candidates,
    "spares.on_exhausted": _on_exhausted,
    "failures": failures,
    **{f"timeouts.{field.name}": duration(field.name.endswith("_grace")) for field in dataclasses.fields(Timeouts)},
    "limits.max_restarts": count(0, MAX_RESTARTS),
}

JOB: Table = {
    "name": text("one line of at most 100 characters", r"\S|\S.*\S", 100),
    "cluster": text("a cluster's name, auto or none", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 100),
    "nodes.active": active,
    "workers.per_node": one_of_or(("gpu", "cpu"), 1, 1024),
    "workers.command": command,
    "workers.env": env,
    "run_dir": run_dir,
    **{f"policy.{key}": convert for key, convert in POLICY.items() if not key.startswith("limits.")},
}

LATER = frozenset(
    {"nodes.segment", "spares.pools", "health", "interruption", "accounting"}
    | {"failures[0].budget.window", "failures[0].budget.same_node", "failures[0].reason"}
)
"""Keys that the design has and this version does not."""
