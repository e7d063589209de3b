"""From one YAML value to one typed setting. Each converter takes (value, dotted key) and raises `ConfigError`."""

import re
import string
from collections.abc import Callable
from typing import Any

from ft_supervisor.config.yamltree import Value, as_list, as_map

Convert = Callable[[Value, str], Any]

MAX_SECONDS = 7 * 24 * 3600.0
MAX_NODES = 100_000
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?")

_SET_BY_THE_AGENT = re.compile(
    "RANK|WORLD_SIZE|(LOCAL|GROUP|ROLE)_(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)"
    "|TORCHELASTIC_(RUN_ID|RESTART_COUNT|USE_AGENT_STORE)"
)


def text(what: str, pattern: str = ".+", most: int = 4096) -> Convert:
    """Text of at most `most` characters that matches `pattern` as a whole; `what` says so in words."""
    shape = re.compile(pattern)

    def convert(value: Value, key: str) -> str:
        if not isinstance(value.data, str):
            quoted = f': "{value.text}"' if value.text and len(value.text) <= 40 else ""
            wrong = f"is {value.shown()}, not text"
            raise value.error(key, wrong, f"it must be {what}; quote it{quoted}" if quoted else f"it must be {what}")
        if not shape.fullmatch(value.data) or len(value.data) > most or "\0" in value.data:
            raise value.error(key, f"is {value.shown()}", f"it must be {what}")
        return value.data

    return convert


def count(least: int, most: int) -> Convert:
    """A whole number from `least` to `most`; true and false are none."""

    def convert(value: Value, key: str) -> int:
        if not isinstance(value.data, int) or isinstance(value.data, bool) or not least <= value.data <= most:
            raise value.error(key, f"is {value.shown()}", f"it must be a whole number from {least} to {most}")
        return value.data

    return convert


def choice(*words: str) -> Convert:
    """One of the words."""

    def convert(value: Value, key: str) -> str:
        if not isinstance(value.data, str) or value.data not in words:
            raise value.error(key, f"is {value.shown()}", f"it must be {' or '.join(words)}")
        return value.data

    return convert


def one_of_or(words: tuple[str, ...], least: int, most: int) -> Convert:
    """One of the words, or a whole number from `least` to `most`."""

    def convert(value: Value, key: str) -> str | int:
        data = value.data
        if isinstance(data, str) and data in words:
            return data
        if isinstance(data, int) and not isinstance(data, bool) and least <= data <= most:
            return data
        right = f"it must be {' or '.join(words)} or a whole number from {least} to {most}"
        raise value.error(key, f"is {value.shown()}", right)

    return convert


def duration(zero: bool) -> Convert:
    """Seconds as a float, from 500ms, 1.5s, 10m or 1h; at most 168h; 0s only where `zero` says so."""

    def convert(value: Value, key: str) -> float:
        match = _DURATION.fullmatch(value.text) if isinstance(value.data, str) else None
        if match is None:
            if _NUMBER.fullmatch(value.text) and len(value.text) <= 40:
                raise value.error(key, f"{value.text} has no unit", f"write {value.text}s, or with ms, m or h")
            raise value.error(key, f"is {value.shown()}", "it must be a duration such as 500ms, 1.5s, 10m or 1h")
        seconds = float(match[1]) * _UNITS[match[2]]
        if seconds == 0 and not zero:
            raise value.error(key, f"is {value.text}", "it must be more than 0")
        if seconds > MAX_SECONDS:
            raise value.error(key, f"is {value.text}", "it must be at most 168h")
        return seconds

    return convert


def shown_seconds(seconds: float) -> str:
    """A duration as a person writes it: 500ms, 1.5s, 600s."""
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def active(value: Value, key: str) -> int:
    """How many nodes train, at least 1."""
    if isinstance(value.data, dict):
        raise value.error(key, "a range of active nodes is not yet in this version", "write one number")
    if value.data == 0 and isinstance(value.data, int) and not isinstance(value.data, bool):
        raise value.error(key, "is 0, so no node would train", "it must be at least 1")
    return int(count(1, MAX_NODES)(value, key))


def candidates(value: Value, key: str) -> int | tuple[int, ...]:
    """How many nodes keep a coordinator, or which: distinct infra_ranks, at least one."""
    if not isinstance(value.data, list):
        if not isinstance(value.data, int) or isinstance(value.data, bool) or not 1 <= value.data <= MAX_NODES:
            right = f"it must be a whole number from 1 to {MAX_NODES}, or a list of infra_ranks such as [0, 3]"
            raise value.error(key, f"is {value.shown()}", right)
        return value.data
    convert = count(0, MAX_NODES - 1)
    found: list[int] = []
    for at, item in enumerate(value.data):
        if (rank := convert(item, f"{key}[{at}]")) in found:
            raise item.error(f"{key}[{at}]", f"{rank} is given twice", "name each node once")
        found.append(rank)
    if not found:
        raise value.error(key, "is empty, so no node could decide anything", "name the infra_rank of at least one node")
    return tuple(found)


def command(value: Value, key: str) -> tuple[str, ...]:
    """The worker's argument list, at least the program."""
    items = as_list(value, key, "[python, train.py]")
    if not items:
        raise value.error(key, "is empty", "it must name the program to run, such as [python, train.py]")
    convert = text("text", r"(?s).*", 128 * 1024)
    words = tuple(convert(item, f"{key}[{at}]") for at, item in enumerate(items))
    if not words[0].strip():
        raise items[0].error(f"{key}[0]", "is empty", "it must name the program to run")
    return words


def env(value: Value, key: str) -> tuple[tuple[str, str], ...]:
    """Variables for the workers, sorted by name."""
    convert = text("text", r"(?s).*", 128 * 1024)
    found: dict[str, str] = {}
    for name, item in as_map(value, key).items():
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            right = "it must be letters, digits and _, not starting with a digit"
            raise item.error(key, f"{name[:60]!r} is no variable's name", right)
        if _SET_BY_THE_AGENT.fullmatch(name):
            raise item.error(f"{key}.{name}", "is set by ft-supervisor for each worker", "remove it")
        found[name] = convert(item, f"{key}.{name}")
    return tuple(sorted(found.items()))


def run_dir(value: Value, key: str) -> str:
    """A path in which {job_id} is the only placeholder."""
    path: str = text("a path")(value, key)
    try:
        placeholders = {
            (name, spec or "", how or "") for _, name, spec, how in string.Formatter().parse(path) if name is not None
        }
    except ValueError as error:
        raise value.error(key, f"is {value.shown()}: {error}", "the only placeholder is {job_id}") from None
    if not placeholders <= {("job_id", "", "")}:
        raise value.error(key, f"is {value.shown()}", "the only placeholder is {job_id}")
    return path


def pattern(value: Value, key: str) -> str:
    """A regular expression with exactly one group."""
    expression: str = text("a regular expression", most=500)(value, key)
    try:
        groups = re.compile(expression).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise value.error(key, f"{value.shown()} is no regular expression: {error}", "see Python's re") from None
    if groups != 1:
        right = "it must have exactly one, the domain: (rack[0-9]+)-.*"
        raise value.error(key, f"{value.shown()} has {groups} groups", right)
    return expression
