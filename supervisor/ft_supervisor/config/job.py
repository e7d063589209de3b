"""What only a job may say: how many nodes train, and what its workers are."""

import re
from dataclasses import dataclass
from typing import Any

from ft_supervisor.config.kind import MAX_NODES, Kind, object_schema, read
from ft_supervisor.config.values import ANY_TEXT, count, text
from ft_supervisor.config.yamltree import Value, as_map

_SET_BY_THE_AGENT = re.compile(
    "RANK|WORLD_SIZE|(LOCAL|GROUP|ROLE)_(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)"
    "|TORCHELASTIC_(RUN_ID|RESTART_COUNT|USE_AGENT_STORE)"
)
_NAME = "[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True, slots=True)
class Active:
    """How many nodes train. `least`: None for a fixed size."""

    most: int
    least: int | None = None


def active() -> Kind:
    """A number of nodes, at least 1, or {min: 4, max: 6}."""
    number = count(1, MAX_NODES)
    table = {"min": number.about("The fewest."), "max": number.about("The most.")}

    def check(value: Value, key: str) -> Active:
        if isinstance(value.data, dict):
            return _range(value, key)
        return Active(one(value, key))

    def one(value: Value, key: str) -> int:
        if value.data == 0 and isinstance(value.data, int) and not isinstance(value.data, bool):
            raise value.error(key, "is 0, so no node would train", "it must be at least 1")
        return int(number(value, key))

    def _range(value: Value, key: str) -> Active:
        got = read(value, {f"{key}.{name}": Kind(one, kind.schema) for name, kind in table.items()}, f"{key}.")
        for name in table:
            if f"{key}.{name}" not in got:
                raise value.error(f"{key}.{name}", "missing", "write {min: 4, max: 6}, or one number")
        least, most = got[f"{key}.min"].value, got[f"{key}.max"].value
        if least > most:
            raise value.error(key, f"min {least} is more than max {most}", "lower min, or make max larger")
        return Active(most, least)

    def plain(active: Active) -> int | dict[str, int]:
        return active.most if active.least is None else {"min": active.least, "max": active.most}

    return Kind(check, {"anyOf": [dict(number.schema), object_schema(table, ("min", "max"))]}, plain)


def candidates() -> Kind:
    """How many nodes keep a coordinator, or which: distinct infra_ranks, at least one."""
    rank = count(0, MAX_NODES - 1)

    def check(value: Value, key: str) -> int | tuple[int, ...]:
        if not isinstance(value.data, list):
            if not isinstance(value.data, int) or isinstance(value.data, bool) or not 1 <= value.data <= MAX_NODES:
                right = f"it must be a whole number from 1 to {MAX_NODES}, or a list of infra_ranks such as [0, 3]"
                raise value.error(key, f"is {value.shown()}", right)
            return value.data
        found: dict[int, None] = {}
        for at, item in enumerate(value.data):
            if (one := rank(item, f"{key}[{at}]")) in found:
                raise item.error(f"{key}[{at}]", f"{one} is given twice", "name each node once")
            found[one] = None
        if not found:
            right = "name the infra_rank of at least one node"
            raise value.error(key, "is empty, so no node could decide anything", right)
        return tuple(found)

    many = {"type": "array", "items": dict(rank.schema), "minItems": 1, "uniqueItems": True}
    return Kind(check, {"anyOf": [dict(count(1, MAX_NODES).schema), many]})


def env() -> Kind:
    """Variables for the workers, sorted by name."""
    word = text("text", ANY_TEXT, 128 * 1024)

    def check(value: Value, key: str) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for name, item in as_map(value, key).items():
            if not re.fullmatch(_NAME, name):
                right = "it must be letters, digits and _, not starting with a digit"
                raise item.error(key, f"{name[:60]!r} is no variable's name", right)
            if _SET_BY_THE_AGENT.fullmatch(name):
                raise item.error(f"{key}.{name}", "is set by ft-supervisor for each worker", "remove it")
            found[name] = word(item, f"{key}.{name}")
        return tuple(sorted(found.items()))

    names: dict[str, Any] = {"pattern": f"^(?!(?:{_SET_BY_THE_AGENT.pattern})$){_NAME}$"}
    schema = {"type": "object", "propertyNames": names, "additionalProperties": dict(word.schema)}
    return Kind(check, schema, dict)
