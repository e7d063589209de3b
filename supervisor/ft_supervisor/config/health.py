"""`health`: how a node is found fit to train."""

from dataclasses import dataclass
from typing import Any

from ft_supervisor.config.kind import Kind, list_of, one_or_more, record
from ft_supervisor.config.values import ANY_TEXT, choice, count, duration, size, text, written_seconds
from ft_supervisor.config.yamltree import Value, as_list
from ft_supervisor.core.health_types import DISK, GPU, WORKERS
from ft_supervisor.core.settings import Check, OnFail, When

BUILT_IN = (DISK, GPU, WORKERS, "clock")
"""Names of checks that nobody has to write."""
EXAMPLE = "[{name: scratch, command: [test, -w, /tmp]}]"
_ON_FAIL = choice(*(word.value for word in OnFail))


@dataclass(frozen=True, slots=True)
class Disk:
    """What is asked of the file system of run_dir; `min_free` in bytes."""

    min_free: int = 100 * 2**20
    on_fail: OnFail = OnFail.WARN


def command() -> Kind:
    """An argument list, at least the program."""
    word = text("text", ANY_TEXT, 128 * 1024)

    def check(value: Value, key: str) -> tuple[str, ...]:
        items = as_list(value, key, "[python, train.py]")
        if not items:
            raise value.error(key, "is empty", "it must name the program to run, such as [python, train.py]")
        words = tuple(word(item, f"{key}[{at}]") for at, item in enumerate(items))
        if not words[0].strip():
            raise items[0].error(f"{key}[0]", "is empty", "it must name the program to run")
        return words

    first = [{"type": "string", "pattern": r"\S"}]
    return Kind(check, {"type": "array", "prefixItems": first, "items": dict(word.schema), "minItems": 1})


def checks() -> Kind:
    """The list of checks, each with a name of its own."""
    table = {
        "name": text("a check's name", r"\S|\S.*\S", 100).about("What logs and `match: {check: ...}` call it."),
        "command": command().about("Exits with 0 on a healthy node; not run by a shell."),
        "timeout": duration().about("A check that takes longer has failed, and is killed."),
        "retries": count(0, 10).about("So many more tries."),
        "when": one_or_more(choice(*(word.value for word in When))).about("When it is run."),
        "on_fail": _ON_FAIL.about("What becomes of the node."),
    }
    required = {"name": f"write {EXAMPLE}", "command": f"write {EXAMPLE}"}
    many = list_of(record(table, _build, _plain, required), EXAMPLE, most=100)

    def check(value: Value, key: str) -> tuple[Check, ...]:
        found: tuple[Check, ...] = many(value, key)
        names = [one.name for one in found]
        for at, name in enumerate(names):
            if name in BUILT_IN:
                raise value.error(f"{key}[{at}].name", f"{name} is a built-in check's name", "give it another")
            if name in names[:at]:
                raise value.error(f"{key}[{at}].name", f"a second check has the name {name}", "give each its own")
        return found

    return Kind(check, many.schema, many.plain)


def _build(fields: dict[str, Any], value: Value, key: str) -> Check:
    fields["when"] = tuple(When(word) for word in fields.get("when", ("start",)))
    fields["on_fail"] = OnFail(fields.get("on_fail", "exclude"))
    return Check(**fields)


def _plain(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "command": list(check.command),
        "timeout": written_seconds(check.timeout),
        "retries": check.retries,
        "when": [word.value for word in check.when],
        "on_fail": check.on_fail.value,
    }


def disk() -> Kind:
    """`off` as None, or a `Disk`."""
    table = {
        "min_free": size().about("What run_dir's file system must have free, such as 100MiB."),
        "on_fail": _ON_FAIL.about("What becomes of the node."),
    }

    def build(fields: dict[str, Any], value: Value, key: str) -> Disk:
        return Disk(**(fields | ({"on_fail": OnFail(fields["on_fail"])} if "on_fail" in fields else {})))

    def plain(disk: Disk) -> dict[str, Any]:
        return {"min_free": size().plain(disk.min_free), "on_fail": disk.on_fail.value}

    return _or_off(record(table, build, plain, {}), "{min_free: 100MiB, on_fail: warn}")


def gpu() -> Kind:
    """`off` as None, or an `OnFail`."""
    table = {"on_fail": _ON_FAIL.about("What becomes of a node with a broken GPU.")}

    def build(fields: dict[str, Any], value: Value, key: str) -> OnFail:
        return OnFail(fields["on_fail"])

    example = "{on_fail: exclude}"
    kind = record(table, build, lambda on_fail: {"on_fail": on_fail.value}, {"on_fail": f"write {example}"})
    return _or_off(kind, example)


def _or_off(kind: Kind, example: str) -> Kind:
    def check(value: Value, key: str) -> Any:
        # YAML 1.1 takes a bare off for false, YAML 1.2 for text.
        if value.data is False or value.data == "off":
            return None
        if not isinstance(value.data, dict):
            raise value.error(key, f"is {value.shown()}", f"it must be off, or {example}")
        return kind(value, key)

    schema = {"anyOf": [{"enum": ["off", False]}, dict(kind.schema)]}
    return Kind(check, schema, lambda got: "off" if got is None else kind.plain(got))
