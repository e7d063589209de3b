"""Checks nodes.active, coordinator.candidates and workers.env."""

import re
from dataclasses import dataclass
from typing import Any

from ft_supervisor.config.errors import Problems
from ft_supervisor.config.scalars import ANY_TEXT, text, whole
from ft_supervisor.config.validator import Validator, object_schema, record
from ft_supervisor.config.yamltree import Value, as_map
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.bounds import MOST_NODES

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


def active() -> Validator:
    """A number of nodes, at least 1, or {min: 4, max: 6}."""
    number = whole(keys.Whole(1, MOST_NODES))

    def one(value: Value, key: str) -> int:
        if value.data == 0 and isinstance(value.data, int) and not isinstance(value.data, bool):
            raise value.error(key, "is 0, so no node would train", "it must be at least 1")
        value.whole_number(key, "{min: 2, max: 4}")
        return int(number(value, key))

    def build(got: dict[str, Any], value: Value, key: str) -> Active:
        if got["min"] > got["max"]:
            wrong = f"min {got['min']} is more than max {got['max']}"
            raise value.error(key, wrong, "lower min, or make max larger")
        return Active(got["max"], got["min"])

    def plain(active: Active) -> int | dict[str, int]:
        return active.most if active.least is None else {"min": active.least, "max": active.most}

    bound = Validator(one, number.schema)
    table = {"min": bound.about("The fewest."), "max": bound.about("The most.")}
    both = record(table, build, plain, dict.fromkeys(table, "write {min: 4, max: 6}, or one number"))

    def check(value: Value, key: str) -> Active:
        if isinstance(value.data, dict):
            found: Active = both(value, key)
            return found
        return Active(one(value, key))

    return Validator(check, {"anyOf": [dict(number.schema), object_schema(table, ("min", "max"))]}, plain)


def candidates() -> Validator:
    """How many nodes keep a coordinator, or which: distinct infra_ranks, at least one."""
    rank = whole(keys.Whole(0, MOST_NODES - 1))

    def check(value: Value, key: str) -> int | tuple[int, ...]:
        if not isinstance(value.data, list):
            number = value.whole_number(key)
            if number is None or not 1 <= number <= MOST_NODES:
                right = f"it must be a whole number from 1 to {MOST_NODES}, or a list of infra_ranks such as [0, 3]"
                raise value.error(key, f"is {value.shown()}", right)
            return number
        problems = Problems()
        found: dict[int, None] = {}
        for at, item in enumerate(value.data):
            with problems.of(f"{key}[{at}]"):
                if (one := rank(item, f"{key}[{at}]")) in found:
                    raise item.error(f"{key}[{at}]", f"{one} is given twice", "name each node once")
                found[one] = None
            if problems.cut_short():
                break
        problems.raise_all()
        if not found:
            right = "name the infra_rank of at least one node"
            raise value.error(key, "is empty, so no node could decide anything", right)
        return tuple(found)

    many = {"type": "array", "items": dict(rank.schema), "minItems": 1, "uniqueItems": True}
    return Validator(check, {"anyOf": [dict(whole(keys.Whole(1, MOST_NODES)).schema), many]})


def variables() -> Validator:
    """Variables for the workers, sorted by name."""
    word = text(keys.Text("text", ANY_TEXT, 128 * 1024))

    def one(name: str, item: Value, key: str) -> str:
        if not re.fullmatch(_NAME, name):
            right = "it must be letters, digits and _, not starting with a digit"
            raise item.error(key, f"{name[:60]!r} is no variable's name", right)
        if _SET_BY_THE_AGENT.fullmatch(name):
            raise item.error(f"{key}.{name}", "is set by ft-supervisor for each worker", "remove it")
        return str(word(item, f"{key}.{name}"))

    def check(value: Value, key: str) -> tuple[tuple[str, str], ...]:
        problems = Problems()
        found: dict[str, str] = {}
        for name, item in as_map(value, key).items():
            with problems.of(f"{key}.{name}"):
                found[name] = one(name, item, key)
        problems.raise_all()
        return tuple(sorted(found.items()))

    names: dict[str, Any] = {"pattern": f"^(?!(?:{_SET_BY_THE_AGENT.pattern})$){_NAME}$"}
    schema = {"type": "object", "propertyNames": names, "additionalProperties": dict(word.schema)}
    return Validator(check, schema, dict)
