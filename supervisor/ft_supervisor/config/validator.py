"""Says of a value how it is checked, how a JSON Schema describes it, and how it is written back as YAML.

`config.declared` makes validators from the declarations of the keys. Loader, schema and canonical form all use these,
so that none of them can know a key that the others do not.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ft_supervisor.config import elsewhere
from ft_supervisor.config.errors import ConfigError, Problems
from ft_supervisor.config.yamltree import DAMAGED, Value, as_list, as_map, reported_already
from ft_supervisor.core.protocol.bounds import MOST_NODES

NOT_EMPTY = frozenset({"hang"})
"""Sections that say something by being there: {} would say it only to some readers."""
BUILT_IN = "built-in"
"""The place of a value that is written nowhere."""


def _itself(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Validator:
    """`check` turns a YAML value and its dotted key into a typed value, or raises `ConfigError`. `schema` is a fragment
    of JSON Schema (draft 2020-12). `plain` is the inverse of `check`: plain data, which checks to the same value."""

    check: Callable[[Value, str], Any]
    schema: Mapping[str, Any]
    plain: Callable[[Any], Any] = _itself

    def __call__(self, value: Value, key: str) -> Any:
        if value.data is DAMAGED:
            raise reported_already()
        return self.check(value, key)

    def about(self, words: str) -> "Validator":
        """Returns the same validator with a description in its schema."""
        return replace(self, schema={**self.schema, "description": words})


@dataclass(frozen=True, slots=True)
class Setting:
    """A typed value and the place it came from."""

    value: Any
    where: str


Table = Mapping[str, Validator]


def read(tree: Value, table: Table, problems: Problems, prefix: str = "") -> dict[str, Setting]:
    """Returns each known key of the tree by its dotted name. What is wrong goes into `problems`.

    Raises `ConfigError` where the tree is no map.
    """
    found: dict[str, Setting] = {}
    for name, value in as_map(tree, prefix.rstrip(".")).items():
        key = prefix + name
        with problems.of(key):
            if key in table:
                found[key] = Setting(table[key](value, key), value.where)
            elif any(known.startswith(f"{key}.") for known in table):
                if key in NOT_EMPTY and value.data == {}:
                    raise value.error(key, "is empty", f"leave it out, or write {key}: {{after: 10m}}")
                found |= read(value, table, problems, f"{key}.")
            else:
                raise _unknown(value, name, prefix, table, problems)
    return found


def _unknown(value: Value, name: str, prefix: str, table: Table, problems: Problems) -> ConfigError:
    """The error of an unknown key. The key that was probably meant is bad as well."""
    key = prefix + name
    if key.startswith("policy.limits"):
        return value.error(key, "a job cannot set limits", "they belong into the cluster's policy file")
    if misplaced := elsewhere.place(value, name, prefix, table):
        found, wrong, right = misplaced
        problems.bad.add(found or key)
        return value.error(key[:200], wrong, right)
    here = sorted({known.removeprefix(prefix).split(".")[0] for known in table if known.startswith(prefix)})
    meant: str | None = None
    if not problems.enough:  # finding a similar name takes long, and it would not be shown
        near = difflib.get_close_matches(name, here, 1)
        meant = prefix + near[0] if near else _elsewhere(name, table)
    if meant is None:
        return value.error(key[:200], "unknown key", f"known here: {', '.join(here)}")
    problems.bad.add(meant)
    return value.error(key[:200], "unknown key", f"did you mean {meant}?")


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
) -> Validator:
    """A map with the keys of `table`. `build` gets what was given by name, the map and its key, and may refuse it.

    `required`: keys that must be there, each with what to write otherwise.
    """

    def check(value: Value, key: str) -> Any:
        problems = Problems()
        got = read(value, {f"{key}.{name}": inner for name, inner in table.items()}, problems, f"{key}.")
        for name, right in required.items():
            if f"{key}.{name}" not in got and problems.well(f"{key}.{name}"):
                problems.add(value.error(f"{key}.{name}", "missing", right))
        problems.raise_all()
        return build({name.removeprefix(f"{key}."): setting.value for name, setting in got.items()}, value, key)

    return Validator(check, object_schema(table, required), plain)


def list_of(
    item: Validator,
    example: str,
    least: int = 0,
    most: int = 10_000,
    empty: str = "is empty",
    nodes: Callable[[Any], int] = lambda item: 0,
) -> Validator:
    """A list whose items have one validator, as a tuple; `example` shows one with its brackets.

    `empty` says what is wrong with a list without items. `nodes`: how many nodes an item names. A few bytes name many,
    so that the whole list has a bound as well.
    """

    def check(value: Value, key: str) -> tuple[Any, ...]:
        items = as_list(value, key, example)
        if not least <= len(items) <= most:
            raise value.error(key, empty if not items else f"has more than {most} items", f"write {example}")
        problems = Problems()
        found: list[Any] = []
        named = 0
        for at, one in enumerate(items):
            with problems.of(f"{key}[{at}]"):
                found.append(item(one, f"{key}[{at}]"))
                named += nodes(found[-1])
            if named > MOST_NODES:
                wrong = f"names, with those before it, over {MOST_NODES} nodes"
                problems.add(one.error(f"{key}[{at}]", wrong, "name fewer"), key)
                break
            if problems.cut_short():
                break
        problems.raise_all()
        return tuple(found)

    schema = {"type": "array", "items": dict(item.schema), "minItems": least, "maxItems": most}
    return Validator(check, schema, lambda values: [item.plain(value) for value in values])


def one_or_more(item: Validator, or_none: bool = False) -> Validator:
    """One item, or a list of at least one (with `or_none` also of none), none of them twice; a tuple either way."""

    def check(value: Value, key: str) -> tuple[Any, ...]:
        if not isinstance(value.data, list):
            return (item(value, key),)
        if not value.data and not or_none:
            raise value.error(key, "is an empty list", "name at least one, or remove it")
        problems = Problems()
        found: dict[Any, None] = {}
        for at, one in enumerate(value.data):
            with problems.of(f"{key}[{at}]"):
                if (got := item(one, f"{key}[{at}]")) in found:
                    raise one.error(f"{key}[{at}]", f"{one.shown()} is given twice", "keep one of them")
                found[got] = None
            if problems.cut_short():
                break
        problems.raise_all()
        return tuple(found)

    many = {"type": "array", "items": dict(item.schema), "minItems": 0 if or_none else 1, "uniqueItems": True}
    schema = {"anyOf": [dict(item.schema), many]}
    return Validator(check, schema, lambda values: [item.plain(value) for value in values])


def object_schema(table: Table, required: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the JSON Schema of a map with these dotted keys and no others."""
    properties: dict[str, Any] = {}
    wanted = list(required)
    for head in dict.fromkeys(key.partition(".")[0] for key in table):
        if head in table:
            properties[head] = dict(table[head].schema)
        else:
            below = {key.removeprefix(f"{head}."): inner for key, inner in table.items() if key.startswith(f"{head}.")}
            inside = [key.removeprefix(f"{head}.") for key in wanted if key.startswith(f"{head}.")]
            properties[head] = object_schema(below, inside)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if heads := sorted({key.partition(".")[0] for key in wanted}):
        schema["required"] = heads
    return schema
