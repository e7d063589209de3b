"""Checks `health`: the list of checks, the disk, the GPUs, and what a command is."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from ft_supervisor.config.errors import Problems
from ft_supervisor.config.scalars import ANY_TEXT, text
from ft_supervisor.config.validator import Validator
from ft_supervisor.config.yamltree import Value, as_list
from ft_supervisor.core.protocol import keys
from ft_supervisor.core.protocol.health_types import DISK, GPU, WORKERS
from ft_supervisor.core.protocol.settings import Check, Health, OnFail

BUILT_IN = (DISK, GPU, WORKERS, "clock")
"""Names of checks that no policy has to write."""


@dataclass(frozen=True, slots=True)
class Disk:
    """What is asked of the file system of run_dir; `min_free` in bytes."""

    min_free: Annotated[int, keys.Special.SIZE, "What run_dir's file system must have free, such as 100MiB."] = (
        Health.min_free or 0
    )
    on_fail: Annotated[OnFail, "What becomes of the node."] = Health.disk


@dataclass(frozen=True, slots=True)
class Gpu:
    """What is asked of the GPUs."""

    on_fail: Annotated[OnFail, keys.Required("write {on_fail: exclude}"), "What becomes of a node with a broken GPU."]


def command() -> Validator:
    """An argument list, at least the program."""
    word = text(keys.Text("text", ANY_TEXT, 128 * 1024))

    def check(value: Value, key: str) -> tuple[str, ...]:
        items = as_list(value, key, "[python, train.py]")
        if not items:
            raise value.error(key, "is empty", "it must name the program to run, such as [python, train.py]")
        problems = Problems()
        words: list[str] = []
        for at, item in enumerate(items):
            with problems.of(f"{key}[{at}]"):
                words.append(word(item, f"{key}[{at}]"))
                if at == 0 and not words[0].strip():
                    raise item.error(f"{key}[0]", "is empty", "it must name the program to run")
        problems.raise_all()
        return tuple(words)

    first = [{"type": "string", "pattern": r"\S"}]
    return Validator(check, {"type": "array", "prefixItems": first, "items": dict(word.schema), "minItems": 1})


def named_apart(checks: Validator) -> Validator:
    """Adds to a list of checks that each has a name of its own."""

    def check(value: Value, key: str) -> tuple[Check, ...]:
        found: tuple[Check, ...] = checks(value, key)
        problems = Problems()
        names = [one.name for one in found]
        for at, name in enumerate(names):
            where = f"{key}[{at}].name"
            if name in BUILT_IN:
                problems.add(value.error(where, f"{name} is a built-in check's name", "give it another"))
            elif name in names[:at]:
                problems.add(value.error(where, f"a second check has the name {name}", "give each its own"))
        problems.raise_all()
        return found

    return replace(checks, check=check)


def disk(record: Validator) -> Validator:
    """off as None, or a `Disk`."""
    return _or_off(record, "{min_free: 100MiB, on_fail: warn}")


def gpu(record: Validator) -> Validator:
    """off as None, or an `OnFail`."""
    of_field = Validator(
        lambda value, key: record(value, key).on_fail, record.schema, lambda got: record.plain(Gpu(got))
    )
    return _or_off(of_field, "{on_fail: exclude}")


def _or_off(record: Validator, example: str) -> Validator:
    def check(value: Value, key: str) -> Any:
        # YAML 1.1 takes a bare off for false, YAML 1.2 for text.
        if value.data is False or value.data == "off":
            return None
        if not isinstance(value.data, dict):
            raise value.error(key, f"is {value.shown()}", f"it must be off, or {example}")
        return record(value, key)

    schema = {"anyOf": [{"enum": ["off", False]}, dict(record.schema)]}
    return Validator(check, schema, lambda got: "off" if got is None else record.plain(got))
