"""What a key may hold: how it is checked, how a JSON Schema says the same, and how it is written back as YAML.

The tables of keys (`config.schema`) are made of these. Loader, schema and canonical form all come from them, so that
none can know a key that the others do not.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ft_supervisor.config.yamltree import Value, as_list, as_map

MAX_NODES = 100_000
NOT_EMPTY = frozenset({"hang"})
"""Sections that say something by being there, which {} would say only to some readers."""


def _itself(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Kind:
    """`check` turns a YAML value and its dotted key into a typed value, or raises `ConfigError`. `schema` is a fragment
    of JSON Schema (draft 2020-12). `plain` is the inverse of `check`: plain data, which checks to the same value."""

    check: Callable[[Value, str], Any]
    schema: Mapping[str, Any]
    plain: Callable[[Any], Any] = _itself

    def __call__(self, value: Value, key: str) -> Any:
        return self.check(value, key)

    def about(self, words: str) -> "Kind":
        """The same with a description for whoever edits the file."""
        return replace(self, schema={**self.schema, "description": words})


@dataclass(frozen=True, slots=True)
class Setting:
    """A typed value and the place it came from."""

    value: Any
    where: str


Table = Mapping[str, Kind]


def read(tree: Value, table: Table, prefix: str = "") -> dict[str, Setting]:
    """Each known key of the tree by its dotted name; raises `ConfigError` for every other key."""
    found: dict[str, Setting] = {}
    for name, value in as_map(tree, prefix.rstrip(".")).items():
        key = prefix + name
        if key in table:
            found[key] = Setting(table[key](value, key), value.where)
        elif any(known.startswith(f"{key}.") for known in table):
            if key in NOT_EMPTY and value.data == {}:
                raise value.error(key, "is empty", f"leave it out, or write {key}: {{after: 10m}}")
            found |= read(value, table, f"{key}.")
        else:
            _refuse(value, name, key, prefix, table)
    return found


def _refuse(value: Value, name: str, key: str, prefix: str, table: Table) -> None:
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


def record(
    table: Table,
    build: Callable[[dict[str, Any], Value, str], Any],
    plain: Callable[[Any], Any],
    required: Mapping[str, str],
) -> Kind:
    """A map with the keys of `table`. `build` gets what was given by name, the map and its key, and may refuse it.

    `required`: keys that must be there, each with what would be right.
    """

    def check(value: Value, key: str) -> Any:
        got = read(value, {f"{key}.{name}": kind for name, kind in table.items()}, f"{key}.")
        for name, right in required.items():
            if f"{key}.{name}" not in got:
                raise value.error(f"{key}.{name}", "missing", right)
        return build({name.removeprefix(f"{key}."): setting.value for name, setting in got.items()}, value, key)

    return Kind(check, object_schema(table, required), plain)


def list_of(
    kind: Kind, example: str, least: int = 0, most: int = 10_000, nodes: Callable[[Any], int] = lambda item: 0
) -> Kind:
    """A list with items of one kind, as a tuple; `example` shows one with its brackets.

    `nodes`: how many nodes an item names. A few bytes name many, so that the whole list has a bound as well.
    """

    def check(value: Value, key: str) -> tuple[Any, ...]:
        items = as_list(value, key, example)
        if not least <= len(items) <= most:
            raise value.error(key, "is empty" if not items else f"has more than {most} items", f"write {example}")
        found: list[Any] = []
        named = 0
        for at, item in enumerate(items):
            found.append(kind(item, f"{key}[{at}]"))
            named += nodes(found[-1])
            if named > MAX_NODES:
                raise item.error(f"{key}[{at}]", f"names, with those before it, over {MAX_NODES} nodes", "name fewer")
        return tuple(found)

    schema = {"type": "array", "items": dict(kind.schema), "minItems": least, "maxItems": most}
    return Kind(check, schema, lambda values: [kind.plain(value) for value in values])


def one_or_more(kind: Kind) -> Kind:
    """One of a kind, or a list of at least one, none of them twice; a tuple either way."""

    def check(value: Value, key: str) -> tuple[Any, ...]:
        if not isinstance(value.data, list):
            return (kind(value, key),)
        if not value.data:
            raise value.error(key, "is an empty list", "name at least one, or remove it")
        found: dict[Any, None] = {}
        for at, item in enumerate(value.data):
            if (got := kind(item, f"{key}[{at}]")) in found:
                raise item.error(f"{key}[{at}]", f"{item.shown()} is given twice", "keep one of them")
            found[got] = None
        return tuple(found)

    many = {"type": "array", "items": dict(kind.schema), "minItems": 1, "uniqueItems": True}
    return Kind(check, {"anyOf": [dict(kind.schema), many]}, lambda values: [kind.plain(value) for value in values])


def object_schema(table: Table, required: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON Schema of a map with these dotted keys and no others."""
    properties: dict[str, Any] = {}
    wanted = list(required)
    for head in dict.fromkeys(key.partition(".")[0] for key in table):
        if head in table:
            properties[head] = dict(table[head].schema)
        else:
            below = {key.removeprefix(f"{head}."): kind for key, kind in table.items() if key.startswith(f"{head}.")}
            inside = [key.removeprefix(f"{head}.") for key in wanted if key.startswith(f"{head}.")]
            properties[head] = object_schema(below, inside)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if heads := sorted({key.partition(".")[0] for key in wanted}):
        schema["required"] = heads
    return schema
